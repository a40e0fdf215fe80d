package invitation

import (
	"bytes"
	"crypto/ecdh"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/faults"
)

// MaxFile bounds the file of an invitation in bytes.
const MaxFile = 32 << 10

// Limits of what stands in one.
const (
	maxOwner       = 100
	maxURL         = 2 << 10
	maxHPKE        = 4 << 10
	maxCertificate = 8 << 10
	maxAnswers     = 8
)

// domain opens the file and the hash of it.
const domain = "starling invitation v1"

// Errors of [Read].
var (
	// ErrVersion: the file is an invitation of another version.
	ErrVersion = errors.New("invitation: of another version")
	// ErrFormat: the file is no invitation, or not all of one.
	ErrFormat = errors.New("invitation: malformed")
	// ErrDamaged: the lines of the file do not give the sum at its end.
	ErrDamaged = errors.New("invitation: damaged")
)

// Roles that have invitations.
var Roles = []string{"leader", "helper", "collector", "relay", "gateway"}

// An ID is the hash of an invitation.
type ID [sha256.Size]byte

// Fingerprint is for people to read out: the first 16 bytes, in groups of four digits.
func (id ID) Fingerprint() string {
	var groups []string
	for i := 0; i < 16; i += 2 {
		groups = append(groups, hex.EncodeToString(id[i:i+2]))
	}
	return strings.Join(groups, "-")
}

// Is says whether a person read this fingerprint: spaces for dashes, and capitals, are as
// good.
func (id ID) Is(read string) bool {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(read)) == strings.ReplaceAll(id.Fingerprint(), "-", "")
}

// An Invitation is what a party tells whoever is to work with it.
type Invitation struct {
	// Role is one of [Roles].
	Role string
	// Owner is who runs the party, in words.
	Owner string
	// URL is the base URL of the party, with a slash at its end. A collector has none.
	URL string
	// Key is the public half of the party's long-term key.
	Key [32]byte
	// HPKE is the collector's HpkeConfig; others have none.
	HPKE []byte
	// Certificate is the party's own, DER, where nobody else vouches for it: who joins
	// trusts this one and no other for the URL. Optional.
	Certificate []byte
	// Answers are the invitations that this one was made in answer to.
	Answers []ID
}

// Validate says all that is wrong with the invitation, as a [faults.List] of [ErrFormat].
func (v *Invitation) Validate() error {
	var f faults.List
	bad := func(broken bool, format string, args ...any) {
		if broken {
			f.Add("", fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...)))
		}
	}
	collects := v.Role == "collector"
	bad(!slices.Contains(Roles, v.Role), "role %q is none of %v", v.Role, Roles)
	bad(v.Owner == "" || len(v.Owner) > maxOwner || !utf8.ValidString(v.Owner) || strings.TrimSpace(v.Owner) != v.Owner ||
		strings.ContainsFunc(v.Owner, func(r rune) bool {
			return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == '\u2028' || r == '\u2029'
		}), "owner: want 1 to %d bytes of text on one line", maxOwner)
	bad(collects != (v.URL == ""), "url: all have one but a collector")
	if v.URL != "" {
		err := checkURL(v.URL)
		bad(err != nil, "url: %v", err)
	}
	_, err := ecdh.X25519().NewPublicKey(v.Key[:])
	bad(err != nil || v.Key == [32]byte{}, "key: there is none, or it is not one of X25519")
	bad(collects != (len(v.HPKE) > 0), "hpke: a collector has one, and nobody else")
	if len(v.HPKE) > 0 {
		_, err := dap.ReadHpkeConfig(v.HPKE)
		bad(err != nil || len(v.HPKE) > maxHPKE, "hpke: not an HpkeConfig of at most %d bytes", maxHPKE)
	}
	bad(collects && len(v.Certificate) > 0, "certificate: a collector serves nobody")
	if len(v.Certificate) > 0 {
		_, err := x509.ParseCertificate(v.Certificate)
		bad(err != nil || len(v.Certificate) > maxCertificate, "certificate: not an X.509 certificate of at most %d bytes", maxCertificate)
	}
	bad(len(v.Answers) > maxAnswers, "answers: more than %d", maxAnswers)
	return f.All()
}

