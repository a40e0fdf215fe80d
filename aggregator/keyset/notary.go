package keyset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/signed"
)

// Signing is how an aggregator vouches for its keys.
type Signing struct {
	// Signer signs; its root is the one that recipes name. Required.
	Signer *signed.Signer
	// Role is signed.Leader or signed.Helper. Required.
	Role signed.Role
	// Deployments are those that the aggregator is a part of; others may join. Optional.
	Deployments []Deployment
	// Token is the bearer token of who makes manifests. Optional; without it the service
	// signs none.
	Token string
	// Revisions is how many manifests beside the first it signs in one epoch, for
	// emergencies. Default 0.
	Revisions uint16
	// Record remembers which manifests were signed, where replicas share it; default a file of
	// one process.
	Record signed.Place
	// Issuer says which key the issuer of credentials beside the aggregator has in an epoch
	// of a deployment, false where it has none. Required for manifests that name issuers.
	Issuer func(deployment [32]byte, epoch uint32) (key [ohttp.IssuerKeySize]byte, ok bool)
	// Held is the longest time for which a gateway may hold an upload that it has taken,
	// which a manifest states ([ohttp.Manifest].Hold): keys take uploads for as long after
	// a manifest's last try. Default defaultHeld.
	Held time.Duration
}

// defaultHeld is the default of Signing.Held.
const defaultHeld = ohttp.DefaultHold

// A Deployment is what an aggregator knows of one from its recipes.
type Deployment struct {
	ID             [32]byte
	Epoch          time.Duration
	Leader, Helper string // base URLs, as recipes have them
	Relay          string // the relay's URL; empty: devices come directly, and there is no manifest
	Roots          ohttp.Roots
	Recipes        []Recipe
}

// A Recipe is what there is to know of one in a deployment.
type Recipe struct {
	ID [32]byte
	// MaxSending is for how long its devices may go on trying
	// ([recipe.Recipe.MaxSending]).
	MaxSending time.Duration
	// Attester is the root key of who vouches for its devices; zero where nobody counts them.
	Attester signed.PublicKey
	// Admission says that its devices show the gateway tokens.
	Admission bool
}

// PromiseFor is the Schedule.Promise that signing for such deployments needs: lists of
// this epoch and of the next, the tries of their devices, and what a gateway may hold.
func (s *Signing) PromiseFor(overlap time.Duration) time.Duration {
	longest := time.Duration(0)
	for _, d := range s.Deployments {
		longest = max(longest, d.Epoch)
	}
	return 3*longest + overlap + s.held()
}

// Fits says with [ErrRoot] that a deployment's recipes name another root key than that of
// the signer.
func (s *Signing) Fits(d *Deployment) error {
	root := d.Roots.Leader
	if s.Role == signed.Helper {
		root = d.Roots.Helper
	}
	if root != s.Signer.Root() {
		return fmt.Errorf("%w: that of the signing key is %s, and a recipe names %s", ErrRoot, s.Signer.Root(), root)
	}
	return nil
}

// ErrRoot: a recipe names another root key than the one that vouches for the signing key.
var ErrRoot = errors.New("keyset: another root key")

func (s *Signing) held() time.Duration {
	if s.Held == 0 {
		return defaultHeld
	}
	return s.Held
}

// Errors of a notary, to branch on with errors.Is. Others are those of packages signed
// and ohttp, and of the disk.
var (
	// ErrDeployment: the aggregator is no part of it.
	ErrDeployment = errors.New("keyset: no such deployment here")
	// ErrRefused: it signs no such thing.
	ErrRefused = errors.New("keyset: not signed")
)

// recordName is the file, beside the directory of keys, that remembers which manifests
// were signed.
const recordName = "signed"

// A Notary signs what one aggregator says of its keys: lists for devices that come
// directly, lists for manifests, and manifests, one an epoch, that hold nothing of it but
// what it is. Safe for concurrent use.
type Notary struct {
	o      Signing // but for its deployments, which mu guards
	set    *Set
	record *signed.Record

	mu     sync.Mutex
	recent map[[32]byte]recentList // by deployment
}

