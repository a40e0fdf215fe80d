package keyset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/dap"
)

// ErrPromise: the keys of a list are not to be promised: not ours, no longer taken, two
// of one KEM, or for too long.
var ErrPromise = errors.New("keyset: no promise about these keys")

// promise has the keys of an encoded HpkeConfigList take uploads until a time, whatever
// follows them; it is durable when promise returns. Each must be one that takes uploads
// now, and no two are of one KEM: which of them a device uses is not to tell devices
// apart. It fails with [ErrPromise] and with the disk's errors.
func (s *Set) promise(ctx context.Context, list []byte, until time.Time) error {
	configs, err := onePerKEM(list)
	if err != nil {
		return err
	}
	s.step.Lock()
	defer s.step.Unlock()
	for {
		err := s.note(ctx, configs, until)
		if !errors.Is(err, vault.ErrStale) {
			return err
		}
		// Another replica has changed the state.
		if _, err := s.refresh(ctx); err != nil {
			return err
		}
	}
}

// note is promise, of a list that was read. s.step must be held.
func (s *Set) note(ctx context.Context, configs dap.HpkeConfigList, until time.Time) error {
	now := s.now()
	if most := now.Add(s.opt.Promise); !s.fixed && until.After(most) {
		return fmt.Errorf("%w: until %s, and no further than %s", ErrPromise, until.Format(time.RFC3339), most.Format(time.RFC3339))
	}
	records := s.records()
	changed := false
	for _, c := range configs {
		if s.isConfigured(c) {
			continue // the operator ends these
		}
		serial, ok := s.taking(c, now)
		if !ok {
			return fmt.Errorf("%w: key %d is not ours, or no longer taken", ErrPromise, c.ID)
		}
		i := slices.IndexFunc(records, func(r record) bool { return r.serial == serial })
		if until.After(records[i].promised) {
			records[i].promised, changed = until.Round(0).UTC(), true
		}
	}
	if !changed && !s.unsure {
		return nil
	}
	if err := s.save(ctx, records); err != nil {
		return err
	}
	s.adopt(records, nil)
	return nil
}

// onePerKEM reads a list that has one configuration of each KEM.
func onePerKEM(list []byte) (dap.HpkeConfigList, error) {
	configs, err := dap.ReadHpkeConfigList(list)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPromise, err)
	}
	if !configs.OnePerKEM() {
		return nil, fmt.Errorf("%w: two are of one KEM", ErrPromise)
	}
	return configs, nil
}

func (s *Set) isConfigured(c dap.HpkeConfig) bool {
	if s.opt.Configured == nil {
		return false
	}
	for _, k := range s.opt.Configured.Keys() {
		if same(c, dap.NewHpkeConfig(k)) {
			return true
		}
	}
	return false
}

// taking finds the key of a configuration among those that uploads may be sealed to now.
func (s *Set) taking(c dap.HpkeConfig, now time.Time) (serial uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.pair != nil && !k.over && !k.ended(now, s.opt.accepts) && same(c, dap.NewHpkeConfig(k.pair)) {
			return k.serial, true
		}
	}
	return 0, false
}

func same(a, b dap.HpkeConfig) bool {
	return a.ID == b.ID && a.KEM == b.KEM && a.KDF == b.KDF && a.AEAD == b.AEAD && bytes.Equal(a.Key, b.Key)
}
