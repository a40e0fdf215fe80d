package lab

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
)

// A Balancer spreads the connections to an aggregator over its processes, one after the
// other. A process that takes none is passed over.
type Balancer struct {
	listener net.Listener
	behind   []string // addresses
	next     atomic.Uint64
}

// NewBalancer takes connections at an address for the processes behind it, until
// [Balancer.Close].
func NewBalancer(address string, behind []string) (*Balancer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	b := &Balancer{listener: l, behind: behind}
	go b.serve()
	return b, nil
}

// Close takes no more connections. Those that are there go on.
func (b *Balancer) Close() error { return b.listener.Close() }

func (b *Balancer) serve() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pass(c)
	}
}

// pass carries what one connection brings, both ways, until either side ends it.
func (b *Balancer) pass(c net.Conn) {
	defer c.Close()
	for range b.behind {
		to, err := net.Dial("tcp", b.behind[b.next.Add(1)%uint64(len(b.behind))])
		if err != nil {
			continue
		}
		defer to.Close()
		go func() {
			io.Copy(to, c)
			to.Close()
		}()
		io.Copy(c, to)
		return
	}
}

// ReplicaConfig is a configuration as [deploy.Create] writes it, with files of the name's own
// and other addresses: that of one of several processes.
func ReplicaConfig(made, name, public, local string) string {
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
