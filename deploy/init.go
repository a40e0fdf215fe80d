package deploy

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/sealed"
)

const (
	// InvitationSuffix stands behind a role in the name of an invitation.
	InvitationSuffix = ".invitation"
	// CertificatesFile holds the certificates of all parties that vouch for themselves,
	// PEM, for devices and people to try with.
	CertificatesFile = "certificates.pem"

	invitationsDir = "invitations"
	epochsDir      = "epochs" // of a gateway's keys and manifests
	// selfSigned is how long a certificate that a party makes for itself is valid.
	selfSigned = 365 * 24 * time.Hour
)

// InitOptions make a party in a directory, or join invitations to those that are there.
type InitOptions struct {
	// Dir is the directory of one owner; made where it is missing. Required.
	Dir string
	// Role to make; none where invitations alone are joined.
	Role Role
	// Owner is who runs the party, in words. Required with Role.
	Owner string
	// URL is where others reach the party, https unless it stays on this machine.
	// Required with Role but for a collector.
	URL string
	// Listen is the address of the public listener, and Local that of the operator's.
	// Default: the URL's port, of this machine alone where the URL is; and the port 1000
	// above it.
	Listen, Local string
	// Certificate and TLSKey are PEM files of the owner's own. Without them, and without
	// Proxied, which says that a proxy in front speaks TLS, the party makes a certificate
	// for itself, which stands in its invitation.
	Certificate, TLSKey string
	Proxied             bool
	// Recipe is the recipe's file, in Dir. Default RecipeFile.
	Recipe string
	// Number is a hop's, 1 or 2; required for it, and for no one else.
	Number int
	// Logs are the public keys of the logs that a witness follows.
	Logs []string
	// Join are files of invitations, and Fingerprints those that their owners have read
	// out.
	Join, Fingerprints []string
	// Now is the time at which a certificate begins.
	Now time.Time
}

// Errors of [Init].
var (
	// ErrExists: the directory has such a party already.
	ErrExists = errors.New("it is there already")
	// ErrFingerprint: nobody has read the fingerprint of an invitation, or it differs.
	ErrFingerprint = errors.New("the fingerprint")
	// ErrJoined: the invitation, or another of the role, was joined before.
	ErrJoined = errors.New("it was joined before")
	// ErrOwnInvitation: an invitation was given to who made it.
	ErrOwnInvitation = errors.New("it is your own: give it to the others, and join theirs")
	// ErrApart: two parties that no owner may have together.
	ErrApart = errors.New("not of one owner")
	// ErrStranger: nobody in the directory works with a party of that role, or the
	// invitation answers one that was not made there.
	ErrStranger = errors.New("it is not for you")
)

// An InvitationError says what is wrong with one that is to be joined.
type InvitationError struct {
	File string
	Err  error
}

func (e *InvitationError) Error() string { return fmt.Sprintf("%s: %v", e.File, e.Err) }
func (e *InvitationError) Unwrap() error { return e.Err }

