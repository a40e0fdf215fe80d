package deploy

import (
	"errors"
	"net"
	"syscall"
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

// TestPortHeld: a port that is held by UDP is given to nobody, until it is let go.
func TestPortHeld(t *testing.T) {
	l, err := ListenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	held, err := net.ListenPacket("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if l, err := listenFree(uint32(at.Port)); !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			l.Close()
		}
		t.Errorf("a port that is held: %v", err)
	}
	held.Close()
	if l, err = listenFree(uint32(at.Port)); err != nil {
		t.Fatalf("a port that is free: %v", err)
	}
	l.Close()
}
