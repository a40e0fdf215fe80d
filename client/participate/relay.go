package participate

import (
	"errors"
	"slices"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/recipe"
)

// ErrManifest is what every *ManifestError matches.
var ErrManifest = errors.New("participate: the manifest does not fit the recipe")

// A ManifestError: the devices' manifest and the recipe disagree about the way of a
// report, so that one of the two would send it to somebody else, or when nobody waits for
// it any more.
type ManifestError struct {
	What string
	Err  error // more about it, or nil: *[ohttp.SendingError]
}

func (e *ManifestError) Error() string {
	text := "participate: the manifest and the recipe disagree about " + e.What
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what more there is about it.
func (e *ManifestError) Unwrap() error { return e.Err }

// Is reports whether target is ErrManifest.
func (e *ManifestError) Is(target error) bool { return target == ErrManifest }

// CheckManifest says whether a manifest sends the recipe's reports through the recipe's
// relay to the server that takes them, encrypted as the recipe wants: X-Wing keys where it
// asks for them; whether it is of the deployment whose keys the recipe names, and the
// recipe live; and whether devices try for no longer than their reports are waited for.
// Package client checks its signers and its time ([client.Manifests]). It fails with
// *[ManifestError].
func CheckManifest(r *recipe.Recipe, m *ohttp.Manifest) error {
	first, url := r.Entry()
	if r.ServerKeys != nil {
		deployment, err := r.Deployment()
		if err != nil || m.Deployment != deployment {
			return &ManifestError{What: "the deployment"}
		}
		if id, err := r.ID(); err != nil || !m.Live(id) {
			return &ManifestError{What: "which recipes are live"}
		}
	}
	switch {
	case r.Relay == nil || m.Relay != r.Relay.URL:
		return &ManifestError{What: "the relay"}
	case !slices.Contains(m.Targets, url):
		return &ManifestError{What: "the " + first}
	case r.KEM != recipe.X25519 && slices.ContainsFunc(m.Gateway, func(k ohttp.KeyConfig) bool { return k.KEM != uint16(r.KEM) }):
		return &ManifestError{What: "the gateway's key encapsulation"}
	}
	if err := m.CheckSending(r.MaxSending()); err != nil {
		return &ManifestError{"for how long devices try", err}
	}
	return nil
}
