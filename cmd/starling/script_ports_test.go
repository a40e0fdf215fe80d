package main

import (
	"net"
	"os"
	"path/filepath"
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

// heldPorts are addresses of a script's parties, held by UDP until the script ends: whoever
// runs beside it is given none of them by deploy.ListenLoopback while a party is stopped.
type heldPorts map[string]net.PacketConn

// holdPorts lets a script hold ports.
func holdPorts(e *testscript.Env) {
	h := make(heldPorts)
	e.Values[portsKey{}] = h
	e.Defer(func() {
		for _, c := range h {
			c.Close()
		}
	})
}

// portsKey is where a script has them.
type portsKey struct{}

// holdPort holds an address. One that somebody has is left to them.
func holdPort(ts *testscript.TestScript, address string) {
	h := ts.Value(portsKey{}).(heldPorts)
	if h[address] != nil {
		return
	}
	if c, err := net.ListenPacket("udp", address); err == nil {
		h[address] = c
	}
}

// hold holds the ports of a deployment.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold DIR")
	}
	holdWritten(ts, ts.MkAbs(args[0]))
}

var written = regexp.MustCompile(`127\.0\.0\.1:[1-9][0-9]+`)

// holdWritten holds all addresses on loopback in the configurations of a directory.
func holdWritten(ts *testscript.TestScript, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
	ts.Check(err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		ts.Check(err)
		for _, address := range written.FindAllString(string(b), -1) {
			holdPort(ts, address)
		}
	}
}
