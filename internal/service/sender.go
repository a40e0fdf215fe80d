package service

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// SenderOf returns the address that a request comes from: the connection's, or behind a
// proxy the one that the proxy wrote last into the header named forwarded. Anybody may
// have written the addresses before it.
func SenderOf(r *http.Request, forwarded string) string {
	if forwarded == "" {
		return r.RemoteAddr
	}
	lines := r.Header.Values(forwarded)
	if len(lines) == 0 {
		return ""
	}
	all := lines[len(lines)-1]
	last := strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:])
	if _, err := netip.ParseAddr(last); err == nil {
		return net.JoinHostPort(last, "0")
	}
	return last
}

// hostOf is the address in host:port, or the invalid one.
func hostOf(remote string) netip.Addr {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// sourceOf is what connections are counted by: an IPv4 address, or the /64 of an IPv6
// address, of which one sender has all.
func sourceOf(remote string) netip.Addr {
	a := hostOf(remote)
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
