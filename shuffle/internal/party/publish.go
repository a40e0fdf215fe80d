package party

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/onion"
)

// A Publication is what a party has put into a transparency log: one of KeyList and Manifest.
type Publication struct {
	Recipe [32]byte
	Round  uint64
	// KeyList is the signed list of the party's key for that round, and of no other.
	KeyList []byte
	// Manifest is hop 2's, with hop 1's in it, of the batch that the analyzer has.
	Manifest []byte
}

// listFile is the signed list of a round's key as it goes to the log: signed once, so that
// the same bytes go there after a start.
const listFile = "list"

// Waits between two attempts to have keys logged.
const (
	firstLogging   = time.Second
	longestLogging = time.Minute
)

// keepLogged has the keys of all rounds to come logged, until ctx ends: devices take none of a
// recipe that names a log from anywhere else.
func (p *Party) keepLogged(ctx context.Context) {
	for wait := firstLogging; ctx.Err() == nil; {
		next := idle
		if p.logKeys(ctx) {
			wait = firstLogging
		} else {
			next, wait = wait, min(2*wait, longestLogging)
		}
		timer := p.o.Clock.NewTimer(next)
		select {
		case <-p.fresh:
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// logKeys has the keys logged that are not yet, and says whether none is left.
func (p *Party) logKeys(ctx context.Context) bool {
	now := p.o.Clock.Now()
	var rounds []*round
	p.mu.Lock()
	for _, x := range p.shuffles {
		for _, n := range slices.Sorted(maps.Keys(x.rounds)) {
			if r := x.rounds[n]; x.Logged && r.key != nil && !r.logged && now.Before(x.Flush(n)) {
				rounds = append(rounds, r)
			}
		}
	}
	p.mu.Unlock()
	done := true
	for _, r := range rounds {
		b, err := p.list(r)
		if err == nil && b != nil {
			err = p.o.Publish(ctx, &Publication{Recipe: r.shuffle.Recipe, Round: r.number, KeyList: b})
		}
		if ctx.Err() != nil {
			return false
		}
		p.mu.Lock()
		said := r.unlogged
		if r.logged, r.unlogged = err == nil, ""; err != nil {
			r.unlogged, done = err.Error(), false
		}
		p.mu.Unlock()
		if err != nil && said == "" {
			p.o.Log.Warn("the key of a round is not in the log", slog.String("recipe", shortID(r.shuffle.Recipe)), slog.String("round", strconv.FormatUint(r.number, 10)), slog.Any("error", err))
		}
	}
	return done
}

// list is the signed list of a round's key, which is on the disk before it goes anywhere; nil
// where the round takes nothing any more.
func (p *Party) list(r *round) ([]byte, error) {
	r.gate.RLock() // nobody removes the round meanwhile
	defer r.gate.RUnlock()
	if r.closed {
		return nil, nil
	}
	b, err := disk.ReadFile(r.fs, listFile, onion.MaxKeyList)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	x := r.shuffle
	p.mu.Lock()
	key := r.key
	p.mu.Unlock()
	l := &onion.KeyList{Recipe: x.Recipe, Role: p.o.Role, First: r.number, Keys: [][32]byte{[32]byte(key.Public().Bytes())}, Issued: p.o.Clock.Now(), Until: x.Flush(r.number)}
	if b, err = l.Sign(p.o.Signer); err != nil {
		return nil, err
	}
	if err := disk.WriteFile(r.fs, listFile, b); err != nil {
		p.fail(err)
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return b, nil
}

// logBatch has what both hops signed of a batch logged, before anything is made of it: there
// is no result of a batch of which two manifests could be shown. A *laterError leaves the round
// as it was.
func (p *Party) logBatch(ctx context.Context, r *round) error {
	if r.inbox.m == nil || !r.shuffle.Logged || r.batched {
		return nil
	}
	if err := p.o.Publish(ctx, &Publication{Recipe: r.shuffle.Recipe, Round: r.number, Manifest: r.inbox.manifest}); err != nil {
		return &laterError{fmt.Errorf("the log: %w", err)}
	}
	r.batched = true
	return nil
}
