package keyset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
)

// beat tells the vault what this replica has, and takes over its clock.
func (s *Set) beat(ctx context.Context) (vault.Turn, error) {
	r := vault.Report{Seen: s.version, Held: make(map[string][]byte), Resigns: s.resigns}
	s.resigns = false
	s.mu.Lock()
	for _, k := range s.keys {
		if k.pair == nil {
			continue
		}
		secret, err := k.pair.Marshal()
		if err != nil {
			s.mu.Unlock()
			return vault.Turn{}, fmt.Errorf("keyset: %w", err)
		}
		defer clear(secret)
		r.Held[k.name()] = secret
		if k.holds > 0 {
			r.Busy = append(r.Busy, k.name())
		}
	}
	s.mu.Unlock()
	turn, err := s.vault.Beat(ctx, r)
	if err != nil {
		return turn, fmt.Errorf("keyset: %w", err)
	}
	if !turn.Alone {
		s.aside.Store(int64(turn.Now.Sub(s.opt.Clock.Now())))
	}
	return turn, nil
}

// follow beats, and takes over what other replicas have changed. s.step must be held.
func (s *Set) follow(ctx context.Context) (vault.Turn, error) {
	turn, err := s.beat(ctx)
	if err != nil {
		return turn, err
	}
	if turn.Alone {
		return turn, s.recount(ctx)
	}
	news, err := s.refresh(ctx)
	if err != nil {
		return turn, err
	}
	// Work that begins from here on has the keys that the others had when this life began,
	// or newer ones.
	s.mu.Lock()
	s.life = turn.Life
	s.mu.Unlock()
	if !news {
		return turn, nil
	}
	return s.beat(ctx) // for whoever waits for this replica
}

// recount finds out how many states the vault of one process has had, when a call failed of
// which nobody knows whether it took place. The next one replaces whatever is there.
func (s *Set) recount(ctx context.Context) error {
	if !s.unsure {
		return nil
	}
	_, version, err := s.vault.State(ctx)
	if err == nil {
		s.version = version
	}
	return err
}

// refresh takes over the state in the vault, if it is another one, and says whether it is.
// s.step must be held.
func (s *Set) refresh(ctx context.Context) (news bool, err error) {
	records, version, err := s.readState(ctx)
	switch {
	case err != nil:
		return false, err
	case version < s.version:
		return false, fmt.Errorf("%w: the state went back, from version %d to %d: the vault was put back; restore says how to go on",
			ErrDamaged, s.version, version)
	case version == s.version && !s.unsure:
		return false, nil
	}
	s.dirty = true // secrets of another maker
	return true, s.take(ctx, records, version)
}

// joining is how often a replica looks for a key that is offered before it serves.
const joining = 200 * time.Millisecond

// join waits until a key of each suite is offered, and makes them if it is the maker.
func (s *Set) join(ctx context.Context) error {
	s.step.Lock()
	defer s.step.Unlock()
	for first := true; ; first = false {
		turn, err := s.follow(ctx)
		if err == nil && turn.Maker && s.version == 0 {
			err = s.begin(ctx)
		}
		if err == nil && turn.Maker {
			_, err = s.rotate(ctx, turn, func(*record) bool { return false })
		}
		if errors.Is(err, vault.ErrStale) {
			err = nil
		}
		if err != nil {
			return err
		}
		if s.offers() {
			_, err = s.beat(ctx)
			return err
		}
		if first && turn.Maker {
			continue
		}
		timer := s.opt.Clock.NewTimer(joining)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("keyset: no HPKE key is offered yet, and this replica is not the maker: %w", ctx.Err())
		}
	}
}

// offers says whether a key of each suite is offered.
func (s *Set) offers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, suite := range s.opt.Suites {
		if !slices.ContainsFunc(s.keys, func(k *key) bool { return k.suite == suite && k.current() && !k.offered.IsZero() }) {
			return false
		}
	}
	return true
}

// offer offers the keys that wait and that every peer has proved to hold, in the place of
// those that were. s.step must be held.
func (s *Set) offer(records []record, peers []vault.Peer, now time.Time) (offered bool, err error) {
	for i := range records {
		r := &records[i]
		if !r.current() || !r.offered.IsZero() {
			continue
		}
		held, err := s.heldByAll(r, peers)
		if err != nil {
			return false, err
		}
		if !held {
			continue
		}
		for j := range records {
			if before := &records[j]; j != i && before.suite == r.suite && before.current() && !before.offered.IsZero() {
				before.superseded = now
			}
		}
		r.offered, offered = now, true
	}
	return offered, nil
}

// heldByAll says whether every peer has proved that it holds a key, and notes who has not.
func (s *Set) heldByAll(r *record, peers []vault.Peer) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.keys, func(k *key) bool { return k.serial == r.serial })
	k := s.keys[i]
	secret, err := k.pair.Marshal()
	if err != nil {
		return false, fmt.Errorf("keyset: %w", err)
	}
	defer clear(secret)
	for _, p := range peers {
		if !p.Holds(r.name(), secret) {
			k.why = "replica " + p.Name + " does not hold it yet"
			return false, nil
		}
	}
	k.why = ""
	return true, nil
}

// closedByAll says whether no replica begins work with a key any more, or has any under
// way. The first time, where there are replicas, it closes the key for all of them.
func (s *Set) closedByAll(ctx context.Context, turn vault.Turn, k *key) (bool, error) {
	if turn.Alone {
		return true, nil
	}
	if k.record.closed == 0 {
		records := s.records()
		i := slices.IndexFunc(records, func(r record) bool { return r.serial == k.serial })
		records[i].closed = s.version + 1
		if err := s.save(ctx, records); err != nil {
			return false, err
		}
		s.adopt(records, nil)
		return false, nil // the peers of this beat may have begun work since
	}
	for _, p := range turn.Peers {
		if p.Seen < k.record.closed || slices.Contains(p.Busy, k.name()) {
			s.mu.Lock()
			k.why = underWay + " at replica " + p.Name
			s.mu.Unlock()
			return false, nil
		}
	}
	return true, nil
}

// ProvedBy lists the ids of the keys that a replica has proved to hold, in order.
func (s *Set) ProvedBy(p *vault.Peer) (ids []uint8, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.pair == nil {
			continue
		}
		secret, err := k.pair.Marshal()
		if err != nil {
			return nil, fmt.Errorf("keyset: %w", err)
		}
		if p.Holds(k.name(), secret) {
			ids = append(ids, k.id)
		}
		clear(secret)
	}
	slices.Sort(ids)
	return ids, nil
}
