package deploy

import (
	"net"
	"testing"
)

// TestListenLoopback: no port is given twice while it is open, and none is one that a
// system gives to a connection, so that a party finds its own again.
func TestListenLoopback(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		l, err := ListenLoopback()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		at := l.Addr().(*net.TCPAddr)
		if !at.IP.IsLoopback() || at.Port < firstPort || at.Port > lastPort || seen[at.Port] {
			t.Fatalf("%v, after %d others", at, len(seen))
		}
		seen[at.Port] = true
	}
}
