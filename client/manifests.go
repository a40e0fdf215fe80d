package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// ManifestsOptions make [Manifests].
type ManifestsOptions struct {
	// Recipe is one of the deployment's; it must name signing keys and a relay. Required.
	Recipe *recipe.Recipe
	// Anchors are the keys that came with the software. Required.
	Anchors *signed.Anchors
	// Source gives manifests that nobody has checked. Required.
	Source ohttp.Source
	// Memory is what the device has seen. Required.
	Memory *Memory
	// Now is the device's clock; nil is time.Now.
	Now func() time.Time
}

// Manifests are a source of manifests that a device may use: of the recipe's deployment
// and for this time, signed by leader, helper and gateway, whose roots are the recipe's
// and anchors; with two key lists that share no key; not before any that was seen, and no
// second one of its epoch. A maker of manifests can give others and is refused; it can do
// nothing else. Safe for concurrent use.
type Manifests struct {
	o          ManifestsOptions
	deployment [32]byte
	roots      ohttp.Roots

	mu   sync.Mutex
	last *ohttp.Manifest // the last that was found good; it is not changed
}

// NewManifests fails with [recipe.ErrNoServerKeys] and *[recipe.AnchorError].
func NewManifests(o ManifestsOptions) (*Manifests, error) {
	if o.Recipe == nil || o.Source == nil || o.Memory == nil {
		return nil, errors.New("client: no recipe, no source of manifests or no memory")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := o.Recipe.CheckAnchors(o.Anchors); err != nil {
		return nil, err
	}
	if o.Recipe.Relay == nil {
		return nil, ErrNoRelay
	}
	if o.Recipe.ServerKeys == nil { // of a path without leader and helper, for which there are others
		return nil, recipe.ErrNoServerKeys
	}
	deployment, err := o.Recipe.Deployment()
	if err != nil {
		return nil, err
	}
	return &Manifests{o: o, deployment: deployment, roots: rootsOf(o.Recipe.ServerKeys)}, nil
}

func rootsOf(k *recipe.ServerKeys) ohttp.Roots {
	return ohttp.Roots{Leader: k.Leader, Helper: k.Helper, Gateway: k.Gateway}
}

// Deployment is that of the recipe.
func (m *Manifests) Deployment() [32]byte { return m.deployment }

// Manifest implements [ohttp.Source]. It fails with [ohttp.ErrManifest] for one of
// another deployment or time, *[ohttp.SendingError], [ohttp.ErrUnsigned],
// [signed.ErrList] and [ErrSharedKey] for its key lists, [ErrClock], [ErrConflict] and
// [ErrMemory].
func (m *Manifests) Manifest(ctx context.Context) (*ohttp.Manifest, error) {
	x, err := m.o.Source.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.o.Now()
	if err := m.o.Memory.tick(now); err != nil {
		return nil, err
	}
	if err := x.ValidAt(now); err != nil {
		return nil, err
	}
	if x == m.last {
		return x, nil
	}
	if err := m.check(x); err != nil {
		return nil, err
	}
	if err := m.o.Memory.accept(x, m.roots); err != nil {
		return nil, err
	}
	m.last = x
	return x, nil
}

// Signed says whether a manifest is of the recipe's deployment and signed by all three, as
// [Manifests.Manifest] does, whenever its time is: a device visits its attester for an epoch
// before that begins. The device's memory is neither asked nor changed, so nothing is sealed
// by it before its time.
func (m *Manifests) Signed(x *ohttp.Manifest) error { return m.check(x) }

// check looks at all that does not depend on what was seen before.
func (m *Manifests) check(x *ohttp.Manifest) error {
	r := m.o.Recipe
	path := r.Path.(recipe.TwoServer) // or it had no deployment
	switch {
	case x.Deployment != m.deployment:
		return fmt.Errorf("%w: of another deployment", ohttp.ErrManifest)
	case x.Length != r.ServerKeys.Epoch() || x.Relay != r.Relay.URL || !slices.Equal(x.Targets, []string{path.Leader}):
		return fmt.Errorf("%w: it contradicts the recipe about relay, leader or the length of an epoch", ohttp.ErrManifest)
	}
	if t := r.Tokens; t != nil && (x.Issuers == nil || x.Issuers.Attester != t.Key) {
		return fmt.Errorf("%w: it names no issuers of credentials for the recipe's attester", ohttp.ErrManifest)
	}
	if err := x.CheckSending(r.MaxSending()); err != nil {
		return err
	}
	if err := x.Verify(m.roots); err != nil {
		return err
	}
	leader, err := x.KeyList(signed.Leader, path.Leader, m.roots.Leader)
	if err != nil {
		return err
	}
	helper, err := x.KeyList(signed.Helper, path.Helper, m.roots.Helper)
	if err != nil {
		return err
	}
	ours, err := readConfigs(leader.Body)
	if err != nil {
		return &KeysError{dap.RoleLeader, err}
	}
	theirs, err := readConfigs(helper.Body)
	if err != nil {
		return &KeysError{dap.RoleHelper, err}
	}
	return apart(ours, theirs)
}

// ErrSharedKey: leader and helper offer one key, whose holder reads whole reports.
var ErrSharedKey = errors.New("client: leader and helper offer the same HPKE key")

// apart says whether no key is in both lists.
func apart(a, b dap.HpkeConfigList) error {
	for _, x := range a {
		if slices.ContainsFunc(b, func(y dap.HpkeConfig) bool { return string(x.Key) == string(y.Key) }) {
			return ErrSharedKey
		}
	}
	return nil
}

// errTwoOfOneKEM: which of the two a device uses would tell it from others.
var errTwoOfOneKEM = errors.New("two configurations of one KEM")

// readConfigs reads a list that its owner has signed.
func readConfigs(body []byte) (dap.HpkeConfigList, error) {
	list, err := dap.ReadHpkeConfigList(body)
	if err == nil && !list.OnePerKEM() {
		err = errTwoOfOneKEM
	}
	return list, err
}
