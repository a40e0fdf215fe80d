//go:build postgres

package aggregator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/internal/pgserver"
)

// With STARLING_TEST_ENGINE=postgres leader and helper of each pair stand on databases, and
// the leader's uploads that are too large for a row in object storage: test/postgres/check
// says which tests.
func init() {
	if os.Getenv("STARLING_TEST_ENGINE") != "postgres" {
		return
	}
	onDatabases = databases
	if os.Getenv("STARLING_TEST_POSTGRES") != "" {
		return
	}
	// Leader and helper refuse a server that does not keep what it commits, as pgtest's own is.
	server := must(pgserver.New(true))
	afterAll = func() {
		server.Stop()
		server.Remove()
	}
	if err := server.Start(); err != nil {
		server.Remove()
		panic(err)
	}
	if err := os.Setenv("STARLING_TEST_POSTGRES", "host="+server.Dir+" port=5432 dbname=postgres user="+pgserver.Admin); err != nil {
		panic(err)
	}
}

// objectCredentials are a file that any S3 server of the tests takes.
const objectCredentials = "[default]\naws_access_key_id = starling\naws_secret_access_key = Kaeru-tobikomu\n"

// databases gives leader and helper a schema each.
func databases(t testing.TB, p *pair) {
	t.Helper()
	dir := t.TempDir()
	wrapping := filepath.Join(dir, "wrapping")
	must(database.AddWrappingKey(wrapping, time.Now()))
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	make := func(who string) *aggregator.Database {
		t.Helper()
		s := pgtest.New(t)
		d := aggregator.Database{File: write(who+".owner", s.Owner), Schema: s.Name, Service: s.Role}
		if _, _, err := database.Migrate(t.Context(), database.MigrateOptions{Database: d}); err != nil {
			t.Fatal(err)
		}
		return &aggregator.Database{File: write(who, s.Service), Schema: s.Name, WrappingKeys: wrapping, Connections: 8}
	}
	p.leaderOpt.Database, p.helperOpt.Database = make("leader"), make("helper")
	p.leaderOpt.Database.Objects, _ = objectStorage(t, write("credentials", objectCredentials))
}

// objectStorage is an S3 server in this process.
func objectStorage(t testing.TB, credentials string) (o *aggregator.Objects, uploads *atomic.Int64) {
	t.Helper()
	return objectStorageOf(t, credentials, func(string) bool { return true })
}

// objectStorageOf is an S3 server that knows the access keys that may come.
func objectStorageOf(t testing.TB, credentials string, knows func(access string) bool) (o *aggregator.Objects, uploads *atomic.Int64) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("reports"); err != nil {
		t.Fatal(err)
	}
	real := gofakes3.New(backend).Server()
	uploads = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, access, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		if access, _, _ = strings.Cut(access, "/"); !knows(access) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
			return
		}
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/reports/slices/") {
			uploads.Add(1)
		}
		real.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &aggregator.Objects{Endpoint: server.URL, Region: "us-east-1", S3Bucket: "reports", PathStyle: true, Credentials: credentials}, uploads
}
