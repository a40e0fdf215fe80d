// Package endpoint reads the URLs at which parties are reached: of configurations, recipes'
// relays and manifests.
package endpoint

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxURL bounds URLs in configurations and manifests, in bytes.
const maxURL = 2 << 10

// Parse parses an absolute http or https URL with a host and neither user, query nor
// fragment.
func Parse(s string) (*url.URL, error) {
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
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%q: the port is not a number from 1 to 65535", s)
		}
	}
	return u, nil
}

// CheckPeer is [Parse] for the next hop of a server, which is reached by plain HTTP on this
// machine only.
func CheckPeer(s string) error {
	u, err := Parse(s)
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
