package deploy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// terms are what an aggregator adds to a recipe or a configuration, as its store has them:
// the lines of [[tasks]] but for the first. Paths are relative to the directory of the
// configuration where they lie below it, so that the directory may move, and else absolute;
// files of secrets are named and not read. All that is left out follows from the agreement.
type terms struct {
	DAP            dap.Version  `json:"dap,omitzero"`
	ID             string       `json:"id,omitempty"`
	Framing        dap.Framing  `json:"framing,omitzero"`
	VerifyKeys     []verifyKey  `json:"verify_keys,omitempty"` // by id
	VerifyKeyInit  string       `json:"verify_key_init,omitempty"`
	Advertise      bool         `json:"advertise,omitempty"`
	PeerToken      string       `json:"peer_token,omitempty"`
	CollectorToken string       `json:"collector_token,omitempty"`
	CollectorHPKE  string       `json:"collector_hpke,omitempty"`
	Expected       *expectation `json:"expected,omitempty"`
	Invitations    []invited    `json:"invitations,omitempty"`
}

// invited is an invitation by its file, whose bytes are pinned: another in its place is
// refused.
type invited struct {
	File string `json:"file"`
	ID   string `json:"id"` // in hexadecimal digits
}

type verifyKey struct {
	ID   uint8  `json:"id"`
	File string `json:"file"`
}

type expectation struct {
	Reports uint64 `json:"reports"`
	Units   uint64 `json:"units,omitempty"`
}

// terms writes down what a task adds to its recipe or configuration: one way for each.
func (a *Aggregator) terms(t *Task) ([]byte, error) {
	out := terms{DAP: t.DAP, ID: t.ID, Framing: t.Framing, Advertise: t.Advertise}
	for into, path := range map[*string]string{ // one file may be several of them
		&out.VerifyKeyInit: string(t.VerifyKeyInit), &out.PeerToken: string(t.PeerToken),
		&out.CollectorToken: string(t.CollectorToken), &out.CollectorHPKE: string(t.CollectorHPKE),
	} {
		if err := a.name(path, into); err != nil {
			return nil, err
		}
	}
	for _, k := range t.VerifyKeys {
		w := verifyKey{ID: k.ID}
		if err := a.name(string(k.File), &w.File); err != nil {
			return nil, err
		}
		out.VerifyKeys = append(out.VerifyKeys, w)
	}
	for _, v := range t.Invitations {
		w := invited{ID: hex.EncodeToString(v.id[:])}
		if err := a.name(v.File, &w.File); err != nil {
			return nil, err
		}
		out.Invitations = append(out.Invitations, w)
	}
	slices.SortFunc(out.Invitations, func(a, b invited) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(out.VerifyKeys, func(a, b verifyKey) int { return cmp.Compare(a.ID, b.ID) })
	if t.Expected != (Expected{}) {
		out.Expected = &expectation{t.Expected.Reports, t.Expected.Units}
	}
	return json.Marshal(out)
}

// name writes down a path, which may be empty.
func (a *Aggregator) name(path string, into *string) (err error) {
	if path == "" {
		return nil
	}
	if *into, err = filepath.Abs(path); err != nil || a.dir == "" || !within(*into, a.dir) {
		return err
	}
	*into, err = filepath.Rel(a.dir, *into)
	return err
}

// named is the path of a name.
func (a *Aggregator) named(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(a.dir, name)
}

// task is the task of terms that a store has, without its recipe or configuration.
func (a *Aggregator) task(w *terms) *Task {
	t := &Task{
		DAP: w.DAP, ID: w.ID, Framing: w.Framing, PeerToken: service.Secret(a.named(w.PeerToken)), CollectorToken: service.Secret(a.named(w.CollectorToken)),
		CollectorHPKE: service.Path(a.named(w.CollectorHPKE)), VerifyKeyInit: service.Secret(a.named(w.VerifyKeyInit)), Advertise: w.Advertise,
	}
	for _, k := range w.VerifyKeys {
		t.VerifyKeys = append(t.VerifyKeys, VerifyKey{k.ID, service.Secret(a.named(k.File))})
	}
	if w.Expected != nil {
		t.Expected = Expected{w.Expected.Reports, w.Expected.Units}
	}
	return t
}

// provide makes a task of what a store has of it. The files are read anew, so that
// a file of a secret may be replaced by another.
func (a *Aggregator) provide(_ context.Context, form aggregator.Form, made, written []byte) (out aggregator.Task, err error) {
	var w terms
	d := json.NewDecoder(bytes.NewReader(written))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return out, fmt.Errorf("terms: %w", err)
	}
	parties, err := a.invitedBy(w.Invitations)
	if err != nil {
		return out, err
	}
	agreed, err := a.agreed(parties)
	if err != nil {
		return out, err
	}
	out, _, err = a.task(&w).make(form, made, nil, a.Role, agreed)
	return out, err
}

// source reads what the task is made of.
func (t *Task) source() (form aggregator.Form, made []byte, err error) {
	if t.foreign() {
		if made, err = readFile(string(t.Configuration), maxConfiguration); err != nil {
			err = fmt.Errorf("configuration: %w", err)
		}
		return aggregator.Configuration, made, err
	}
	if made, err = readFile(string(t.Recipe), recipe.MaxFileSize); err != nil {
		err = fmt.Errorf("recipe: %w", err)
	}
	return aggregator.RecipeFile, made, err
}

// openRecipe is [OpenRecipe] of a file's bytes.
func openRecipe(b []byte) (*recipe.Checked, error) {
	alone, certificate, err := recipe.SplitFile(b)
	if err != nil {
		return nil, err
	}
	c, err := recipe.Open(alone, account.Prover)
	if err == nil && len(certificate) > 0 {
		_, err = c.Recipe().CheckCertificate(certificate)
	}
	return c, err
}