// recentList is what devices got last, so that strangers cannot have the key work without
// end.
type recentList struct {
	minute time.Time
	body   []byte // the HpkeConfigList
	list   []byte // signed
	until  time.Time
}

// NewNotary has a set's owner sign for it. The record lies in fsys, if it is not shared.
func NewNotary(s *Set, o Signing, fsys disk.FS) (*Notary, error) {
	switch {
	case o.Signer == nil:
		return nil, errors.New("keyset: signing needs a key")
	case o.Role != signed.Leader && o.Role != signed.Helper:
		return nil, fmt.Errorf("keyset: internal error: a %v has no HPKE keys", o.Role)
	case o.Held < 0:
		return nil, errors.New("keyset: Held is negative")
	}
	for i := range o.Deployments {
		if err := o.Fits(&o.Deployments[i]); err != nil {
			return nil, err
		}
	}
	if !s.fixed && s.opt.Promise < o.PromiseFor(s.opt.Overlap) {
		return nil, errors.New("keyset: the schedule's Promise is too short for what is signed")
	}
	if list, _ := s.List(); len(list) > 0 {
		if _, err := onePerKEM(list); err != nil {
			return nil, err
		}
	}
	open := func() (*signed.Record, error) { return signed.OpenRecord(fsys, recordName) }
	if o.Record != nil {
		open = func() (*signed.Record, error) { return signed.SharedRecord(o.Record) }
	}
	record, err := open()
	if err != nil {
		return nil, fmt.Errorf("keyset: %w", err)
	}
	return &Notary{o: o, set: s, record: record, recent: make(map[[32]byte]recentList)}, nil
}

// Token is that of who makes manifests, or empty.
func (n *Notary) Token() string { return n.o.Token }

// Fits is [Signing.Fits].
func (n *Notary) Fits(d *Deployment) error { return n.o.Fits(d) }

// PromiseFor is [Signing.PromiseFor] of a deployment that is to join.
func (n *Notary) PromiseFor(d *Deployment) time.Duration {
	alone := n.o
	alone.Deployments = []Deployment{*d}
	return alone.PromiseFor(n.set.opt.Overlap)
}

// Join adds a deployment, or its recipes to one that is there. It must fit, and the set
// cover [Notary.PromiseFor] of it.
func (n *Notary) Join(d *Deployment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.o.Deployments = Joined(n.o.Deployments, d)
}

// Joined is a list with a deployment, or its recipes, beside those that it has.
func Joined(list []Deployment, d *Deployment) []Deployment {
	list = slices.Clone(list) // readers have the old one
	i := slices.IndexFunc(list, func(x Deployment) bool { return x.ID == d.ID })
	if i < 0 {
		return append(list, *d)
	}
	known := slices.Clone(list[i].Recipes)
	for _, r := range d.Recipes {
		if !slices.Contains(known, r) {
			known = append(known, r)
		}
	}
	list[i].Recipes = known
	return list
}

func (n *Notary) deployment(id [32]byte) (*Deployment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.o.Deployments, func(d Deployment) bool { return d.ID == id })
	if i < 0 {
		return nil, ErrDeployment
	}
	return &n.o.Deployments[i], nil
}

func (n *Notary) base(d *Deployment) string {
	if n.o.Role == signed.Helper {
		return d.Helper
	}
	return d.Leader
}

// backdated is how long before now a list begins to hold, for devices whose clock is
// slow; a quarter of a short epoch.
const backdated = 10 * time.Minute