// Made is what [Init] has done.
type Made struct {
	Config      string    `json:"config,omitempty"`
	Invitation  string    `json:"invitation,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Until       time.Time `json:"certificate_until,omitzero"` // of a certificate that it made
	// Public is what others have to know of one of [OuterRoles]: an attester's root key, the
	// key of a log, or both of a witness.
	Public []string `json:"public,omitempty"`
	// Anchor is the attester's line in an anchors file.
	Anchor  string   `json:"anchor,omitempty"`
	Joined  []Joined `json:"joined"`
	Missing []Role   `json:"missing"` // whose invitations are still to be joined
	Parties []Role   `json:"parties"` // all that the directory's owner runs from it
}

// Joined is an invitation that was taken.
type Joined struct {
	Role  Role   `json:"role"`
	Owner string `json:"owner"`
	URL   string `json:"url,omitempty"`
}

// ReadInvitation reads the file of an invitation.
func ReadInvitation(path string) (*invitation.Invitation, error) {
	v, err := readInvitation(path)
	if err != nil {
		return nil, &InvitationError{path, err}
	}
	return v, nil
}

func readInvitation(path string) (*invitation.Invitation, error) {
	b, err := readFile(path, invitation.MaxFile)
	if err != nil {
		return nil, err
	}
	return invitation.Read(b)
}

// Init makes a party: its keys, its configuration and its invitation; and joins the
// invitations of others. All is looked at before anything is written, and nothing that is
// there is written over.
func Init(o InitOptions) (*Made, error) {
	home, err := openHome(o.Dir)
	if err != nil {
		return nil, err
	}
	made := &Made{Joined: []Joined{}, Missing: []Role{}, Parties: []Role{}}
	w := &newFiles{dir: o.Dir, dirs: []newDir{{"", 0o755}, {secretsDir, 0o700}, {invitationsDir, 0o755}}}
	var joined []*invitation.Invitation
	for _, file := range o.Join {
		v, err := home.join(file, o)
		if err != nil {
			return nil, &InvitationError{file, err}
		}
		if err := w.invitation(v); err != nil {
			return nil, err
		}
		joined = append(joined, v)
		made.Joined = append(made.Joined, Joined{Role(v.Role), v.Owner, v.URL})
	}
	switch {
	case slices.Contains(OuterRoles, o.Role):
		w.dirs = slices.DeleteFunc(w.dirs, func(d newDir) bool { return d.name == invitationsDir })
		if err := home.outer(o, w, made); err != nil {
			return nil, err
		}
	case len(o.Logs) > 0:
		return nil, errors.New("logs: for a witness alone")
	case o.Role != "":
		if err := home.make(o, joined, w, made); err != nil {
			return nil, err
		}
	}
	if err := cmp.Or(home.apart(), home.outerApart(o.Role)); err != nil {
		return nil, err
	}
	w.replace(CertificatesFile, home.certificates())
	if err := w.write(); err != nil {
		return nil, err
	}
	for role := range home.own {
		made.Parties = append(made.Parties, role)
		for _, other := range works[role] {
			if home.known[other] == nil && !slices.Contains(made.Missing, other) {
				made.Missing = append(made.Missing, other)
			}
		}
	}
	slices.Sort(made.Missing)
	slices.Sort(made.Parties)
	return made, nil
}

// A home is the directory of one owner: the invitations that it holds, its own among
// them.
type home struct {
	dir   string
	known map[Role]*invitation.Invitation
	own   map[Role]bool
}

func openHome(dir string) (*home, error) {
	h := &home{dir, make(map[Role]*invitation.Invitation), make(map[Role]bool)}
	for _, role := range Roles {
		path := filepath.Join(dir, invitationsDir, string(role)+InvitationSuffix)
		v, err := readInvitation(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, &InvitationError{path, err}
		}
		h.known[role] = v
		if _, err := os.Stat(filepath.Join(dir, secretsDir, string(role)+".key")); err == nil {
			h.own[role] = true
		}
	}
	return h, nil
}

// join looks at an invitation and takes it.
func (h *home) join(file string, o InitOptions) (*invitation.Invitation, error) {
	v, err := readInvitation(file)
	if err != nil {
		return nil, err
	}
	role := Role(v.Role)
	for _, mine := range h.known {
		if mine.Key == v.Key && h.own[Role(mine.Role)] {
			return nil, ErrOwnInvitation
		}
	}
	mine := make([]Role, 0, len(Roles))
	for r := range h.own {
		mine = append(mine, r)
	}
	if o.Role != "" {
		mine = append(mine, o.Role)
	}
	if !slices.ContainsFunc(mine, func(r Role) bool { return slices.Contains(works[r], role) }) {
		return nil, fmt.Errorf("%w: nobody in %s works with a %s", ErrStranger, h.dir, role)
	}
	if old := h.known[role]; old != nil {
		if old.ID() == v.ID() {
			return nil, ErrJoined
		}
		return nil, fmt.Errorf("%w: the %s here is that of %s, %s", ErrJoined, role, old.Owner, old.ID().Fingerprint())
	}
	if len(v.Answers) > 0 && len(h.own) > 0 && !slices.ContainsFunc(v.Answers, func(id invitation.ID) bool {
		return slices.ContainsFunc(mine, func(r Role) bool { return h.own[r] && h.known[r].ID() == id })
	}) {
		return nil, fmt.Errorf("%w: it answers the invitation of somebody else", ErrStranger)
	}
	if !slices.ContainsFunc(o.Fingerprints, v.ID().Is) {
		if len(o.Fingerprints) == 0 {
			return nil, fmt.Errorf("%w is needed, as %s, its owner, reads it out to you", ErrFingerprint, v.Owner)
		}
		if len(o.Fingerprints) < len(o.Join) {
			return nil, fmt.Errorf("%w differs, or is not given: %d for %d invitations, and none is that of this file", ErrFingerprint, len(o.Fingerprints), len(o.Join))
		}
		return nil, fmt.Errorf("%w differs: it was misheard, or this file is not the one that its owner made", ErrFingerprint)
	}
	h.known[role] = v
	return v, nil
}

// apart refuses two parties at one place, and two of one owner that together would know
// what neither may.
func (h *home) apart() error {
	if h.own[RelayRole] && len(h.own) > 1 {
		return fmt.Errorf("%w: in %s a relay, which sees who sends, would be beside parties that see what is sent", ErrApart, h.dir)
	}
	if h.own[LeaderRole] && h.own[HelperRole] {
		return fmt.Errorf("%w: in %s leader and helper would hold both shares of every answer", ErrApart, h.dir)
	}
	l, p := h.known[LeaderRole], h.known[HelperRole]
	if l != nil && p != nil && l.URL == p.URL {
		return fmt.Errorf("url: leader and helper are both %s: one server would see whole reports", l.URL)
	}
	return nil
}

// make adds a party of the directory's own.
func (h *home) make(o InitOptions, joined []*invitation.Invitation, w *newFiles, made *Made) error {
	if !slices.Contains(Roles, o.Role) {
		return fmt.Errorf("role: %q is none of %v", o.Role, Roles)
	}
	if h.known[o.Role] != nil {
		return fmt.Errorf("%w: the %s of %s, in %s", ErrExists, o.Role, h.known[o.Role].Owner, h.dir)
	}
	key, err := invitation.NewKey()
	if err != nil {
		return err
	}
	v := &invitation.Invitation{Role: string(o.Role), Owner: o.Owner, Key: key.Public()}
	for _, other := range joined {
		v.Answers = append(v.Answers, other.ID())
	}
	f := settings{Role: o.Role, Owner: o.Owner, Recipe: cmp.Or(o.Recipe, RecipeFile), MaxAge: "24h", Agreed: true}
	w.secret(string(o.Role)+".key", key.Marshal())
	if o.Role == CollectorRole {
		if v.HPKE, err = w.collector(nil); err != nil {
			return err
		}
	} else if err := listen(o, v, &f, w, made); err != nil {
		return err
	}
	if err := w.invitation(v); err != nil {
		return err
	}
	if o.Role == GatewayRole {
		w.dirs = append(w.dirs, newDir{epochsDir, 0o700})
	}
	config, err := w.config(f)
	if err != nil {
		return err
	}
	h.known[o.Role], h.own[o.Role] = v, true
	made.Config, made.Fingerprint = filepath.Join(o.Dir, config), v.ID().Fingerprint()
	made.Invitation = filepath.Join(o.Dir, invitationsDir, string(o.Role)+InvitationSuffix)
	return nil
}

// listen settles where a party is reached, and by which certificate.
func listen(o InitOptions, v *invitation.Invitation, f *settings, w *newFiles, made *Made) error {
	if o.URL == "" {
		return errors.New("url: required: where others reach the " + string(o.Role) + ", such as https://" + string(o.Role) + ".example/")
	}
	if err := endpoint.CheckPeer(o.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if u.Path == "" {
		u.Path = "/"
	}
	v.URL = u.String()
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]))
	if err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("url: no port is %q", u.Port())
	}
	here := service.Address(net.JoinHostPort(u.Hostname(), "1")).StaysHere()
	host := ""
	if here {
		host = "127.0.0.1"
	}
	f.Listen = cmp.Or(o.Listen, net.JoinHostPort(host, strconv.Itoa(port)))
	f.Local = cmp.Or(o.Local, net.JoinHostPort("127.0.0.1", strconv.Itoa(port%64536+1000)))
	f.Proxied = o.Proxied
	for _, a := range []struct{ what, address string }{{"listen", f.Listen}, {"local", f.Local}} {
		if err := service.Address(a.address).Validate(); err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	switch {
	case (o.Certificate == "") != (o.TLSKey == ""):
		return errors.New("a certificate goes together with its key")
	case o.Certificate != "" && (o.Proxied || u.Scheme == "http"):
		return errors.New("a certificate is for a party that speaks TLS itself")
	case o.Certificate != "":
		if f.Certificate, err = filepath.Abs(o.Certificate); err == nil {
			f.TLSKey, err = filepath.Abs(o.TLSKey)
		}
		return err
	case u.Scheme == "https" && !o.Proxied:
		f.Certificate, f.TLSKey = string(o.Role)+".certificate.pem", secretsDir+"/"+string(o.Role)+".tls"
		made.Until = o.Now.Add(selfSigned).UTC().Truncate(time.Second)
		v.Certificate, err = w.certificate(u.Hostname(), f.Certificate, f.TLSKey, o.Now, made.Until)
		return err
	}
	return nil
}

// certificates are those of all who vouch for themselves, PEM.
func (h *home) certificates() []byte {
	var all bytes.Buffer
	for _, role := range Roles {
		if v := h.known[role]; v != nil && len(v.Certificate) > 0 {
			pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: v.Certificate})
		}
	}
	return all.Bytes()
}

// newFiles are files that are to be written all, or not at all.
type newFiles struct {
	dir      string
	dirs     []newDir // may be there already
	files    []newFile
	replaced []newFile // may be there already
}

type newDir struct {
	name string
	mode fs.FileMode
}

type newFile struct {
	name string
	mode fs.FileMode
	text []byte
}

func (w *newFiles) add(name string, mode fs.FileMode, text []byte) {
	w.files = append(w.files, newFile{name, mode, text})
}

// replace adds a public file that takes the place of one that is there. Empty is none.
func (w *newFiles) replace(name string, text []byte) {
	if len(text) > 0 {
		w.replaced = append(w.replaced, newFile{name, 0o644, text})
	}
}

func (w *newFiles) invitation(v *invitation.Invitation) error {
	text, err := v.Append(nil)
	w.add(filepath.Join(invitationsDir, v.Role+InvitationSuffix), 0o644, text)
	return err
}

// collector adds an HPKE key, a new one for nil, and returns its public half.
func (w *newFiles) collector(pair *sealed.KeyPair) (public []byte, err error) {
	if pair == nil {
		if pair, err = sealed.Generate(1, sealed.SuiteX25519); err != nil {
			return nil, err
		}
	}
	secret, err := pair.Marshal()
	if err != nil {
		return nil, err
	}
	if public, err = dap.NewHpkeConfig(pair).Append(nil); err != nil {
		return nil, err
	}
	w.secret("collector.hpke", secret)
	w.add("collector.hpke", 0o644, public) // for recipes that bind it
	return public, nil
}

// certificate adds a new key and its certificate, which nobody else has signed.
func (w *newFiles) certificate(host, certFile, keyFile string, from, until time.Time) (der []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: host}, NotBefore: from.Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	if der, err = x509.CreateCertificate(rand.Reader, c, c, key.Public(), key); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	w.add(certFile, 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	w.add(keyFile, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return der, nil
}

// write writes all files, of which none may be there but those that are replaced. After an
// error everything is as it was.
func (w *newFiles) write() (err error) {
	for _, f := range w.files {
		if _, err := os.Lstat(filepath.Join(w.dir, f.name)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("%s: %w", filepath.Join(w.dir, f.name), ErrExists), err)
		}
	}
	var made []string
	defer func() {
		if err != nil {
			for _, path := range slices.Backward(made) {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for _, dir := range w.dirs {
		if err := makeDir(filepath.Join(w.dir, dir.name), dir.mode, &made); err != nil {
			return fmt.Errorf("%w: %w", ErrDirectory, err)
		}
	}
	for _, f := range w.files {
		if err := createFile(filepath.Join(w.dir, f.name), f, &made); err != nil {
			return err
		}
	}
	// A replacement lies whole beside its place first, and takes it last.
	const beside = ".new"
	for _, f := range w.replaced {
		path := filepath.Join(w.dir, f.name)
		if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file", path)
		}
		if err := os.Remove(path + beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := createFile(path+beside, f, &made); err != nil {
			return err
		}
	}
	for _, f := range w.replaced {
		path := filepath.Join(w.dir, f.name)
		if err := os.Rename(path+beside, path); err != nil {
			return err
		}
		made = slices.DeleteFunc(made, func(m string) bool { return m == path+beside })
	}
	return nil
}

// makeDir makes a directory and those above it, and notes which were not there.
func makeDir(path string, mode fs.FileMode, made *[]string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("%s is no directory", path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if above := filepath.Dir(path); above != path {
		if err := makeDir(above, 0o755, made); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	*made = append(*made, path)
	return nil
}

// createFile writes a file that is not there, durably, and notes it.
func createFile(path string, f newFile, made *[]string) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.mode)
	if err != nil {
		return err
	}
	*made = append(*made, path)
	_, err = out.Write(f.text)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