// checkURL wants a base URL as recipes name it.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || len(s) > maxURL || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("not a URL of printable ASCII")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q: the port is not a number from 1 to 65535", s)
		}
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		!strings.HasSuffix(u.Path, "/") {
		return fmt.Errorf("%q is not https://HOST/ with a slash at its end", s)
	}
	return nil
}

// body is the file without its last line.
func (v *Invitation) body() []byte {
	var b bytes.Buffer
	line := func(key, value string) { fmt.Fprintf(&b, "%s: %s\n", key, value) }
	b.WriteString(domain + "\n")
	line("role", v.Role)
	line("owner", v.Owner)
	if v.URL != "" {
		line("url", v.URL)
	}
	line("key", hex.EncodeToString(v.Key[:]))
	if len(v.HPKE) > 0 {
		line("hpke", hex.EncodeToString(v.HPKE))
	}
	if len(v.Certificate) > 0 {
		line("certificate", base64.StdEncoding.EncodeToString(v.Certificate))
	}
	for _, id := range v.Answers {
		line("answers", hex.EncodeToString(id[:]))
	}
	return b.Bytes()
}

// ID is the hash of the invitation: what its fingerprint is of.
func (v *Invitation) ID() ID { return sha256.Sum256(v.body()) }

// Append appends the file: lines of text, and the invitation's ID as the last.
func (v *Invitation) Append(dst []byte) ([]byte, error) {
	if err := v.Validate(); err != nil {
		return dst, err
	}
	body := v.body()
	id := sha256.Sum256(body)
	return fmt.Appendf(append(dst, body...), "sum: %x\n", id[:]), nil
}

// Is says whether a file is an invitation by its first bytes, of whatever version.
func Is(file []byte) bool {
	return bytes.HasPrefix(file, []byte(strings.TrimRight(domain, "0123456789")))
}

// Read reads the file of an invitation, all of it, and takes no second spelling of one.
// It fails with [ErrVersion], [ErrFormat] or [ErrDamaged], and where more than one thing
// is wrong with a [faults.List] of all.
func Read(file []byte) (*Invitation, error) {
	if len(file) > MaxFile {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrFormat, MaxFile)
	}
	if bytes.ContainsRune(file, '\r') {
		return nil, fmt.Errorf("%w: the ends of its lines were changed; send it as an attachment", ErrDamaged)
	}
	first, rest, _ := strings.Cut(string(file), "\n")
	if first != domain {
		if Is(file) {
			return nil, fmt.Errorf("%w: it begins %.40q, and this build reads %q", ErrVersion, first, domain)
		}
		return nil, fmt.Errorf("%w: it does not begin %q", ErrFormat, domain)
	}
	cut := strings.LastIndex(rest, "sum: ")
	if cut < 0 || len(rest)-cut != len("sum: ")+2*sha256.Size+1 || rest[len(rest)-1] != '\n' {
		return nil, fmt.Errorf("%w: its end is missing", ErrFormat)
	}
	v := new(Invitation)
	var f faults.List
	for line := range strings.Lines(rest[:cut]) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			f.If(true, "%w: line %.40q", ErrFormat, line)
			continue
		}
		f.Add("", v.set(key, value))
	}
	if f.Add("", v.Validate()); len(f) > 0 {
		return nil, f
	}
	again, err := v.Append(nil)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, file) {
		return nil, fmt.Errorf("%w: its lines do not give the sum at its end; what it came by may have changed it: send it as an attachment", ErrDamaged)
	}
	return v, nil
}

// set takes one line.
func (v *Invitation) set(key, value string) (err error) {
	switch key {
	case "role":
		v.Role = value
	case "owner":
		v.Owner = value
	case "url":
		v.URL = value
	case "key":
		var b []byte
		if b, err = hex.DecodeString(value); err == nil && len(b) == len(v.Key) {
			v.Key = [32]byte(b)
		}
	case "hpke":
		v.HPKE, err = hex.DecodeString(value)
	case "certificate":
		v.Certificate, err = base64.StdEncoding.DecodeString(value)
	case "answers":
		var b []byte
		if b, err = hex.DecodeString(value); err == nil && len(b) != sha256.Size {
			err = errors.New("length")
		}
		if err == nil {
			v.Answers = append(v.Answers, ID(b))
		}
	default:
		return fmt.Errorf("%w: line %.40q is not known", ErrFormat, key)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", ErrFormat, key)
	}
	return nil
}
