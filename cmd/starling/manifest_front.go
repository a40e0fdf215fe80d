package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// mixedDeployment is what recipes without leader and helper say of their parties, as far as
// a manifest has it: the roots but the gateway's are not in it.
func mixedDeployment(paths []string) (*keyset.Deployment, error) {
	var d *keyset.Deployment
	for _, path := range paths {
		checked, err := deploy.OpenRecipe(path)
		if err != nil {
			return nil, ofInput(err, noRecipe)
		}
		r := checked.Recipe()
		id, err := r.Deployment()
		if err != nil || r.Path.Proofs() || r.Relay == nil {
			return nil, failf(exitInput, "starling recipe show "+path, "%s is on another path than %s, or names no relay", path, paths[0])
		}
		_, target := r.Entry()
		known := keyset.Recipe{ID: checked.ID(), MaxSending: r.MaxSending()}
		if r.Tokens != nil {
			known.Attester = r.Tokens.Key
		}
		switch {
		case d == nil:
			d = &keyset.Deployment{ID: id, Epoch: ohttp.DefaultEpoch, Relay: r.Relay.URL, Leader: target, Roots: ohttp.Roots{Gateway: r.GatewayKey()}}
			if n := r.EpochLength(); n > 0 {
				d.Epoch = time.Duration(n) * time.Second
			}
		case d.ID != id:
			return nil, failf(exitInput, "make a manifest for each deployment", "%s has other parties or keys than %s", path, paths[0])
		}
		d.Recipes = append(d.Recipes, known)
	}
	return d, nil
}

// front makes the manifest of recipes without leader and helper, which their gateway signs
// alone, and writes it beside the gateway's new keys.
func (c *ceremony) front(e *env, f manifestFiles, paths []string) error {
	d, err := mixedDeployment(paths)
	if err != nil {
		return err
	}
	if *c.sign.key == "" || *c.sign.record == "" || *c.token != "" {
		return usageOf("manifest new", errors.New("the gateway signs alone, on a path without leader and helper: --signing-key and --record are required, and there is no --token"))
	}
	if *c.revision > 1<<16-1 || *c.lead < 0 {
		return usageOf("manifest new", errors.New("--revision wants 16 bits, and --lead is not negative"))
	}
	if err := c.warn(e, paths); err != nil {
		return err
	}
	o, err := c.window(d, &f, time.Now())
	if err != nil {
		return err
	}
	m := &ohttp.Manifest{
		Deployment: d.ID, Epoch: ohttp.EpochAt(o.NotBefore, d.Epoch), Revision: o.Revision, Length: d.Epoch, NotBefore: o.NotBefore, NotAfter: o.NotAfter, Previous: o.Previous,
		Relay: d.Relay, Tries: o.Tries, Every: o.Every, Hold: o.Hold, Targets: []string{d.Leader},
	}
	if m.Issuers, err = c.issuers.read(d); err != nil {
		return err
	}
	for _, r := range d.Recipes {
		m.Recipes = append(m.Recipes, r.ID)
	}
	slices.SortFunc(m.Recipes, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	m.Recipes = slices.Compact(m.Recipes)
	files := []string{f.key}
	if *c.second != "" {
		files = append(files, *c.second)
	}
	for _, path := range append(slices.Clone(files), f.out) {
		if exists(path) {
			return failf(exitInput, "name another file, or move this one away", "%s exists", path)
		}
	}
	var secrets [][]byte
	for i := range files {
		pair, err := sealed.Generate(f.id+uint8(i), f.suite)
		if err != nil {
			return err
		}
		secret, err := pair.Marshal()
		if err != nil {
			return err
		}
		m.Gateway, secrets = append(m.Gateway, ohttp.NewKeyConfig(pair)), append(secrets, secret)
	}
	if err := d.CheckSending(m); err != nil { // before it is signed
		return &failure{exitCheck, err, hintOf(err)}
	}
	if err := c.sign.alone(m, d.Roots.Gateway); err != nil {
		return err
	}
	b, err := m.Append(nil)
	if err != nil {
		return &failure{exitInput, err, "starling manifest new --help"}
	}
	for i, file := range files {
		if err := writeNew(file, 0o600, secrets[i]); err != nil {
			return err
		}
	}
	if err := writeNew(f.out, 0o644, b); err != nil {
		return err
	}
	if f.asJSON {
		return e.json(map[string]any{"epoch": m.Epoch, "revision": m.Revision, "key": f.key, "manifest": f.out, "not_before": m.NotBefore,
			"not_after": m.NotAfter, "signed": signers(m)})
	}
	_, err = fmt.Fprintf(e.stdout, "epoch %d: key %s, manifest %s, from %s until %s\nsigned by the gateway\n", m.Epoch, f.key, f.out,
		m.NotBefore.Format(time.RFC3339), m.NotAfter.Format(time.RFC3339))
	return err
}

// alone signs a manifest for its gateway.
func (f *signFlags) alone(m *ohttp.Manifest, root signed.PublicKey) error {
	delegation := *f.delegation
	if delegation == "" {
		delegation = *f.key + delegationSuffix
	}
	s, err := deploy.ReadSigner(service.Secret(*f.key), delegation)
	if err != nil {
		return ofInput(err, "starling key online --help")
	}
	if s.Root() != root {
		return failf(exitInput, "take the online key of the owner whose root the recipe names", "%s is the key of another owner than the gateway's", *f.key)
	}
	return said(deploy.Say(m, signed.Gateway, s, *f.record))
}

// said says what became of a signature that is remembered.
func said(err error) error {
	switch {
	case errors.Is(err, signed.ErrSigned):
		return &failure{exitCheck, err, "one manifest an epoch; an emergency takes --revision"}
	case errors.Is(err, signed.ErrRecord):
		return &failure{exitCheck, err, "put it back from where it went; without it nothing may be signed in this epoch"}
	case err != nil:
		return ofInput(err, "--record FILE is where this party remembers what it signed, made where there is none")
	}
	return nil
}