// List is the list that is offered now, signed for a deployment, and how long it may be
// used: no longer than it is promised to any client.
func (n *Notary) List(deployment [32]byte) (list []byte, maxAge time.Duration, err error) {
	d, err := n.deployment(deployment)
	if err != nil {
		return nil, 0, err
	}
	body, fresh := n.set.List()
	now := n.set.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.recent[deployment]
	if minute := now.Truncate(time.Minute); !last.minute.Equal(minute) || !bytes.Equal(last.body, body) {
		l := signed.List{Deployment: d.ID, Role: n.o.Role, URL: n.base(d), Body: body, NotBefore: minute.Add(-min(backdated, (d.Epoch / 4).Truncate(time.Second)))}
		l.NotAfter = minute.Add(fresh).Truncate(time.Second)
		for _, most := range []time.Time{l.NotBefore.Add(d.Epoch), n.o.Signer.Until()} {
			if l.NotAfter.After(most) {
				l.NotAfter = most
			}
		}
		if begin := n.o.Signer.From(); l.NotBefore.Before(begin) {
			l.NotBefore = begin
		}
		l.Epoch = ohttp.EpochAt(l.NotBefore, d.Epoch)
		if last.list, err = l.Sign(n.o.Signer); err != nil {
			return nil, 0, err
		}
		last.minute, last.body, last.until = minute, body, l.NotAfter
		n.recent[deployment] = last
	}
	return last.list, max(0, last.until.Sub(now)), nil
}

// ListFor is the list that is offered now, signed for the time of a manifest. Its keys
// take uploads until that has ended, and those under way have come.
func (n *Notary) ListFor(ctx context.Context, deployment [32]byte, from, until time.Time) ([]byte, error) {
	d, err := n.deployment(deployment)
	if err != nil {
		return nil, err
	}
	now := n.set.now()
	switch {
	case !until.After(from) || until.Sub(from) > d.Epoch:
		return nil, fmt.Errorf("%w: a list from %s until %s, and an epoch is %v", ErrRefused, from.Format(time.RFC3339), until.Format(time.RFC3339), d.Epoch)
	case from.After(now.Add(d.Epoch)) || !until.After(now):
		return nil, fmt.Errorf("%w: neither of this epoch nor of the next", ErrRefused)
	}
	body, _ := n.set.List()
	if err := n.set.promise(ctx, body, until.Add(n.set.opt.Overlap+n.o.held())); err != nil {
		return nil, err
	}
	l := signed.List{Deployment: d.ID, Role: n.o.Role, URL: n.base(d), Epoch: ohttp.EpochAt(from, d.Epoch), NotBefore: from, NotAfter: until, Body: body}
	return l.Sign(n.o.Signer)
}

// Cosign signs a manifest in the aggregator's role, if it says of the deployment what its
// recipes do, holds the aggregator's own list and its peer's, and is the first of its
// epoch. A caller who asks again gets the same manifest signed again, and no other.
func (n *Notary) Cosign(ctx context.Context, m *ohttp.Manifest) (ohttp.Cosignature, error) {
	if err := n.acceptable(ctx, m); err != nil {
		return ohttp.Cosignature{}, err
	}
	digest, err := m.Digest()
	if err != nil {
		return ohttp.Cosignature{}, err
	}
	err = n.record.Say(signed.Statement{Deployment: m.Deployment, Epoch: m.Epoch, Revision: m.Revision,
		NotBefore: m.NotBefore, NotAfter: m.NotAfter, Digest: digest})
	if err != nil {
		return ohttp.Cosignature{}, err
	}
	signing := *m
	if err := signing.Sign(n.o.Role, n.o.Signer); err != nil {
		return ohttp.Cosignature{}, err
	}
	i := slices.IndexFunc(signing.Signatures, func(c ohttp.Cosignature) bool { return c.Role == n.o.Role })
	return signing.Signatures[i], nil
}

func (n *Notary) acceptable(ctx context.Context, m *ohttp.Manifest) error {
	d, err := n.deployment(m.Deployment)
	if err != nil {
		return err
	}
	leader, helper, err := d.Check(m, n.set.now())
	if err != nil {
		return err
	}
	if m.Hold > n.o.held() {
		return fmt.Errorf("%w: the gateway holds uploads for %v, and this aggregator's keys take them for %v after the last try: held in [signing], or a shorter hold",
			ErrRefused, m.Hold, n.o.held())
	}
	if m.Revision > n.o.Revisions {
		return fmt.Errorf("%w: revision %d, and %d are allowed here", ErrRefused, m.Revision, n.o.Revisions)
	}
	if err := n.issuer(m); err != nil {
		return err
	}
	ours := leader
	if n.o.Role == signed.Helper {
		ours = helper
	}
	return n.set.promise(ctx, ours.Body, m.NotAfter.Add(m.Sending()+n.set.opt.Overlap+m.Hold))
}

