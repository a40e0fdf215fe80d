package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// VerifyManifest holds a manifest against a recipe and the anchors, as a device does at a
// time; before the manifest begins, as if it had begun. It fails as [client.NewManifests]
// and client.Manifests.Manifest do, and for a recipe without proofs as those of package
// contribute.
func VerifyManifest(ctx context.Context, m *ohttp.Manifest, r *recipe.Recipe, anchors *signed.Anchors, now time.Time) error {
	if now.Before(m.NotBefore) {
		now = m.NotBefore
	}
	clock := func() time.Time { return now }
	var source ohttp.Source
	var err error
	if r.Path.Proofs() {
		source, err = client.NewManifests(client.ManifestsOptions{Recipe: r, Anchors: anchors, Source: ohttp.Pin(m), Memory: client.Forgetful(), Now: clock})
	} else if err = r.CheckAnchors(anchors); err == nil {
		source, err = contribute.NewManifests(contribute.ManifestsOptions{Recipe: r, Source: ohttp.Pin(m), Now: clock})
	}
	if err != nil {
		return err
	}
	if _, err := source.Manifest(ctx); err != nil {
		return err
	}
	id, err := r.ID()
	if err == nil && !m.Live(id) {
		err = errors.New("it does not name the recipe")
	}
	return err
}

// CheckFiles looks at each file as [CheckFile] does, and at what files say together: where
// there are anchors, the signatures of each manifest are verified, as a device does with
// the recipes among the files that the manifest names, or else by the roots that it names
// itself, which have to be among the anchors.
func CheckFiles(paths []string, now time.Time) []*Checked {
	var all []*Checked
	var anchors *signed.Anchors
	var recipes []*recipe.Recipe
	for _, path := range paths {
		c := CheckFile(path, now)
		if all = append(all, c); len(c.Faults) > 0 {
			continue
		}
		switch c.Kind {
		case kindAnchors:
			a, err := ReadAnchors(path)
			if c.fault(err); err == nil && anchors != nil {
				c.fault(errors.New("other anchors are given too, and a device has one file of them"))
			} else if err == nil {
				anchors = a
			}
		case kindRecipe:
			checked, err := OpenRecipe(path)
			if c.fault(err); err == nil {
				recipes = append(recipes, checked.Recipe())
			}
		}
	}
	if anchors == nil {
		return all
	}
	for _, c := range all {
		if c.Kind == kindManifest && len(c.Faults) == 0 {
			c.checkSignatures(anchors, recipes, now)
		}
	}
	return all
}

// checkSignatures looks at the signatures of a manifest without other faults.
func (c *Checked) checkSignatures(anchors *signed.Anchors, recipes []*recipe.Recipe, now time.Time) {
	b, err := os.ReadFile(c.File)
	if err != nil {
		c.fault(err)
		return
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		c.fault(err)
		return
	}
	var verified []string
	for _, r := range recipes {
		if id, err := r.ID(); err != nil || !m.Live(id) {
			continue
		}
		if err := VerifyManifest(context.Background(), m, r, anchors, now); err != nil {
			c.fault(fmt.Errorf("with the recipe %q: %w", r.Name, err))
		}
		verified = append(verified, fmt.Sprintf("%q", r.Name))
	}
	if len(verified) == 0 {
		c.checkRoots(m, anchors)
	}
	if len(c.Faults) > 0 {
		return
	}
	who := "leader, helper and gateway have signed it, whom"
	if m.Deployment == ([32]byte{}) {
		who = "the gateway has signed it, whom"
	}
	if c.Found += "; " + who + " the anchors name"; len(verified) > 0 {
		c.Found += ", as devices verify it for " + strings.Join(verified, ", ")
	} else {
		c.Found += "; whether they are a recipe's, that recipe tells: name its file too"
	}
}

// checkRoots verifies the signatures of a manifest by the roots that it names.
func (c *Checked) checkRoots(m *ohttp.Manifest, anchors *signed.Anchors) {
	by := make(map[signed.Role]ohttp.Cosignature)
	for _, s := range m.Signatures {
		by[s.Role] = s
	}
	found := make(map[signed.Role]signed.Anchor)
	roles := []signed.Role{signed.Leader, signed.Helper, signed.Gateway}
	if m.Deployment == ([32]byte{}) && len(m.Signatures) > 0 {
		roles = roles[2:] // for recipes without proofs
	}
	for _, role := range roles {
		s, is := by[role]
		if !is {
			c.fault(fmt.Errorf("the %v has not signed", role))
			continue
		}
		root := s.Signature.Delegation.Root
		anchor, known := anchors.Find(root)
		if found[role] = anchor; !known {
			c.fault(fmt.Errorf("the %v's key %v is not among the anchors", role, root))
			continue
		}
		c.fault(m.VerifyOne(s, root))
	}
	if leader := found[signed.Leader]; leader.Owner != "" && leader.SameOwner(found[signed.Helper]) {
		c.fault(fmt.Errorf("the leader's and the helper's keys have one owner, %s, who would see whole reports", leader.Owner))
	}
}
