//go:build postgres

package aggregator_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// TestReplicasCredentials: leader and helper reach a database that is not on their machine. A
// server that is not the right one is refused at the start, in words; and then passwords and
// the key of object storage are replaced under load, in their files, without a restart.
func TestReplicasCredentials(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a network of this machine's own, of which any address can be had")
	}
	secured := pgtest.NewSecured(t)
	role := ""
	r := &replicas{T: t, marks: "directory", server: secured.Server}
	r.serving = func(_ string, s *pgtest.Schema) (string, string) {
		role = s.Role
		return secured.Over(s.Role, pgtest.Password, secured.CA), "connections = 6\n"
	}
	s := streamed(t, r)
	leader, helper := &s.leader.two[0], &s.helper.two[0]
	for _, x := range []*side{s.helper, s.leader} {
		s.done("migrate", x.two[0].config)
		s.done("key", "wrapping", "--out", "secrets/wrapping."+x.role)
	}

	file := "secrets/database.helper"
	refused := func(own, another bool, ca, want string) {
		t.Helper()
		secured.TLS(own, another)
		s.write(file, secured.Over(role, pgtest.Password, ca))
		if out := s.refused(want, "serve", "helper", helper.config); !strings.Contains(out, "sslrootcert=FILE") || strings.Contains(out, pgtest.Password) {
			t.Errorf("refused without what to do, or with the password:\n%s", out)
		}
	}
	refused(false, false, secured.CA, "server refused TLS connection")
	refused(true, false, secured.Stranger, "certificate signed by unknown authority")
	refused(true, false, "", "certificate signed by unknown authority")
	refused(false, true, secured.CA, "certificate is valid for 192.0.2.1")
	secured.TLS(true, false)
	s.write(file, secured.Over(role, "wrong", secured.CA))
	s.refused("password authentication failed", "serve", "helper", helper.config)
	s.write(file, secured.Over(role, pgtest.Password, secured.CA))

	s.serve(helper, "helper")
	s.serve(leader, "leader")
	s.start()
	for n := range 2 {
		s.during("a password is replaced", func() {
			fresh := fmt.Sprint("another", n)
			for _, x := range []string{"helper", "leader"} {
				s.write("secrets/database."+x, secured.Over(role, fresh, secured.CA))
			}
			secured.Change(role, fresh)
		})
	}
	large := func() {
		t.Helper()
		for before, end := s.uploads.Load(), time.Now().Add(time.Minute); s.uploads.Load() == before; {
			if time.Now().After(end) {
				t.Fatal("no upload came to object storage")
			}
			s.burst(24)
		}
	}
	large()
	s.during("the key of object storage is replaced", func() {
		fresh := "another"
		s.access.Store(&fresh)
		s.write("secrets/objects", strings.Replace(objectCredentials, "= starling\n", "= "+fresh+"\n", 1))
		large()
	})
	s.collected()
	s.know(s.taken, leader, helper)
}
