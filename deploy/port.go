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
// written down and listened on again. A party that has stopped and will listen again can
// keep others from being given its port meanwhile, by one of UDP with the same number.
func ListenLoopback() (net.Listener, error) {
	var err error
	for range portTries {
		var b [4]byte
		rand.Read(b[:])
		var l net.Listener
		if l, err = listenFree(firstPort + binary.BigEndian.Uint32(b[:])%(lastPort-firstPort+1)); err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			break
		}
	}
	return nil, fmt.Errorf("deploy: open a port on loopback: %w", err)
}

// listenFree opens a port that nobody listens on and nobody holds.
func listenFree(port uint32) (net.Listener, error) {
	at := fmt.Sprintf("127.0.0.1:%d", port)
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	held, err := net.ListenPacket("udp", at)
	if err != nil {
		l.Close()
		return nil, err
	}
	held.Close()
	return l, nil
}