// issuer says whether the key that a manifest gives the issuer beside this aggregator is its
// own: under another one devices would take credentials that nobody here verifies.
func (n *Notary) issuer(m *ohttp.Manifest) error {
	if m.Issuers == nil {
		return nil
	}
	var own [ohttp.IssuerKeySize]byte
	ok := false
	if n.o.Issuer != nil {
		own, ok = n.o.Issuer(m.Deployment, m.Epoch)
	}
	named := m.Issuers.Leader
	if n.o.Role == signed.Helper {
		named = m.Issuers.Helper
	}
	if !ok || own != named {
		return fmt.Errorf("%w: the issuer's key that it names is not the one of epoch %d here", ErrRefused, m.Epoch)
	}
	return nil
}

// Check says whether a manifest says of the deployment what its recipes do, is of this
// epoch or of the next, and holds the signed lists of leader and helper, which it
// returns. It looks at no signature of the manifest. It fails with [ohttp.ErrManifest],
// [ErrDeployment], [ErrRefused], beside that *[ohttp.SendingError] as
// [Deployment.CheckSending], and as [ohttp.Manifest.KeyList].
func (d *Deployment) Check(m *ohttp.Manifest, now time.Time) (leader, helper *signed.List, err error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
	}
	if err := m.Validate(); err != nil {
		return nil, nil, err
	}
	switch {
	case m.Deployment != d.ID:
		err = ErrDeployment
	case d.Relay == "" || m.Relay != d.Relay:
		err = refuse("its relay is %q, and the recipes' %q", m.Relay, d.Relay)
	case m.Length != d.Epoch:
		err = refuse("its epochs have %v, and the recipes' %v", m.Length, d.Epoch)
	case !slices.Equal(m.Targets, []string{d.Leader}):
		err = refuse("it has other targets than the leader")
	case m.NotBefore.After(now.Add(m.Length)) || !m.NotAfter.After(now):
		err = refuse("neither of this epoch nor of the next")
	case len(m.Pinned) != 2:
		err = refuse("it pins %d answers, and there are two key lists", len(m.Pinned))
	}
	for _, id := range m.Recipes {
		if err == nil && !slices.ContainsFunc(d.Recipes, func(r Recipe) bool { return r.ID == id }) {
			err = refuse("it names the recipe %x, which is not served here", id)
		}
	}
	if err == nil {
		err = d.CheckSending(m)
	}
	for _, r := range d.Recipes {
		switch counts := r.Attester != (signed.PublicKey{}); {
		case err != nil || !m.Live(r.ID) || !counts:
		case m.Issuers == nil:
			err = refuse("devices of the recipe %x show credentials, and it names no issuers", r.ID)
		case m.Issuers.Attester != r.Attester:
			err = refuse("the recipe %x names another attester", r.ID)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if leader, err = m.KeyList(signed.Leader, d.Leader, d.Roots.Leader); err != nil {
		return nil, nil, err
	}
	helper, err = m.KeyList(signed.Helper, d.Helper, d.Roots.Helper)
	return leader, helper, err
}

// CheckSending says with [ErrRefused] and an *[ohttp.SendingError] that devices of a recipe
// that the manifest names would try for longer than reports are waited for.
func (d *Deployment) CheckSending(m *ohttp.Manifest) error {
	for _, r := range d.Recipes {
		if err := m.CheckSending(r.MaxSending); err != nil && m.Live(r.ID) {
			return fmt.Errorf("%w: recipe %x: %w", ErrRefused, r.ID, err)
		}
	}
	return nil
}
