//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/starling-agg/starling/internal/pgserver"
)

// roles are those of the tests: one owns tables, the other one is what replicas are. Their
// password is for servers of others.
const (
	owner    = "starling_test_owner"
	service  = "starling_test_service"
	password = "starling-test"
)

// A Server is where a test has its schema.
type Server struct {
	own    *pgserver.Server // nil where it is somebody's
	config *pgx.ConnConfig
}

// shared is the server of this test binary.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Run runs the tests of a binary, and ends its server.
func Run(m *testing.M) int {
	defer End()
	return m.Run()
}

// End ends the server of a binary whose tests are over.
func End() {
	shared.Lock()
	defer shared.Unlock()
	if s := shared.server; s != nil && s.own != nil {
		s.own.Stop()
		s.own.Remove()
	}
}

// A Schema is a test's own. It is dropped when the test ends.
type Schema struct {
	Name    string
	Owner   string // connection string of the role that owns its tables
	Service string // that of the role that replicas connect as
	Role    string // its name
	Server  *Server
}

// New makes a schema in the server of the test binary.
func New(t testing.TB) *Schema {
	t.Helper()
	shared.Lock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = begin()
	}
	s, err := shared.server, shared.err
	shared.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return s.Schema(t)
}

// NewServer starts a server for one test, which may stop it. It keeps what it commits.
func NewServer(t testing.TB) *Server {
	t.Helper()
	return newServer(t, func(*pgserver.Server) error { return nil })
}

// newServer is NewServer, after some preparation.
func newServer(t testing.TB, prepare func(own *pgserver.Server) error) *Server {
	t.Helper()
	own, err := pgserver.New(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Remove)
	if err := prepare(own); err != nil {
		t.Fatal(err)
	}
	s, err := serveAt(own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.own.Stop() })
	return s
}

// Crash kills all processes of the server of NewServer with SIGKILL, and starts it again.
func (s *Server) Crash(t testing.TB, meanwhile func()) {
	t.Helper()
	if err := s.own.Kill(); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := s.own.Start(); err != nil {
		t.Fatal(err)
	}
}

// Standby makes a synchronous standby of the server of NewServer: from then on what the one
// commits is durable at both.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	own, err := s.own.Follow()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Remove)
	t.Cleanup(func() { own.Stop() })
	b := &Server{own: own, config: s.config.Copy()}
	b.config.Host = own.Dir
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if err := s.exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; n == 0; {
		n = s.Ask(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
	}
	return b
}

// Ask asks for a number, as the administrator.
func (s *Server) Ask(t testing.TB, sql string) (n int) {
	t.Helper()
	c, err := pgx.ConnectConfig(t.Context(), s.config)
	if err == nil {
		defer c.Close(t.Context())
		err = c.QueryRow(t.Context(), sql).Scan(&n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// FailOver kills all processes of a server, for good, and has its standby take its place.
func (s *Server) FailOver(t testing.TB, standby *Server) {
	t.Helper()
	err := s.own.Kill()
	if err == nil {
		err = standby.exec("SELECT pg_promote()")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Either is the connection string of the role that replicas connect as, to this server or
// the other one, whichever takes writes.
func (s *Schema) Either(other *Server) string {
	one := strings.Fields(s.Service)
	for i, field := range one {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "host":
			one[i] = "host=" + value + "," + other.config.Host
		case "port":
			one[i] = fmt.Sprintf("port=%s,%d", value, other.config.Port)
		}
	}
	return strings.Join(one, " ")
}

func begin() (*Server, error) {
	if text := os.Getenv("STARLING_TEST_POSTGRES"); text != "" {
		config, err := pgx.ParseConfig(text)
		if err != nil {
			return nil, errors.New("pgtest: STARLING_TEST_POSTGRES is no connection string")
		}
		s := &Server{config: config}
		return s, s.makeRoles()
	}
	own, err := pgserver.New(false)
	if err != nil {
		return nil, err
	}
	s, err := serveAt(own)
	if err != nil {
		own.Remove()
	}
	return s, err
}

// serve starts a server that has no roles yet.
func serveAt(own *pgserver.Server) (*Server, error) {
	if err := own.Start(); err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig("host=" + own.Dir + " port=5432 dbname=postgres user=" + pgserver.Admin)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	s := &Server{own: own, config: config}
	if err := s.makeRoles(); err != nil {
		own.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) makeRoles() error {
	for _, role := range []string{owner, service} {
		err := s.exec("CREATE ROLE " + role + " LOGIN PASSWORD '" + password + "'")
		var there *pgconn.PgError
		if err != nil && !(errors.As(err, &there) && there.Code == "42710") {
			return err
		}
	}
	return s.exec("GRANT CREATE ON DATABASE " + pgx.Identifier{s.config.Database}.Sanitize() + " TO " + owner)
}

// exec runs SQL as the administrator.
func (s *Server) exec(sql string) error {
	ctx := context.Background()
	c, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, sql); err != nil {
		return fmt.Errorf("pgtest: %s: %w", sql, err)
	}
	return nil
}

// Schema makes a schema in this server.
func (s *Server) Schema(t testing.TB) *Schema {
	t.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	name := "test_" + hex.EncodeToString(b[:])
	if s.own == nil {
		t.Cleanup(func() {
			if err := s.exec("DROP SCHEMA IF EXISTS " + name + " CASCADE"); err != nil {
				t.Error(err)
			}
		})
	}
	return &Schema{Name: name, Owner: s.as(owner), Service: s.as(service), Role: service, Server: s}
}

// as is the connection string of a role. It verifies nothing on this machine.
func (s *Server) as(role string) string {
	text := fmt.Sprintf("host=%s port=%d dbname=%s user=%s password=%s", s.config.Host, s.config.Port, s.config.Database, role, password)
	if s.config.TLSConfig == nil {
		text += " sslmode=disable"
	}
	return text
}
