package signed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Anchor is a root key that comes with the software.
type Anchor struct {
	// Name is the key's, 1 to 64 of a to z, 0 to 9, dot and hyphen.
	Name string
	// Domain is where the owner's servers are: their hosts are it or end in a dot and it.
	// A host name in lower case, or an address.
	Domain string
	Key    PublicKey
	// Owner is who has the secret half, as people know it; 1 to 128 printable bytes.
	Owner string
}

// Anchors are the root keys that a device knows, apart from what recipes and manifests
// say. They are immutable.
type Anchors struct {
	list  []Anchor
	byKey map[PublicKey]int
}

// ErrAnchors is what every *AnchorsError matches.
var ErrAnchors = errors.New("signed: bad anchors")

// An AnchorsError: a line of an anchors file is not what it must be.
type AnchorsError struct {
	Line int // from 1; 0: the file as a whole
	Err  error
}

func (e *AnchorsError) Error() string {
	return fmt.Sprintf("signed: anchors: line %d: %v", e.Line, e.Err)
}
func (e *AnchorsError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrAnchors].
func (e *AnchorsError) Is(target error) bool { return target == ErrAnchors }

// AnchorsHead is the first line of an anchors file and holds the version of its format.
const AnchorsHead = "starling anchors v1"

// Bounds of an anchors file.
const (
	MaxAnchorsFile = 256 << 10 // bytes
	MaxAnchors     = 1024
	maxAnchorName  = 64
	maxDomain      = 253
	maxOwner       = 128
)

// ReadAnchors reads an anchors file: the line "starling anchors v1", then one line for each anchor, empty lines and comments
// after #. A line has four fields with white space between them: name, domain, the key's 64 hexadecimal digits, and the
// owner, which may have more than one word. No name and no key stands twice. It fails with *[AnchorsError].
func ReadAnchors(file []byte) (*Anchors, error) {
	if len(file) > MaxAnchorsFile {
		return nil, &AnchorsError{0, fmt.Errorf("more than %d bytes", MaxAnchorsFile)}
	}
	a := &Anchors{byKey: make(map[PublicKey]int)}
	names := make(map[string]bool)
	lines := bufio.NewScanner(bytes.NewReader(file))
	n := 0
	for lines.Scan() {
		n++
		text := lines.Text()
		if n == 1 {
			if text != AnchorsHead {
				return nil, &AnchorsError{1, fmt.Errorf("want %q", AnchorsHead)}
			}
			continue
		}
		text, _, _ = strings.Cut(text, "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		anchor, err := readAnchor(text)
		switch {
		case err != nil:
		case names[anchor.Name]:
			err = fmt.Errorf("the name %s stands twice", anchor.Name)
		case a.has(anchor.Key):
			err = fmt.Errorf("the key of %s stands twice", anchor.Name)
		case len(a.list) == MaxAnchors:
			err = fmt.Errorf("more than %d anchors", MaxAnchors)
		}
		if err != nil {
			return nil, &AnchorsError{n, err}
		}
		names[anchor.Name], a.byKey[anchor.Key] = true, len(a.list)
		a.list = append(a.list, anchor)
	}
	if err := lines.Err(); err != nil {
		return nil, &AnchorsError{n + 1, err}
	}
	if n == 0 {
		return nil, &AnchorsError{1, fmt.Errorf("want %q", AnchorsHead)}
	}
	return a, nil
}

func readAnchor(line string) (Anchor, error) {
	var field [3]string
	rest := line
	for i := range field {
		rest = strings.TrimLeft(rest, " \t")
		field[i] = rest
		if at := strings.IndexAny(rest, " \t"); at >= 0 {
			field[i], rest = rest[:at], rest[at:]
		} else {
			rest = ""
		}
	}
	a := Anchor{Name: field[0], Domain: field[1], Owner: strings.Join(strings.Fields(rest), " ")}
	if a.Owner == "" {
		return a, errors.New("want name, domain, key and owner")
	}
	var err error
	if a.Key, err = ParsePublicKey(field[2]); err != nil {
		return a, err
	}
	return a, a.Validate()
}

// Validate says what is wrong with an anchor.
func (a Anchor) Validate() error {
	if len(a.Name) < 1 || len(a.Name) > maxAnchorName || strings.Trim(a.Name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return fmt.Errorf("name %q: want 1 to %d of a to z, 0 to 9, dot and hyphen", a.Name, maxAnchorName)
	}
	if !validDomain(a.Domain) {
		return fmt.Errorf("domain %q: want a host name in lower case, or an address", a.Domain)
	}
	if len(a.Owner) < 1 || len(a.Owner) > maxOwner || !utf8.ValidString(a.Owner) || strings.Join(strings.Fields(a.Owner), " ") != a.Owner ||
		strings.ContainsFunc(a.Owner, func(c rune) bool { return c == '#' || !unicode.IsPrint(c) }) {
		return fmt.Errorf("owner %q: want 1 to %d bytes that can be shown, without #", a.Owner, maxOwner)
	}
	return a.Key.Validate()
}

func validDomain(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	if len(s) < 1 || len(s) > maxDomain {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// String is the anchor's line in an anchors file.
func (a Anchor) String() string {
	return fmt.Sprintf("%s %s %s %s", a.Name, a.Domain, a.Key, a.Owner)
}

// Holds says whether a host, without a port, is in the anchor's domain.
func (a Anchor) Holds(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == a.Domain {
		return true
	}
	_, err := netip.ParseAddr(a.Domain)
	return err != nil && strings.HasSuffix(host, "."+a.Domain)
}

// SameOwner says whether two anchors name one owner, however it is written.
func (a Anchor) SameOwner(b Anchor) bool { return strings.EqualFold(a.Owner, b.Owner) }

func (a *Anchors) has(k PublicKey) bool {
	_, ok := a.byKey[k]
	return ok
}

// Find returns the anchor of a key. No anchors at all have none.
func (a *Anchors) Find(k PublicKey) (Anchor, bool) {
	if a == nil {
		return Anchor{}, false
	}
	i, ok := a.byKey[k]
	if !ok {
		return Anchor{}, false
	}
	return a.list[i], true
}

// List returns all anchors, in the order of the file.
func (a *Anchors) List() []Anchor { return append([]Anchor(nil), a.list...) }

// MarshalAnchors writes an anchors file.
func MarshalAnchors(list ...Anchor) []byte {
	b := []byte(AnchorsHead + "\n")
	for _, a := range list {
		b = append(append(b, a.String()...), '\n')
	}
	return b
}
