package deploy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// AnchorsFile is the name of the anchors in a new deployment.
const AnchorsFile = "anchors.starling"

// Signing is how an aggregator vouches for its keys, as a file has it.
type Signing struct {
	// Key is the file of the online key. Required where a recipe names signing keys.
	Key service.Secret `toml:"key"`
	// Delegation is the word of the owner's root for the key. Required together with it.
	Delegation service.Path `toml:"delegation"`
	// Token is the token with which who makes manifests comes. Optional; without it no
	// manifest is signed here.
	Token service.Secret `toml:"token"`
	// Revisions is how many manifests beside the first are signed in one epoch, for
	// emergencies. Default 0.
	Revisions uint16 `toml:"revisions"`
	// Held is how long a gateway may hold uploads at most, whatever a manifest says; keys
	// take them for as long after it. Default "24h".
	Held service.Duration `toml:"held"`
}

// deployments are those of recipes that name keys.
func deployments(recipes []*recipe.Recipe) (list []keyset.Deployment, err error) {
	for _, r := range recipes {
		d, err := aggregator.DeploymentOf(r)
		if errors.Is(err, recipe.ErrNoServerKeys) {
			continue
		} else if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(list, func(x keyset.Deployment) bool { return x.ID == d.ID }); i >= 0 {
			list[i].Recipes = append(list[i].Recipes, d.Recipes...)
			continue
		}
		list = append(list, d)
	}
	return list, nil
}

// signing reads what the aggregator signs with, for recipes of the configuration and for
// those that come later; nil where none is configured and no recipe names keys.
func (a *Aggregator) signing(recipes []*recipe.Recipe) (*keyset.Signing, error) {
	list, err := deployments(recipes)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	if len(list) == 0 && a.Signing == (Signing{}) {
		return nil, nil
	}
	if a.Signing.Key == "" || a.Signing.Delegation == "" {
		return nil, errors.New("signing.key, signing.delegation: required where a recipe names this aggregator's root key; starling key online makes both")
	}
	s := &keyset.Signing{Role: signed.Role(a.Role), Deployments: list, Revisions: a.Signing.Revisions, Held: time.Duration(a.Signing.Held), Issuer: a.issuerKey()}
	if s.Signer, err = ReadSigner(a.Signing.Key, string(a.Signing.Delegation)); err != nil {
		return nil, err
	}
	if a.Signing.Token != "" {
		if s.Token, err = a.Signing.Token.Text(); err != nil {
			return nil, fmt.Errorf("signing.token: %w", err)
		}
	}
	for _, d := range list {
		if root := rootOf(d.Roots, s.Role); root != s.Signer.Root() {
			return nil, fmt.Errorf("signing.delegation: it is of the root %s, and a recipe names %s", s.Signer.Root(), root)
		}
	}
	return s, nil
}

func rootOf(r ohttp.Roots, role signed.Role) signed.PublicKey {
	switch role {
	case signed.Leader:
		return r.Leader
	case signed.Helper:
		return r.Helper
	}
	return r.Gateway
}

