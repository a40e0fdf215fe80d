package contribute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// ManifestsOptions make [Manifests].
type ManifestsOptions struct {
	// Recipe is of a path without proofs, and names a relay. Required.
	Recipe *recipe.Recipe
	// Source gives manifests that nobody has checked. Required.
	Source ohttp.Source
	// Now is the device's clock; nil is time.Now.
	Now func() time.Time
}

// Manifests are a source of manifests that devices of a recipe may use: of this time,
// that name the recipe's relay, and the first hop or the analyzer of the direct path
// among their targets, and that the recipe's gateway has signed, whose key is among the
// anchors ([New] sees to that). It refuses a second one of an epoch, and one before the
// last, as long as the process lives. Safe for concurrent use.
type Manifests struct {
	o       ManifestsOptions
	gateway signed.PublicKey

	mu   sync.Mutex
	last *ohttp.Manifest // the last that was found good; it is not changed
}

// NewManifests fails with [client.ErrNoRelay] where the recipe names no relay, and with
// [recipe.ErrNoServerKeys] where it names no key of a gateway in its path.
func NewManifests(o ManifestsOptions) (*Manifests, error) {
	if o.Recipe == nil || o.Source == nil {
		return nil, errors.New("contribute: no recipe or no source of manifests")
	}
	if o.Recipe.Relay == nil {
		return nil, client.ErrNoRelay
	}
	m := &Manifests{o: o, gateway: o.Recipe.GatewayKey()}
	if m.gateway.IsZero() {
		return nil, recipe.ErrNoServerKeys
	}
	if m.o.Now == nil {
		m.o.Now = time.Now
	}
	return m, nil
}

// Manifest implements [ohttp.Source]. It fails with [ohttp.ErrManifest] for one of another
// time, relay or target, *[ohttp.SendingError], [ohttp.ErrUnsigned], and
// [client.ErrConflict].
func (m *Manifests) Manifest(ctx context.Context) (*ohttp.Manifest, error) {
	x, err := m.o.Source.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := x.ValidAt(m.o.Now()); err != nil {
		return nil, err
	}
	if x == m.last {
		return x, nil
	}
	if err := m.check(x); err != nil {
		return nil, err
	}
	if err := m.follows(x); err != nil {
		return nil, err
	}
	m.last = x
	return x, nil
}

// check looks at all that does not depend on what was seen before.
func (m *Manifests) check(x *ohttp.Manifest) error {
	r := m.o.Recipe
	name, url := r.Entry()
	if x.Relay != r.Relay.URL || !slices.Contains(x.Targets, url) {
		return fmt.Errorf("%w: it contradicts the recipe about relay or %s", ohttp.ErrManifest, name)
	}
	if err := x.CheckSending(r.MaxSending()); err != nil {
		return err
	}
	i := slices.IndexFunc(x.Signatures, func(s ohttp.Cosignature) bool { return s.Role == signed.Gateway })
	if i < 0 {
		return fmt.Errorf("%w: the gateway has not signed", ohttp.ErrUnsigned)
	}
	return x.VerifyOne(x.Signatures[i], m.gateway)
}

// follows says whether a manifest may come after the last one.
func (m *Manifests) follows(x *ohttp.Manifest) error {
	if m.last == nil {
		return nil
	}
	seen, err := m.last.Digest()
	if err != nil {
		return err
	}
	given, err := x.Digest()
	if err != nil || given == seen {
		return err
	}
	switch {
	case x.Epoch == m.last.Epoch && x.Revision == m.last.Revision:
		return &client.ConflictError{Seen: seen, Given: given, Why: fmt.Sprintf("two of epoch %d, revision %d", x.Epoch, x.Revision)}
	case x.Epoch < m.last.Epoch || x.Epoch == m.last.Epoch && x.Revision < m.last.Revision:
		return fmt.Errorf("%w: epoch %d, revision %d, after epoch %d, revision %d", ohttp.ErrManifest, x.Epoch, x.Revision, m.last.Epoch, m.last.Revision)
	case x.Epoch > m.last.Epoch && x.NotBefore.Before(m.last.NotAfter):
		return &client.ConflictError{Seen: seen, Given: given, Why: fmt.Sprintf("epochs %d and %d hold at one time", m.last.Epoch, x.Epoch)}
	}
	return nil
}
