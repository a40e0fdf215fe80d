package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"testing"
)

// Backup is a backup of the schema, made with pg_dump by the administrator: the owner may
// not read all of it.
func (s *Schema) Backup(t testing.TB) []byte {
	t.Helper()
	return s.Server.client(t, nil, "pg_dump", "--schema", s.Name, "--dbname", s.Server.as(s.Server.config.User))
}

// PutBack puts a backup in the place of the schema, whoever is using it.
func (s *Schema) PutBack(t testing.TB, backup []byte) {
	t.Helper()
	s.Server.client(t, append(fmt.Appendf(nil, "DROP SCHEMA %s CASCADE;\n", s.Name), backup...),
		"psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--single-transaction", "--dbname", s.Server.as(s.Server.config.User))
}

// client runs a program of PostgreSQL's.
func (s *Server) client(t testing.TB, in []byte, name string, args ...string) []byte {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Stdin = bytes.NewReader(in)
	out, err := c.Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			err = fmt.Errorf("%w: %s", err, e.Stderr)
		}
		t.Fatalf("pgtest: %s: %v", name, err)
	}
	return out
}