// ReadAnchors reads an anchors file.
func ReadAnchors(path string) (*signed.Anchors, error) {
	b, err := readFile(path, signed.MaxAnchorsFile)
	if err != nil {
		return nil, fmt.Errorf("anchors: %w", err)
	}
	a, err := signed.ReadAnchors(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// ReadSigner reads an online key and the word of its root.
func ReadSigner(key service.Secret, delegation string) (*signed.Signer, error) {
	b, err := key.Read()
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	k, err := signed.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("signing key: %s: %w", key, err)
	}
	if b, err = readFile(delegation, maxPublicKey); err != nil {
		return nil, fmt.Errorf("delegation: %w", err)
	}
	d, err := signed.ParseDelegation(b)
	if err == nil {
		var s *signed.Signer
		if s, err = signed.NewSigner(k, d); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("delegation: %s: %w", delegation, err)
}

// SigningUntil is the end of the aggregator's online key, and false where it signs
// nothing.
func (a *Aggregator) SigningUntil() (until time.Time, ok bool, err error) {
	m, err := a.read()
	if err != nil || m.signing == nil {
		return until, false, err
	}
	return m.signing.Signer.Until(), true, nil
}

// CollectorHash is what a recipe binds of a collector's public key, read from its file.
func CollectorHash(file []byte) (recipe.Hash, error) {
	_, err := dap.ReadHpkeConfig(file)
	return sha256.Sum256(file), err
}

// collectorBound says whether a recipe that names a collector's key names this one.
func collectorBound(r *recipe.Recipe, config []byte) error {
	if r.ServerKeys != nil && sha256.Sum256(config) != r.ServerKeys.Collector {
		return fmt.Errorf("the recipe binds another key, of SHA-256 %x", r.ServerKeys.Collector[:])
	}
	return nil
}

// Owners are the secrets behind a new deployment's recipe: what its servers' owners keep
// offline, and the collector's key.
type Owners struct {
	Leader, Helper, Gateway *signed.PrivateKey
	Attester                *signed.PrivateKey // used where the recipe counts devices
	Collector               *sealed.KeyPair
}

// NewOwners makes them; a laboratory has them all at once.
func NewOwners() (*Owners, error) {
	collector, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		return nil, fmt.Errorf("deploy: make a key: %w", err)
	}
	return &Owners{signed.Generate(), signed.Generate(), signed.Generate(), signed.Generate(), collector}, nil
}

// ServerKeys are what a recipe says of them.
func (o *Owners) ServerKeys(relay bool) (*recipe.ServerKeys, error) {
	config, err := dap.NewHpkeConfig(o.Collector).Append(nil)
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	k := &recipe.ServerKeys{Leader: o.Leader.Public(), Helper: o.Helper.Public(), Collector: sha256.Sum256(config),
		EpochLength: recipe.DefaultEpochLength}
	if relay {
		k.Gateway = o.Gateway.Public()
	}
	return k, nil
}

// anchor is the line of one owner of a laboratory.
func anchor(name, base string, root *signed.PrivateKey) (signed.Anchor, error) {
	u, err := url.Parse(base)
	if err != nil {
		return signed.Anchor{}, fmt.Errorf("deploy: %w", err)
	}
	return signed.Anchor{Name: name, Domain: u.Hostname(), Key: root.Public(), Owner: "the lab's " + name}, nil
}

// owner adds a root key, an online key and the word of the one for the other, and returns
// who signs with these.
func (w *newFiles) owner(name string, root *signed.PrivateKey, now time.Time) (*signed.Signer, error) {
	online := signed.Generate()
	from := now.UTC().Truncate(time.Second).Add(-time.Hour)
	d, err := signed.Delegate(root, online.Public(), from, from.Add(signed.MaxOnline))
	if err != nil {
		return nil, err
	}
	w.secret(name+".root", root.Marshal())
	w.secret(name+".online", online.Marshal())
	w.add(filepath.Join(secretsDir, name+".online.delegation"), 0o644, d.MarshalFile())
	return signed.NewSigner(online, d)
}

// owners adds the keys of the deployment's owners, and the anchors that devices hold the
// recipe against.
func (w *newFiles) owners(r *recipe.Recipe, o *Owners) error {
	path, ok := r.Path.(recipe.TwoServer)
	if !ok {
		return errors.New("deploy: the recipe does not go through a leader and a helper")
	}
	now := time.Now()
	var anchors []signed.Anchor
	add := func(name, base string, root *signed.PrivateKey) error {
		a, err := anchor(name, base, root)
		anchors = append(anchors, a)
		_, err2 := w.owner(name, root, now)
		return errors.Join(err, err2)
	}
	err := errors.Join(add("leader", path.Leader, o.Leader), add("helper", path.Helper, o.Helper))
	if r.Relay != nil {
		err = errors.Join(err, add("gateway", r.Relay.Gateway, o.Gateway))
	}
	if r.Tokens != nil {
		err = errors.Join(err, add("attester", r.Tokens.Attester, o.Attester))
	}
	if err != nil {
		return err
	}
	w.token("manifest.token")
	w.add(AnchorsFile, 0o644, signed.MarshalAnchors(anchors...))
	return nil
}

// token adds a new token.
func (w *newFiles) token(name string) {
	var token [24]byte
	rand.Read(token[:])
	w.secret(name, []byte(base64.RawURLEncoding.EncodeToString(token[:])+"\n"))
}

// notary opens an aggregator that is not running, to sign for it.
func (a *Aggregator) notary() (n *keyset.Notary, closeAll func() error, err error) {
	s, err := a.open(context.Background(), slog.New(slog.DiscardHandler), aggregator.Observer{}, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if n = s.Notary(); n == nil {
		return nil, nil, errors.Join(recipe.ErrNoServerKeys, s.Close())
	}
	return n, s.Close, nil
}

// A Manifest is what there is to say in one, beside the key lists.
type Manifest struct {
	Deployment          keyset.Deployment
	NotBefore, NotAfter time.Time
	Revision            uint16
	Previous            [32]byte
	Gateway             []ohttp.KeyConfig
	Tries               uint8
	Every               time.Duration
	Hold                time.Duration // of the gateway's configuration, or longer
	Issuers             *ohttp.Issuers
}

// Assemble puts a manifest together that nobody has signed yet, from the signed lists of
// leader and helper.
func (o *Manifest) Assemble(leader, helper []byte) (*ohttp.Manifest, error) {
	d := &o.Deployment
	m := &ohttp.Manifest{
		Deployment: d.ID, Epoch: ohttp.EpochAt(o.NotBefore, d.Epoch), Revision: o.Revision, Length: d.Epoch, NotBefore: o.NotBefore, NotAfter: o.NotAfter,
		Previous: o.Previous, Relay: d.Relay, Gateway: o.Gateway, Tries: o.Tries, Every: o.Every, Hold: o.Hold, Targets: []string{d.Leader},
		Issuers: o.Issuers,
	}
	for _, r := range d.Recipes {
		m.Recipes = append(m.Recipes, r.ID)
	}
	slices.SortFunc(m.Recipes, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	m.Recipes = slices.Compact(m.Recipes)
	for _, p := range []struct {
		role signed.Role
		base string
		root signed.PublicKey
		list []byte
	}{{signed.Leader, d.Leader, d.Roots.Leader, leader}, {signed.Helper, d.Helper, d.Roots.Helper, helper}} {
		at, err := signed.ListURL(p.base, d.ID)
		if err != nil {
			return nil, err
		}
		m.Pinned = append(m.Pinned, ohttp.Pinned{URL: at, Media: signed.ListMedia, Body: p.list})
		if _, err := m.KeyList(p.role, p.base, p.root); err != nil {
			return nil, err
		}
	}
	return m, m.Validate()
}

// Say has a party that keeps its record in a file sign a manifest: after the record says
// so, durably, and only if it says nothing else. One process at a time has the record's
// directory, or two that sign at once would both find nothing in the way.
func Say(m *ohttp.Manifest, role signed.Role, s *signed.Signer, record string) (err error) {
	digest, err := m.Digest()
	if err != nil {
		return err
	}
	fsys, err := disk.OS(filepath.Dir(record))
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	if err := fsys.Lock(); err != nil {
		return fmt.Errorf("record: %s: %w", record, err)
	}
	r, err := signed.OpenRecord(fsys, filepath.Base(record))
	if err != nil {
		return err
	}
	said := signed.Statement{Deployment: m.Deployment, Epoch: m.Epoch, Revision: m.Revision, NotBefore: m.NotBefore, NotAfter: m.NotAfter, Digest: digest}
	if err := r.Say(said); err != nil {
		return err
	}
	return m.Sign(role, s)
}

// cosigned has the parties of a deployment on this machine, none of them running, sign a
// manifest.
func cosigned(dir string, o Manifest) (*ohttp.Manifest, error) {
	var notaries []*keyset.Notary
	var lists [][]byte
	for _, a := range []struct {
		config string
		role   dap.Role
	}{{LeaderFile, dap.RoleLeader}, {HelperFile, dap.RoleHelper}} {
		config, err := LoadAggregator(filepath.Join(dir, a.config), a.role)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		n, closeAll, err := config.notary()
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		defer closeAll()
		list, err := n.ListFor(context.Background(), o.Deployment.ID, o.NotBefore, o.NotAfter)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		notaries, lists = append(notaries, n), append(lists, list)
	}
	m, err := o.Assemble(lists[0], lists[1])
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	for _, n := range notaries {
		c, err := n.Cosign(context.Background(), m)
		if err != nil {
			return nil, fmt.Errorf("deploy: %w", err)
		}
		m.Add(c)
	}
	s, err := ReadSigner(service.Secret(filepath.Join(dir, secretsDir, "gateway.online")), filepath.Join(dir, secretsDir, "gateway.online.delegation"))
	if err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	if err := Say(m, signed.Gateway, s, filepath.Join(dir, "gateway.signed")); err != nil {
		return nil, fmt.Errorf("deploy: %w", err)
	}
	return m, m.Verify(o.Deployment.Roots)
}
