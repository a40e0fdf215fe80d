package door

import (
	"errors"
	"fmt"
	"net/url"
)

// maxURL bounds URLs in configurations and manifests, in bytes.
const maxURL = 2 << 10

// ParseURL parses an absolute http or https URL with a host and neither user, query nor fragment.
func ParseURL(s string) (*url.URL, error) {
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
