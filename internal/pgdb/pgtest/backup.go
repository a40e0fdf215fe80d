package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Backup is a backup of the schema, made with pg_dump by the administrator: the owner may
// not read all of it.
func (s *Schema) Backup(t testing.TB) []byte {
	t.Helper()
	return s.Server.client(t, nil, "pg_dump", "--schema", s.Name, "--dbname", s.Server.as(s.Server.config.User))
}

// PutBack puts a backup in the place of the schema, whoever is using it: in one transaction,
// and again where that and a reader's waited for each other and the server ended this one.
func (s *Schema) PutBack(t testing.TB, backup []byte) {
	t.Helper()
	for in := append(fmt.Appendf(nil, "DROP SCHEMA %s CASCADE;\n", s.Name), backup...); ; {
		_, err := s.Server.try(t, in, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--single-transaction",
			"--dbname", s.Server.as(s.Server.config.User))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "deadlock detected") {
			t.Fatal(err)
		}
	}
}

// Exec has the administrator run SQL.
func (s *Schema) Exec(t testing.TB, sql string) {
	t.Helper()
	s.Server.client(t, nil, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--command", sql, "--dbname", s.Server.as(s.Server.config.User))
}

// client runs a program of PostgreSQL's.
func (s *Server) client(t testing.TB, in []byte, name string, args ...string) []byte {
	t.Helper()
	out, err := s.try(t, in, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs one that may fail.
func (s *Server) try(t testing.TB, in []byte, name string, args ...string) ([]byte, error) {
	c := exec.CommandContext(t.Context(), name, args...)
	c.Stdin = bytes.NewReader(in)
	out, err := c.Output()
	var e *exec.ExitError
	switch {
	case errors.As(err, &e):
		return nil, fmt.Errorf("pgtest: %s: %w: %s", name, err, e.Stderr)
	case err != nil:
		return nil, fmt.Errorf("pgtest: %s: %w", name, err)
	}
	return out, nil
}
