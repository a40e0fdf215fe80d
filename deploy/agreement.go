package deploy

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/service"
)

// An Agreement is where a party takes from what it shares with others, in place of files
// of tokens and keys: its own long-term key, and the invitations of those it works with.
type Agreement struct {
	// Key is the party's long-term key, as starling init makes it. Required together with
	// Invitations.
	Key service.Secret `toml:"key"`
	// Invitations is the directory of the invitations that were joined, each
	// ROLE.invitation; starling init --join puts them there.
	Invitations service.Path `toml:"invitations"`
}

// NotJoinedError: the invitation of a party that is worked with is not there yet.
type NotJoinedError struct {
	Role Role   // whose it is
	Dir  string // of the configuration
}

func (e *NotJoinedError) Error() string {
	return fmt.Sprintf("agreement: there is no invitation of the %s yet", e.Role)
}

// works says with whom a role works, and so whose invitations it needs.
var works = map[Role][]Role{
	LeaderRole: {HelperRole, CollectorRole}, HelperRole: {LeaderRole, CollectorRole}, CollectorRole: {LeaderRole},
	RelayRole: {GatewayRole}, GatewayRole: {RelayRole, LeaderRole},
}

// used says whether there is an agreement.
func (a Agreement) used() bool { return a != Agreement{} }

func (a Agreement) validate() error {
	if a.used() && (a.Key == "" || a.Invitations == "") {
		return errors.New("agreement: key goes together with invitations")
	}
	return nil
}

