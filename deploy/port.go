package deploy

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Ports that are written down lie below those that systems hand out for a moment (from
// 32768 on Linux, from 49152 elsewhere): a party that is stopped and started again finds
// no one's connection on its port.
const (
	firstPort = 10240
	lastPort  = 32767
	portTries = 1000
)

// ListenLoopback opens a port on loopback that nobody listens on, for an address that is
// written down and listened on again.
func ListenLoopback() (net.Listener, error) {
	var err error
	for range portTries {
		var b [4]byte
		rand.Read(b[:])
		port := firstPort + binary.BigEndian.Uint32(b[:])%(lastPort-firstPort+1)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			break
		}
	}
	return nil, fmt.Errorf("deploy: open a port on loopback: %w", err)
}
