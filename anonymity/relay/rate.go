package relay

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"time"
)

// Rate bounds how many requests come from one part of the network in an interval. No
// address is kept, nor anything that one could be found by: the /24 or /48 of an address
// picks one of a few counters by a hash whose key is new in every interval and is never
// stored. Others who fall on the same counter share its fate until the next interval.
type Rate struct {
	// Requests a counter allows in an interval; default 600. A negative number means no
	// limit.
	Requests int
	// Interval is how long counts last; default 1 minute.
	Interval time.Duration
	// Counters is how many there are; default 4096.
	Counters int
}

// defaultRate is what a network of many devices behind one address may need, ten a
// second, and far below what ends a gateway's key.
const defaultRate = 600

// Validate says what is wrong with the rate.
func (r Rate) Validate() error {
	if r.Interval < 0 || r.Counters < 0 || r.Counters > 1<<20 {
		return errors.New("relay: rate: negative, or more than 1048576 counters")
	}
	return nil
}

type rate struct {
	limit    int
	interval time.Duration

	mu     sync.Mutex // guards the rest
	key    [32]byte
	counts []int
	until  time.Time
}

func newRate(r Rate) *rate {
	if r.Requests == 0 {
		r.Requests = defaultRate
	}
	if r.Interval == 0 {
		r.Interval = time.Minute
	}
	if r.Counters == 0 {
		r.Counters = 4096
	}
	return &rate{limit: r.Requests, interval: r.Interval, counts: make([]int, r.Counters)}
}

// allow counts a request from an address. Addresses that are none, as on a unix socket,
// are one part of the network. Placed is false for those.
func (r *rate) allow(remote string, now time.Time) (allowed, placed bool) {
	prefix, placed := network(remote)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.until) {
		rand.Read(r.key[:])
		r.until = now.Add(r.interval)
		clear(r.counts)
	}
	sum := sha256.Sum256(append(r.key[:], prefix[:]...))
	n := &r.counts[binary.BigEndian.Uint64(sum[:])%uint64(len(r.counts))]
	if *n >= r.limit {
		return false, placed
	}
	*n++
	return true, placed
}

// network is the /24 of an IPv4 address or the /48 of an IPv6 address, given as
// host:port.
func network(remote string) (prefix [16]byte, ok bool) {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return prefix, false
	}
	a, bits := from.Addr().Unmap().WithZone(""), 48
	if a.Is4() {
		bits = 24
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return prefix, false
	}
	return p.Addr().As16(), true
}
