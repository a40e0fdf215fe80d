//go:build gateway

package objects_test

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
)

// gateway is the server that these tests start; test/objects/check builds it.
var gateway = flag.String("gateway", "", "the program versitygw")

// TestGateway: a real server, and this engine, keep the contract.
func TestGateway(t *testing.T) { prefixed(t, newServer(t).options(t)) }

// TestKilledGateway: a real server that is killed while it takes objects leaves each
// whole or not there, and those that it acknowledged there.
func TestKilledGateway(t *testing.T) {
	g := newServer(t)
	opt := g.options(t)
	opt.Attempts = 1
	s := open(t, opt)
	large := bytes.Repeat(content, 500)
	acknowledged := make([]bool, 8)
	begun := make(chan struct{}, len(acknowledged))
	var wg sync.WaitGroup
	for i := range acknowledged {
		wg.Go(func() {
			begun <- struct{}{}
			acknowledged[i] = s.Put(t.Context(), fmt.Sprintf("%d.obj", i), large[i:]) == nil
		})
	}
	for range acknowledged {
		<-begun
	}
	g.kill()
	wg.Wait()
	g.start(t)
	for i, ok := range acknowledged {
		name := fmt.Sprintf("%d.obj", i)
		size, err := s.Size(t.Context(), name)
		switch {
		case ok && err != nil:
			t.Errorf("%s was acknowledged: %v", name, err)
		case err == nil && size != int64(len(large)-i):
			t.Errorf("%s has %d bytes", name, size)
		}
		must(t, payload.Keep(t.Context(), s, name, large[i:]))
	}
}

// BenchmarkGateway puts and reads over loopback, as it is and with 100 ms before each
// put.
func BenchmarkGateway(b *testing.B) {
	payloadtest.Bench(b, open(b, newServer(b).options(b)), 0, 100*time.Millisecond)
}

// server is a versitygw, a process with a directory.
type server struct {
	dir  string
	addr string
	cmd  *exec.Cmd
	out  bytes.Buffer
}

func newServer(t testing.TB) *server {
	t.Helper()
	if *gateway == "" {
		t.Fatal("no -gateway: run test/objects/check")
	}
	s := &server{dir: t.TempDir(), addr: freeAddr(t)}
	if err := os.Mkdir(filepath.Join(s.dir, "reports"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	t.Cleanup(func() { s.kill() })
	return s
}

// freeAddr is an address on which nobody listens just now.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the process and waits until it answers.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.out.Reset()
	s.cmd = exec.Command(*gateway, "--quiet", "--keep-alive", "--port", s.addr, "posix", s.dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+user, "ROOT_SECRET_KEY="+secret)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	opt := s.options(t)
	opt.Attempts, opt.Pause = 100, 10*time.Millisecond
	if err := payload.Probe(t.Context(), open(t, opt), "probe/"); err != nil {
		s.kill()
		t.Fatalf("versitygw does not answer: %v\n%s", err, strings.TrimSpace(s.out.String()))
	}
}

// kill ends the process as kill -9 does.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may be gone
	_ = s.cmd.Wait()         // it was killed
}

func (s *server) options(t testing.TB) objects.Options {
	return objects.Options{
		Endpoint: "http://" + s.addr, Region: "us-east-1", Bucket: "reports", PathStyle: true, Credentials: profile(t, user, secret),
	}
}
