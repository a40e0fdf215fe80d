//go:build unix

package parties

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/pgserver"
	"github.com/starling-agg/starling/lab"
)

// A Database is the server of one party.
type Database struct {
	Role   string
	server *pgserver.Server
}

// Kill ends the server and all of its processes with SIGKILL.
func (d *Database) Kill() error { return d.server.Kill() }

// Again starts a server that was killed, and waits until it takes connections.
func (d *Database) Again() error { return d.server.Start() }

// add gives a party its database and its other processes. s, which has a configuration and is
// not started yet, is the first one then.
func (r *Replicas) add(p *Pair, s *Party) error {
	server, err := pgserver.New(true)
	if err != nil {
		return err
	}
	p.ends = append(p.ends, server.Remove)
	if err := server.Start(); err != nil {
		return err
	}
	p.ends = append(p.ends, server.Stop)
	p.Databases = append(p.Databases, &Database{s.Role, server})
	file, keys := filepath.Join("secrets", "database."+s.Role), filepath.Join("secrets", "wrapping."+s.Role)
	// A role that may do no more than serve, as doctor asks of it.
	if _, err := server.Ask("CREATE ROLE starling LOGIN; GRANT CREATE ON DATABASE postgres TO starling"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.Dir, file), fmt.Appendf(nil, "host=%s port=5432 dbname=postgres user=starling\n", server.Dir), 0o600); err != nil {
		return err
	}
	if _, err := database.AddWrappingKey(filepath.Join(p.Dir, keys), time.Now()); err != nil {
		return err
	}
	made, err := os.ReadFile(s.Config)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("engine = \"postgres\"\n%s\n[database]\nfile = %q\nwrapping_keys = %q\n\n[database.marks]\ndirectory = %q\n",
		made, file, keys, "marks."+s.Role)
	if s.Role == "leader" {
		text += r.Objects
	}
	address := s.Public
	var behind []string
	for i := range r.Each {
		a, err := deploy.Loopback()
		if err != nil {
			return err
		}
		public, local := a.Leader.Addr().String(), a.LeaderLocal.Addr().String()
		a.Close()
		name := fmt.Sprintf("%s-%d", s.Role, i)
		one := &Party{Role: s.Role, Config: filepath.Join(p.Dir, name+".toml"), Public: public, local: local}
		if err := os.WriteFile(one.Config, []byte(lab.ReplicaConfig(text, name, public, local)), 0o600); err != nil {
			return err
		}
		if behind = append(behind, public); i == 0 {
			*s = *one
		} else {
			p.more = append(p.more, one)
		}
	}
	front, err := lab.NewBalancer(address, behind)
	if err == nil {
		p.ends = append(p.ends, func() { front.Close() })
	}
	return err
}
