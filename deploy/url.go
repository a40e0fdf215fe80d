package deploy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
)

// maxURL bounds URLs in configurations, in bytes.
const maxURL = 2 << 10

// parseURL parses an absolute http or https URL with a host and neither user, query nor
// fragment.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case len(s) > maxURL:
		return nil, fmt.Errorf("longer than %d bytes", maxURL)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("%q is not an absolute http or https URL", s)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("%q has a user, a query or a fragment", s)
	}
	return u, nil
}

// checkPeer is parseURL for the next hop of a server, which is reached by plain HTTP on
// this machine only.
func checkPeer(s string) error {
	u, err := parseURL(s)
	if err != nil {
		return err
	}
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("%q is plain HTTP to another machine: use https", s)
}
