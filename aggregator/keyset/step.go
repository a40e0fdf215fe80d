package keyset

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
)

// Needs says what an aggregator still needs an ended key for, in words, or "" where it
// needs it no more. Each report that the key's holds covered is durable or refused by
// then. Ended is the time from which no work may have begun with the key. An error leaves
// the key as it is.
type Needs func(ctx context.Context, id uint8, ended time.Time) (why string, err error)

// Step makes keys that are due and destroys those that have ended and are not needed, and
// says whether it did either. Call it every few seconds; what it could not do it does the
// next time.
func (s *Set) Step(ctx context.Context, needs Needs) (worked bool, err error) {
	if s.fixed {
		return false, nil
	}
	s.step.Lock()
	defer s.step.Unlock()
	turn, err := s.follow(ctx)
	if err != nil || !turn.Maker {
		return false, err
	}
	now := s.now()
	worked, err = s.rotate(ctx, turn, s.due(now))
	errs := []error{err, s.clean(ctx)}
	for _, k := range s.closing(now) {
		destroyed, err := s.end(ctx, turn, k, now, needs)
		worked, errs = worked || destroyed, append(errs, err)
	}
	errs = append(errs, s.forget(ctx, now))
	// Changes of another replica are taken over by the next step.
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, vault.ErrStale) })
	err = errors.Join(errs...)
	s.resigns = err != nil // another replica may fare better
	return worked, err
}

// closing lists the living keys whose time is over, and lets no more work begin with them.
func (s *Set) closing(now time.Time) (over []*key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.pair == nil || !k.ended(now, s.opt.life) {
			continue
		}
		k.over = true
		over = append(over, k)
	}
	return over
}

// end destroys a key unless it is needed. Repeating it is harmless.
func (s *Set) end(ctx context.Context, turn vault.Turn, k *key, now time.Time, needs Needs) (destroyed bool, err error) {
	// Work that had begun may yet become durable, so it must have ended before anybody
	// looks for it.
	if s.held(k) {
		return false, nil
	}
	if ready, err := s.closedByAll(ctx, turn, k); err != nil || !ready {
		return false, err
	}
	why, err := needs(ctx, k.id, s.opt.life(&k.record))
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	if why == "" && k.holds > 0 {
		why = underWay
	}
	k.why, k.ending = why, why == ""
	ending := k.ending
	s.mu.Unlock()
	if !ending {
		return false, nil
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		k.ending = false
	}()
	if err := s.opt.Failpoints.Hit(failBeforeDestroy); err != nil {
		return false, err
	}
	records := s.records()
	i := slices.IndexFunc(records, func(r record) bool { return r.serial == k.serial })
	records[i].destroyed = now
	if err := s.save(ctx, records); err != nil {
		return false, err
	}
	s.dirty = true
	s.adopt(records, nil)
	if err := s.opt.Failpoints.Hit(failAfterDestroy); err != nil {
		return false, err
	}
	if err := s.clean(ctx); err != nil {
		return false, err
	}
	s.opt.Log.Info("HPKE key destroyed", "key", k.id)
	return true, nil
}

const underWay = "work that began before its end is under way"

func (s *Set) held(k *key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.holds > 0 {
		k.why = underWay
	}
	return k.holds > 0
}

// forget frees the ids of keys destroyed long ago. The newest record stays: the next id
// follows it.
func (s *Set) forget(ctx context.Context, now time.Time) error {
	records := s.records()
	kept := slices.DeleteFunc(slices.Clone(records), func(r record) bool {
		return !r.lives() && now.Sub(r.destroyed) >= s.opt.quarantine()
	})
	if len(kept) == len(records) {
		return nil
	}
	if err := s.save(ctx, kept); err != nil {
		return err
	}
	s.adopt(kept, nil)
	return nil
}

// Status lists the keys, the newest first, then the operator's.
func (s *Set) Status() []status.Key {
	now := s.now()
	var list []status.Key
	s.mu.Lock()
	for _, k := range slices.Backward(s.keys) {
		x := status.Key{ID: k.id, KEM: kemName(k.suite.KEM), Created: k.created}
		switch {
		case k.pair == nil:
			x.State, x.Until = status.KeyDestroyed, k.destroyed
		case k.offered.IsZero() && k.superseded.IsZero():
			x.State, x.Why = status.KeyWaiting, k.why
		case k.superseded.IsZero():
			x.State, x.Until = status.KeyCurrent, k.created.Add(s.opt.Period)
		case !k.over && !k.ended(now, s.opt.accepts):
			x.State, x.Until = status.KeyAccepted, s.opt.accepts(&k.record)
		default:
			x.State, x.Until, x.Why = status.KeyRetiring, s.opt.life(&k.record), k.why
		}
		list = append(list, x)
	}
	s.mu.Unlock()
	if s.opt.Configured != nil {
		for _, k := range s.opt.Configured.Keys() {
			list = append(list, status.Key{ID: k.ID(), KEM: kemName(k.Public().Suite().KEM), State: status.KeyConfigured})
		}
	}
	return list
}
