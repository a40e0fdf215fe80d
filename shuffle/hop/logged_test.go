package hop_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A logOf is a log as parties know it: it takes one thing about each party's round.
type logOf struct {
	mu      sync.Mutex
	away    bool
	keys    map[[2]uint64][]byte // by role and round
	batches map[uint64][]byte
}

var errAway = errors.New("the log is away")

func (l *logOf) publish(role onion.Role) func(context.Context, *hop.Publication) error {
	return func(_ context.Context, p *hop.Publication) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.away {
			return errAway
		}
		take := func(had, b []byte) ([]byte, error) {
			if had != nil && !bytes.Equal(had, b) {
				return had, errors.New("another is there")
			}
			return bytes.Clone(b), nil
		}
		var err error
		if at := [2]uint64{uint64(role), p.Round}; p.KeyList != nil {
			l.keys[at], err = take(l.keys[at], p.KeyList)
		} else {
			l.batches[p.Round], err = take(l.batches[p.Round], p.Manifest)
		}
		return err
	}
}

// TestLogged: the key of every round of every party goes to the log before the round, in the
// same bytes after a loss of power, and nothing is tallied of a batch before what both hops
// signed of it is there.
func TestLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.s.Logged = true
		l := &logOf{keys: make(map[[2]uint64][]byte), batches: make(map[uint64][]byte), away: true}
		b.publish = l.publish
		b.mustRun()
		defer b.stopAll()
		synctest.Wait()
		now := b.s.Round(time.Now())
		if s := b.roundStatus(onion.First); s.Logged || s.Unlogged == "" {
			t.Errorf("a log that is away: %+v", s)
		}
		l.mu.Lock()
		l.away = false
		l.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for role := onion.First; role <= onion.Analyzer; role++ {
			for n := now; n < now+3; n++ {
				key, err := b.list(role).Key(n)
				if err != nil {
					t.Fatal(err)
				}
				list, root, err := onion.ReadKeyList(l.keys[[2]uint64{uint64(role), n}])
				if err != nil || list.First != n || list.Role != role || root != b.place(role).signer.Root() || list.Keys[0] != [32]byte(key.Bytes()) {
					t.Errorf("%v, round %d: %+v, %v", role, n, list, err)
				}
			}
		}
		b.restart(b.place(onion.Second)) // which sends the same bytes, or the log would refuse them
		time.Sleep(time.Second)
		synctest.Wait()
		if s := b.roundStatus(onion.Second); !s.Logged || s.Unlogged != "" {
			t.Errorf("after a start: %+v", s)
		}
		b.contribute(b.envelopes(now, 0, 6)...)
		time.Sleep(time.Until(b.s.Flush(now)))
		l.mu.Lock()
		l.away = true
		l.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := b.recipeStatus(onion.Analyzer); s.Totals.Rounds["tallied"] != 0 || s.Rounds[0].Trouble == "" || b.tallied() != 0 {
			t.Errorf("tallied while the log is away: %+v", s)
		}
		l.mu.Lock()
		l.away = false
		l.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if s := b.recipeStatus(onion.Analyzer); s.Totals.Rounds["tallied"] != 1 {
			t.Errorf("not tallied: %+v", s)
		}
		m, roots, err := onion.ReadManifest(l.batches[now])
		if err != nil || m.Contributions != 6 || roots != [2]signed.PublicKey{b.s.First, b.s.Second} {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// TestUnlogged: who serves a recipe that names a log needs a way to it.
func TestUnlogged(t *testing.T) {
	b := newBench(t, false, 1)
	b.s.Logged = true
	if _, err := hop.New(b.options(b.place(onion.First))); err == nil {
		t.Error("a hop of a logged recipe starts without a log")
	}
}