// invited reads the invitation of a role.
func (a Agreement) invited(role Role) (*invitation.Invitation, error) {
	v, err := readInvitation(filepath.Join(string(a.Invitations), string(role)+InvitationSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotJoinedError{role, filepath.Dir(string(a.Invitations))}
	}
	if err == nil && v.Role != string(role) {
		err = fmt.Errorf("it is the %s's", v.Role)
	}
	if err != nil {
		return nil, fmt.Errorf("agreement: the %s's invitation: %w", role, err)
	}
	return v, nil
}

// key reads the party's own key.
func (a Agreement) key() (*invitation.Key, error) {
	b, err := a.Key.Read()
	if err != nil {
		return nil, fmt.Errorf("agreement.key: %w", err)
	}
	k, err := invitation.ParseKey(b)
	if err != nil {
		return nil, fmt.Errorf("agreement.key: %s: %w", a.Key, err)
	}
	return k, nil
}

// with is what a party of a role shares with another.
func (a Agreement) with(mine, other Role) (*invitation.Secret, *invitation.Invitation, error) {
	k, err := a.key()
	if err != nil {
		return nil, nil, err
	}
	v, err := a.invited(other)
	if err != nil {
		return nil, nil, err
	}
	s, err := k.Agree(string(mine), v)
	if err != nil {
		return nil, nil, fmt.Errorf("agreement: with the %s: %w", other, err)
	}
	return s, v, nil
}

// trusts are whom a party trusts to be another: its own certificate where the invitation
// has one; nil where the machine's authorities vouch for it.
func trusts(v *invitation.Invitation) (*x509.CertPool, error) {
	if v == nil || len(v.Certificate) == 0 {
		return nil, nil
	}
	c, err := x509.ParseCertificate(v.Certificate)
	if err != nil {
		return nil, fmt.Errorf("agreement: the %s's certificate: %w", v.Role, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return pool, nil
}

// Client asks parties, to see whether they answer: beside those for whom the machine's
// authorities vouch it trusts all whose invitations were joined, the party's own too.
func (a Agreement) Client(timeout time.Duration) (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	client := &http.Client{Timeout: timeout, Transport: t}
	if !a.used() {
		return client, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a machine without authorities
	}
	for _, role := range Roles {
		v, err := a.invited(role)
		if errors.As(err, new(*NotJoinedError)) || err == nil && len(v.Certificate) == 0 {
			continue
		} else if err != nil {
			return nil, err
		}
		c, err := x509.ParseCertificate(v.Certificate)
		if err != nil {
			return nil, fmt.Errorf("agreement: the %s's certificate: %w", role, err)
		}
		pool.AddCert(c)
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool}
	return client, nil
}

// onward carries requests to a party that has a certificate of its own; nil where the
// machine's authorities vouch for it. It adds nothing to a request.
func onward(v *invitation.Invitation) (http.RoundTripper, error) {
	pool, err := trusts(v)
	if err != nil || pool == nil {
		return nil, err
	}
	return &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool},
	}, nil
}

// shared is what an aggregator has of its agreement.
type shared struct {
	// with the other aggregator; at the leader, with the collector
	peer, results   *invitation.Secret
	other           *invitation.Invitation
	collectorConfig []byte
}

// agreed is nil where there is no agreement. parties are those of a task, by their roles,
// whose invitations are not the agreement's.
func (a *Aggregator) agreed(parties map[Role]*invitation.Invitation) (*shared, error) {
	if !a.Agreement.used() {
		return nil, nil
	}
	mine, peer := Role(a.Role.String()), HelperRole
	if a.Role == dap.RoleHelper {
		peer = LeaderRole
	}
	key, err := a.Agreement.key()
	if err != nil {
		return nil, err
	}
	s := new(shared)
	var f Faults
	with := func(role Role, secret **invitation.Secret) *invitation.Invitation {
		v, err := parties[role], error(nil)
		if v == nil {
			v, err = a.Agreement.invited(role)
		}
		if err == nil && secret != nil {
			if *secret, err = key.Agree(string(mine), v); err != nil {
				err = fmt.Errorf("agreement: with the %s: %w", role, err)
			}
		}
		f.Add("", err)
		return v
	}
	s.other = with(peer, &s.peer)
	results := &s.results
	if a.Role != dap.RoleLeader {
		results = nil
	}
	collector := with(CollectorRole, results)
	if err := f.All(); err != nil {
		return nil, err
	}
	s.collectorConfig = collector.HPKE
	return s, nil
}

// parties reads the invitations of the parties of one task, by their roles: what is each
// one's is for whoever reads them to say.
func (a *Aggregator) parties(list []Invited) (map[Role]*invitation.Invitation, error) {
	if len(list) > 0 && !a.Agreement.used() {
		return nil, errors.New("invitation: there is no [agreement], of whose key anything could follow")
	}
	all := make(map[Role]*invitation.Invitation)
	for _, in := range list {
		v, err := readInvitation(in.File)
		if err != nil {
			return nil, &InvitationError{in.File, err}
		}
		role := Role(v.Role)
		if !slices.Contains(works[Role(a.Role.String())], role) {
			return nil, &InvitationError{in.File, fmt.Errorf("it is a %s's, and a %s's task has none", role, a.Role)}
		}
		if all[role] != nil {
			return nil, &InvitationError{in.File, fmt.Errorf("it is the second of a %s", role)}
		}
		if err := a.reaches(v); err != nil {
			return nil, &InvitationError{in.File, err}
		}
		all[role] = v
	}
	return all, nil
}

// reaches says why a leader could not come to the party: it trusts the certificate of the
// helper that it has joined, if that is the helper's own, and no other.
func (a *Aggregator) reaches(v *invitation.Invitation) error {
	if a.Role != dap.RoleLeader || Role(v.Role) != HelperRole {
		return nil
	}
	joined, err := a.Agreement.invited(HelperRole)
	if err == nil && !bytes.Equal(joined.Certificate, v.Certificate) {
		err = errors.New("its certificate is not that of the helper that this leader has joined: with one that an authority vouches for, at both, it can have more than one helper")
	}
	return err
}

// read compares the invitations of a task with the fingerprints that their owners have read
// out.
func (t *Task) read(a *Aggregator, fingerprints []string) error {
	all, err := a.parties(t.Invitations)
	if err != nil {
		return err
	}
	for i := range t.Invitations {
		in := &t.Invitations[i]
		v, err := readInvitation(in.File)
		if err != nil {
			return &InvitationError{in.File, err}
		}
		if in.id = v.ID(); all[Role(v.Role)].ID() != in.id || !slices.ContainsFunc(fingerprints, in.id.Is) {
			return &InvitationError{in.File, fmt.Errorf("%w is not given, or differs: %s, its owner, reads it out to you", ErrFingerprint, v.Owner)}
		}
	}
	return nil
}

// invitedBy reads the invitations of terms: each has to be the one whose fingerprint was
// compared.
func (a *Aggregator) invitedBy(list []invited) (map[Role]*invitation.Invitation, error) {
	in := make([]Invited, len(list))
	for i, w := range list {
		in[i].File = a.named(w.File)
	}
	all, err := a.parties(in)
	if err != nil {
		return nil, err
	}
	for role, v := range all {
		id := v.ID()
		if !slices.ContainsFunc(list, func(w invited) bool { return w.ID == hex.EncodeToString(id[:]) }) {
			return nil, fmt.Errorf("the invitation of the %s is another than the one that the task was added with: its fingerprint is %s now", role, id.Fingerprint())
		}
	}
	return all, nil
}

// verifyKeyID is what both aggregators call the verification key that follows of their
// agreement.
const verifyKeyID = 1

// fill gives a task what the configuration has no file of.
func (s *shared) fill(t *Task, out *aggregator.Task, role dap.Role) error {
	if s == nil {
		return nil
	}
	config, err := dap.ReadTaskConfiguration(out.Version, out.Config)
	if err != nil {
		return err
	}
	peer := string(config.Helper)
	if role == dap.RoleHelper {
		peer = string(config.Leader)
	}
	if peer != s.other.URL {
		return fmt.Errorf("the task's %s is %q, and the invitation is that of %q", s.other.Role, peer, s.other.URL)
	}
	if len(out.VerifyKeys) == 0 {
		key, err := s.peer.VerifyKey(out.ID)
		if err != nil {
			return err
		}
		out.VerifyKeys[verifyKeyID] = key
	}
	if t.PeerToken == "" {
		if out.PeerToken, err = s.peer.Token(out.ID); err != nil {
			return err
		}
	}
	if t.CollectorToken == "" && role == dap.RoleLeader {
		if out.CollectorToken, err = s.results.Token(out.ID); err != nil {
			return err
		}
	}
	return nil
}
