package lab

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/starling-agg/starling/deploy"
)

// A benchFront spreads the connections to an aggregator over its processes, one after the
// other, as a balancer would.
type benchFront struct {
	net.Listener
	behind []string // addresses
	next   atomic.Uint64
}

// replicate makes the one configuration that there is into those of n processes, each with
// files and addresses of its own, and puts what spreads connections where the one would be.
func (p *benchParty) replicate(n int) error {
	made, err := os.ReadFile(p.configs[0])
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	config, err := deploy.LoadAggregator(p.configs[0], p.role)
	if err != nil {
		return err
	}
	front := &benchFront{}
	var configs []string
	for i := range n {
		a, err := deploy.Loopback()
		if err != nil {
			return err
		}
		public, local := a.Leader.Addr().String(), a.LeaderLocal.Addr().String()
		a.Close()
		name := fmt.Sprintf("%v-%d", p.role, i)
		file := filepath.Join(filepath.Dir(p.configs[0]), name+".toml")
		if err := os.WriteFile(file, []byte(replica(string(made), name, public, local)), 0o600); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		configs, front.behind = append(configs, file), append(front.behind, public)
	}
	if front.Listener, err = net.Listen("tcp", string(config.Public.Address)); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	p.configs, p.front = configs, front
	go front.serve()
	return nil
}

// replica is a configuration as [deploy.Create] writes it, with files and addresses of the
// name's own.
func replica(made, name, public, local string) string {
	var text strings.Builder
	section := ""
	for line := range strings.Lines(made) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasPrefix(key, "["):
			section = key
		case section == "" && key == "data":
			line = fmt.Sprintf("data = %q\n", name)
		case section == "" && key == "record":
			line = fmt.Sprintf("record = %q\n", name+".record")
		case section == "[public]" && key == "address":
			line = fmt.Sprintf("address = %q\n", public)
		case section == "[local]" && key == "address":
			line = fmt.Sprintf("address = %q\n", local)
		}
		text.WriteString(line)
	}
	return text.String()
}

// serve takes connections until the front is closed.
func (f *benchFront) serve() {
	for {
		c, err := f.Accept()
		if err != nil {
			return
		}
		go f.pass(c, f.behind[f.next.Add(1)%uint64(len(f.behind))])
	}
}

// pass carries what one connection brings, both ways, until either side ends it.
func (f *benchFront) pass(c net.Conn, address string) {
	defer c.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(to, c)
		to.Close()
	}()
	io.Copy(c, to)
}
