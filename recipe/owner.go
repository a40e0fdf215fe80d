package recipe

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/starling-agg/starling/dap"
)

// ownerOf returns what URLs of one owner have in common, as far as a name tells: the
// registrable domain of the host, by the public suffix list; the address, of an IP
// literal; and of loopback the port, as every party of a laboratory is there. It fails
// where a host could be spelled in ways that look like another: names are letters,
// digits, hyphens and underscores (others as punycode), and an address is written in
// full.
//
// Equal owners are one. Different ones may still be: nothing in a recipe can show that
// two domains belong to two parties.
func ownerOf(u *url.URL) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr = addr.Unmap().WithZone(""); !addr.IsLoopback() && !addr.IsUnspecified() {
			return addr.String(), nil
		}
		return onLoopback(u)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return onLoopback(u)
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", errors.New("is not a host name in ASCII")
		}
	}
	// Resolvers take 127.1, 0x7f000001 and 2130706433 for 127.0.0.1.
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return "", errors.New("ends in a number, and is no IP address in full")
	}
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host, nil // a public suffix itself, or one label in a private network
	}
	return domain, nil
}

func onLoopback(u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", errors.New("has a port that is none")
	}
	return "loopback port " + strconv.FormatUint(n, 10), nil
}

// owners refuses parties that must not be one and that have one owner by their names: of
// the servers that a report reaches and the relay any two, and relay and gateway. The
// gateway may stand beside a server.
func (v *validator) owners(r *Recipe) {
	if r.Path == nil {
		return
	}
	owner := func(s string) string {
		u, err := dap.BaseURL([]byte(s))
		if err != nil {
			return ""
		}
		name, _ := ownerOf(u) // v.url has said what is wrong with it
		return name
	}
	differ := func(field, url string, others []server, what string) {
		name := owner(url)
		for _, other := range others {
			if name != "" && name == owner(other.url) {
				v.add(field, "and the %s have one owner, %s: %s", other.name, name, what)
				return
			}
		}
	}
	list := r.Path.servers(r)
	for i, s := range list {
		differ(s.urlField, s.url, list[:i], "one server "+r.Path.danger())
	}
	if r.Relay != nil {
		differ("relay.url", r.Relay.URL, append(list, server{name: "gateway", url: r.Relay.Gateway}), "it would see who sent what")
	}
}
