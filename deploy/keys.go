package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// makesKeys says whether the aggregator makes HPKE keys by itself.
func (a *Aggregator) makesKeys() bool { return len(a.HPKEKeys) == 0 || a.HPKEKeyPeriod != 0 }

// validateKeys says what is wrong with the schedule of keys.
func (a *Aggregator) validateKeys() error {
	if !a.makesKeys() {
		if a.HPKEKeyMaxAge != 0 || a.HPKEKeyOverlap != 0 || a.HPKEKeyDelay != 0 {
			return errors.New("hpke_key_period: without it, hpke_keys are the operator's to end, and no other hpke_key_ setting has a meaning")
		}
		return nil
	}
	if a.HPKEKeyDelay != 0 && a.Role != dap.RoleHelper {
		return errors.New("hpke_key_delay: only a helper has to guess how long its peer takes")
	}
	_, err := a.schedule(nil, nil)
	return err
}

// schedule says when keys are made and end; nil where that is the operator's business.
// Without recipes it has one suite.
func (a *Aggregator) schedule(recipes []*recipe.Recipe, signing *keyset.Signing) (*keyset.Schedule, error) {
	if !a.makesKeys() {
		return nil, nil
	}
	s := &keyset.Schedule{
		Period: time.Duration(a.HPKEKeyPeriod), MaxAge: time.Duration(a.HPKEKeyMaxAge), Overlap: time.Duration(a.HPKEKeyOverlap),
		Delay: time.Duration(a.HPKEKeyDelay),
	}
	if s.Delay == 0 && a.Role == dap.RoleHelper {
		s.Delay = keyset.DefaultDelay
	}
	// Clients of recipes that name no KEM take what is offered first.
	for _, k := range []struct {
		kem   recipe.KEM
		suite sealed.Suite
	}{{recipe.X25519, sealed.SuiteX25519}, {recipe.XWing, sealed.SuiteXWing}} {
		// DAP's own
		foreign := k.kem == recipe.X25519 && (len(a.Taskprov) > 0 || slices.ContainsFunc(a.Tasks, func(t Task) bool { return t.foreign() }))
		if foreign || slices.ContainsFunc(recipes, func(r *recipe.Recipe) bool { return r.KEM == k.kem }) {
			s.Suites = append(s.Suites, k.suite)
		}
	}
	if signing != nil {
		s.Promise = signing.PromiseFor(cmp.Or(s.Overlap, keyset.DefaultOverlap))
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("hpke_key_period and what goes with it: %w", err)
	}
	return s, nil
}

// readKeys reads the operator's key files.
func (a *Aggregator) readKeys() (*sealed.Keyring, error) {
	var pairs []*sealed.KeyPair
	var f Faults
	for _, file := range a.HPKEKeys {
		k, err := readKeyPair(file)
		f.Add("hpke_keys: ", err)
		pairs = append(pairs, k)
	}
	if err := f.All(); err != nil {
		return nil, err
	}
	ring, err := sealed.NewKeyring(pairs...)
	if err != nil {
		return nil, fmt.Errorf("hpke_keys: %w", err)
	}
	return ring, nil
}

// offered is the list of keys that the aggregator, which is not running, will offer when
// it starts. It makes the store, and the first keys.
func (a *Aggregator) offered() (list []byte, err error) {
	err = a.with(context.Background(), slog.New(slog.DiscardHandler), func(s *opened) error {
		list = s.Offered()
		return nil
	})
	return list, err
}

// ResetKeys has an aggregator that is not running, whose HPKE keys are lost for good,
// make new ones at its next start.
func (a *Aggregator) ResetKeys() (err error) {
	if !a.makesKeys() {
		return errors.New("hpke_keys: its keys are files of your own, and made by nobody else")
	}
	if !a.Used() {
		return fmt.Errorf("data: %s: %w", a.Data, fs.ErrNotExist)
	}
	f, err := a.files()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return keyset.Reset(f.data, "keys")
}
