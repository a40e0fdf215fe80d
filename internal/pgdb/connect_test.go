package pgdb_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/service"
)

var one = fstest.MapFS{"0001_start.sql": {Data: []byte("-- least: 1\nCREATE TABLE thing (name text PRIMARY KEY);\nGRANT SELECT, INSERT ON thing TO :service;\n")}}

var errDial = errors.New("nobody is there")

// TestUnverified: a connection that is not verified is refused before anything is sent, and
// so is a string that leans on a session.
func TestUnverified(t *testing.T) {
	for text, want := range map[string]string{
		"host=db.example user=u":                                     "", // verified by default
		"postgres://u:secret@db.example/d":                           "",
		"host=db.example sslmode=verify-full":                        "",
		"host=/run/postgresql user=u":                                "",
		"host=127.0.0.1 user=u sslmode=disable":                      "",
		"host=localhost user=u sslmode=require":                      "",
		"postgres://u@[::1]/d?sslmode=prefer":                        "",
		"host=db.example sslmode=disable":                            "would not be verified",
		"host=db.example sslmode=allow":                              "would not be verified",
		"host=db.example sslmode=prefer":                             "would not be verified",
		"host=db.example sslmode=require":                            "would not be verified",
		"host=db.example sslmode=verify-ca":                          "would not be verified",
		"host=127.0.0.1,db.example sslmode=disable":                  "would not be verified",
		"postgres://u:secret@db.example/d?sslmode=require":           "would not be verified",
		"postgres://u:secret@db.example/d?sslmode=verify-full&ssl=1": "parameter of the session",
		"host=/run statement_timeout=5":                              "parameter of the session",
		"host=/run options='-c search_path=x'":                       "parameter of the session",
		"host=/run secret":                                           "no connection string",
		"postgres://u:secret@db.example:port/d":                      "no connection string",
		"postgres://u:secret@db.example/d?a=%zz":                     "malformed",
	} {
		dialled := false
		_, err := pgdb.Open(t.Context(), pgdb.Options{
			Connection: text, Schema: "s", Migrations: one, Attempts: 1,
			Dial: func(context.Context, string, string) (net.Conn, error) { dialled = true; return nil, errDial },
		})
		switch {
		case err == nil:
			t.Fatalf("%s: opened", text)
		case want != "" && (dialled || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: dialled: %v; %v, want %q", text, dialled, err, want)
		case want == "" && (strings.Contains(err.Error(), "verified") || strings.Contains(err.Error(), "no connection string")):
			t.Errorf("%s: refused: %v", text, err)
		case strings.Contains(err.Error(), "secret") && strings.Contains(text, "u:secret"):
			t.Errorf("the error has the password: %v", err)
		}
	}
}

// TestEnvironment: nothing of the environment weakens a connection.
func TestEnvironment(t *testing.T) {
	t.Setenv("PGSSLMODE", "disable")
	refused := func(text, want string) {
		t.Helper()
		_, err := pgdb.Open(t.Context(), pgdb.Options{Connection: text, Schema: "s", Migrations: one, Attempts: 1,
			Dial: func(context.Context, string, string) (net.Conn, error) { return clear{}, nil }})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	refused("host=127.0.0.1 user=u", "TLS")
	refused("postgres://u@127.0.0.1/d", "TLS")
	t.Setenv("PGOPTIONS", "-c x=y")
	refused("host=/run user=u", "parameter of the session")
}

// clear is a server that has no TLS: it answers each request for it with N.
type clear struct{ net.Conn }

func (clear) Read(b []byte) (int, error)       { b[0] = 'N'; return 1, nil }
func (clear) Write(b []byte) (int, error)      { return len(b), nil }
func (clear) Close() error                     { return nil }
func (clear) SetDeadline(time.Time) error      { return nil }
func (clear) SetReadDeadline(time.Time) error  { return nil }
func (clear) SetWriteDeadline(time.Time) error { return nil }
func (clear) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (clear) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// TestFileIsReadAgain: each connection takes the string that its file has then, and the one
// before where it has none.
func TestFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "connection")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("host=/first user=u\n")
	var dialled []string
	_, err := pgdb.Open(t.Context(), pgdb.Options{
		File: service.Secret(file), Schema: "s", Migrations: one, Attempts: 3, Pause: 1,
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			write([]string{"", "host=/second user=u", ""}[len(dialled)%3])
			return nil, errDial
		},
	})
	want := "/first/.s.PGSQL.5432 /second/.s.PGSQL.5432 /first/.s.PGSQL.5432"
	if got := strings.Join(dialled, " "); err == nil || got != want {
		t.Fatalf("dialled %s, want %s; %v", got, want, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	var mode *service.SecretModeError
	if _, err := pgdb.Open(t.Context(), pgdb.Options{File: service.Secret(file), Schema: "s", Migrations: one}); !errors.As(err, &mode) {
		t.Fatalf("a file that others can read: %v", err)
	}
}

// TestServerIsVerified: a server whose certificate nobody vouches for, or that is of
// another name, hears no user and no password.
func TestServerIsVerified(t *testing.T) {
	ca, pool := authority(t)
	for _, test := range []struct {
		name, text string
		heard      bool
	}{
		{"127.0.0.1", "host=127.0.0.1 user=u password=secret", false},
		{"127.0.0.2", "host=127.0.0.1 user=u password=secret sslrootcert=" + pool, false},
		{"127.0.0.1", "host=127.0.0.1 user=u password=secret sslrootcert=" + pool, true},
	} {
		heard := make(chan bool, 1)
		_, err := pgdb.Open(t.Context(), pgdb.Options{
			Connection: test.text, Schema: "s", Migrations: one, Attempts: 1,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { heard <- serveTLS(there, ca(test.name)) }()
				return here, nil
			},
		})
		if got := <-heard; !errors.Is(err, pgdb.ErrUnreached) || got != test.heard {
			t.Errorf("certificate of %s, %s: heard a client: %v, want %v; %v", test.name, test.text, got, test.heard, err)
		}
	}
}

// serveTLS is a server until the first message over TLS, and says whether that came.
func serveTLS(c net.Conn, cert tls.Certificate) bool {
	defer c.Close()
	b := make([]byte, 256)
	if _, err := c.Read(b); err != nil { // the request for TLS
		return false
	}
	if _, err := c.Write([]byte{'S'}); err != nil {
		return false
	}
	s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	n, err := s.Read(b)
	return err == nil && strings.Contains(string(b[:n]), "user\x00u\x00")
}

// authority makes certificates for addresses, and a file of its own.
func authority(t *testing.T) (issue func(address string) tls.Certificate, file string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	must(err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return func(address string) tls.Certificate {
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: root.NotAfter, IPAddresses: []net.IP{net.ParseIP(address)}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, key)
		must(err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}, file
}

// TestMigrationFiles: what is no sequence of migrations is refused before anything is
// asked.
func TestMigrationFiles(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for want, files := range map[string]fstest.MapFS{
		"no migrations":          {},
		"no name of a migration": {"1.sql": file("-- least: 1\n")},
		"is migration 1 by its":  {"0002_a.sql": file("-- least: 1\n")},
		"does not begin with":    {"0001_a.sql": file("CREATE TABLE x ();")},
		"has least 2":            {"0001_a.sql": file("-- least: 2\n")},
		"0003_c.sql has least 1": {"0001_a.sql": file("-- least: 1\n"), "0002_b.sql": file("-- least: 2\n"), "0003_c.sql": file("-- least: 1\n")},
	} {
		_, err := pgdb.Open(t.Context(), pgdb.Options{Connection: "host=/run", Schema: "s", Migrations: files})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, name := range []string{"", "S", "a-b", `a"; DROP`, strings.Repeat("a", 64)} {
		if _, err := pgdb.Open(t.Context(), pgdb.Options{Connection: "host=/run", Schema: name, Migrations: one}); err == nil ||
			!strings.Contains(err.Error(), "no name of a schema") {
			t.Errorf("schema %q: %v", name, err)
		}
	}
}
