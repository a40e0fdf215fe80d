// Package vaulttest holds every vault to the contract of package vault.
package vaulttest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
)

// A Harness has the vaults of one test.
type Harness interface {
	// Open opens a handle on the same secrets. Where Shared is false, the one before is
	// not used any more.
	Open(t *testing.T) vault.Vault
	// Shared says whether several handles may be used side by side.
	Shared() bool
	// Advance has time pass by the vault's clock.
	Advance(d time.Duration)
}

// Run runs the suite. Each test has a harness of its own.
func Run(t *testing.T, harness func(t *testing.T) Harness) {
	for _, test := range []struct {
		name   string
		shared bool
		run    func(t *testing.T, h Harness)
	}{
		{"States", false, states},
		{"Secrets", false, secrets},
		{"Stale", true, stale},
		{"SavesAtOnce", true, savesAtOnce},
		{"Makers", true, makers},
		{"Proofs", true, proofs},
		{"Lives", true, lives},
	} {
		t.Run(test.name, func(t *testing.T) {
			if h := harness(t); h.Shared() || !test.shared {
				test.run(t, h)
			}
		})
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// stated wants a state, and says its version.
func stated(t *testing.T, v vault.Vault, want string) uint64 {
	t.Helper()
	state, version, err := v.State(t.Context())
	if err != nil || string(state) != want || (version == 0) != (want == "") {
		t.Fatalf("state %q of version %d, %v; want %q", state, version, err, want)
	}
	return version
}

// named wants these secrets to be all.
func named(t *testing.T, v vault.Vault, want ...string) {
	t.Helper()
	names, err := v.Names(t.Context())
	if err != nil || !slices.Equal(names, want) {
		t.Fatalf("there are %q, %v; want %q", names, err, want)
	}
}

func states(t *testing.T, h Harness) {
	ctx, v := t.Context(), h.Open(t)
	stated(t, v, "")
	is(t, v.Save(ctx, []byte("one"), 7), vault.ErrStale)
	stated(t, v, "")
	is(t, v.Save(ctx, []byte("one"), 0), nil)
	at := stated(t, v, "one")
	is(t, v.Save(ctx, []byte("lost"), at-1), vault.ErrStale)
	is(t, v.Save(ctx, []byte("lost"), at+1), vault.ErrStale)
	is(t, v.Save(ctx, []byte("two"), at), nil)
	if after := stated(t, v, "two"); after != at+1 {
		t.Errorf("version %d follows %d", after, at)
	}
	v = h.Open(t)
	at = stated(t, v, "two")
	is(t, v.Save(ctx, []byte("three"), at), nil)
	stated(t, h.Open(t), "three")
}

func secrets(t *testing.T, h Harness) {
	ctx, v := t.Context(), h.Open(t)
	a, b := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 1300)
	is(t, v.Put(ctx, "00a", a), nil)
	is(t, v.Put(ctx, "00b", b), nil)
	is(t, v.Save(ctx, []byte("names them"), 0), nil)
	for range 2 {
		named(t, v, "00a", "00b")
		for name, want := range map[string][]byte{"00a": a, "00b": b} {
			if got, err := v.Get(ctx, name); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: %d bytes, %v", name, len(got), err)
			}
		}
		_, err := v.Get(ctx, "00c")
		is(t, err, fs.ErrNotExist)
		v = h.Open(t)
		stated(t, v, "names them")
	}
	is(t, v.Keep(ctx, []string{"00b"}, stated(t, v, "names them")), nil)
	is(t, v.Keep(ctx, []string{"00b"}, stated(t, v, "names them")), nil)
	_, err := v.Get(ctx, "00a")
	is(t, err, fs.ErrNotExist)
	v = h.Open(t)
	named(t, v, "00b")
	is(t, v.Keep(ctx, nil, stated(t, v, "names them")), nil)
	named(t, v)
}

// stale: a replica that does not know the state changes and destroys nothing.
func stale(t *testing.T, h Harness) {
	ctx, a, b := t.Context(), h.Open(t), h.Open(t)
	is(t, a.Save(ctx, []byte("one"), 0), nil)
	old := stated(t, b, "one")
	is(t, a.Put(ctx, "00a", []byte("secret")), nil)
	is(t, a.Save(ctx, []byte("two"), old), nil)
	is(t, b.Put(ctx, "00b", []byte("in vain")), nil)
	is(t, b.Save(ctx, []byte("lost"), old), vault.ErrStale)
	is(t, b.Keep(ctx, nil, old), vault.ErrStale)
	named(t, b, "00a")
	// What was put in vain does not come with the next state.
	is(t, b.Save(ctx, []byte("three"), stated(t, b, "two")), nil)
	named(t, a, "00a")
	stated(t, a, "three")
}

// savesAtOnce: of many changes that follow one state exactly one takes place, with its
// secret.
func savesAtOnce(t *testing.T, h Harness) {
	const replicas = 6
	for round := range uint64(3) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var won []string
		for i := range replicas {
			v := h.Open(t)
			wg.Go(func() {
				name := string([]byte{'0' + byte(round), 'a' + byte(i)})
				err := errors.Join(v.Put(context.Background(), name, []byte(name)), v.Save(context.Background(), []byte(name), round))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, name)
				} else if !errors.Is(err, vault.ErrStale) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%q followed one state", won)
		}
		v := h.Open(t)
		if at := stated(t, v, won[0]); at != round+1 {
			t.Errorf("version %d", at)
		}
		is(t, v.Keep(t.Context(), won, round+1), nil)
		named(t, v, won[0])
	}
}

func beat(t *testing.T, v vault.Vault, r vault.Report) vault.Turn {
	t.Helper()
	turn, err := v.Beat(t.Context(), r)
	if err != nil || turn.Alone {
		t.Fatalf("%+v, %v", turn, err)
	}
	return turn
}

// makers: one replica is the maker while it beats, and another one when it has been silent
// for the lease.
func makers(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	first := beat(t, a, vault.Report{})
	if !first.Maker || len(first.Peers) != 0 {
		t.Errorf("alone: %+v", first)
	}
	for range 3 {
		h.Advance(vault.Lease / 2)
		if turn := beat(t, b, vault.Report{Seen: 3}); turn.Maker || len(turn.Peers) != 1 || turn.Peers[0].Seen != 0 {
			t.Errorf("the second: %+v", turn)
		}
		if turn := beat(t, a, vault.Report{}); !turn.Maker || len(turn.Peers) != 1 || turn.Peers[0].Seen != 3 {
			t.Errorf("the first: %+v", turn)
		}
	}
	h.Advance(vault.Lease + time.Second)
	turn := beat(t, b, vault.Report{})
	if !turn.Maker || len(turn.Peers) != 0 {
		t.Errorf("after the first's end: %+v", turn)
	}
	if passed := turn.Now.Sub(first.Now); passed < 2*vault.Lease || passed > 4*vault.Lease {
		t.Errorf("%v passed", passed)
	}
	if turn := beat(t, a, vault.Report{}); turn.Maker || len(turn.Peers) != 1 {
		t.Errorf("the first, back: %+v", turn)
	}
	if turn := beat(t, b, vault.Report{Resigns: true}); turn.Maker {
		t.Errorf("it resigned: %+v", turn)
	}
	if turn := beat(t, a, vault.Report{}); !turn.Maker {
		t.Errorf("after the other resigned: %+v", turn)
	}
}

// proofs: a peer holds what it has proved, and nothing that it only says.
func proofs(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	held := map[string][]byte{"00a": []byte("secret a"), "00b": []byte("secret b")}
	beat(t, b, vault.Report{Held: map[string][]byte{"00a": held["00a"], "00b": []byte("a guess")}, Busy: []string{"00b", "00a"}})
	turn := beat(t, a, vault.Report{Held: held})
	if len(turn.Peers) != 1 {
		t.Fatalf("%+v", turn)
	}
	p := turn.Peers[0]
	if !p.Holds("00a", held["00a"]) || p.Holds("00b", held["00b"]) || p.Holds("00b", held["00a"]) || p.Holds("00c", held["00a"]) {
		t.Errorf("%+v", p)
	}
	if !slices.Equal(p.Busy, []string{"00a", "00b"}) {
		t.Errorf("busy: %q", p.Busy)
	}
	// The first one's proofs are not the second one's.
	other := beat(t, b, vault.Report{}).Peers[0]
	p.Proofs = other.Proofs
	if !other.Holds("00a", held["00a"]) || p.Holds("00a", held["00a"]) {
		t.Error("a proof of another replica is taken")
	}
}

// lives: a replica that was held dead goes on as another one, and proves what it holds as
// that; one that nobody has held dead is the same, however late it is.
func lives(t *testing.T, h Harness) {
	a, b := h.Open(t), h.Open(t)
	held := map[string][]byte{"00a": []byte("secret")}
	first := beat(t, a, vault.Report{Held: held}).Life
	if other := beat(t, b, vault.Report{}).Life; first == "" || other == first {
		t.Fatalf("lives %q and %q", first, other)
	}
	for range 2 {
		h.Advance(vault.Lease + time.Second)
		if life := beat(t, a, vault.Report{Held: held}).Life; life != first {
			t.Fatalf("life %q has become %q, and nobody held it dead", first, life)
		}
	}
	h.Advance(vault.Lease + time.Second)
	if turn := beat(t, b, vault.Report{}); len(turn.Peers) != 0 {
		t.Fatalf("the dead live: %+v", turn.Peers)
	}
	second := beat(t, a, vault.Report{Held: held}).Life
	if second == "" || second == first {
		t.Errorf("the life after death is %q, as before", second)
	}
	turn := beat(t, b, vault.Report{})
	if len(turn.Peers) != 1 || turn.Peers[0].Name != second || !turn.Peers[0].Holds("00a", held["00a"]) {
		t.Errorf("%+v, want %s, which holds the secret", turn.Peers, second)
	}
	is(t, a.Leave(t.Context()), nil)
	if turn := beat(t, b, vault.Report{}); len(turn.Peers) != 0 || !turn.Maker {
		t.Errorf("%+v after the other one left, want its turn", turn)
	}
	is(t, a.Leave(t.Context()), nil)
	if life := beat(t, a, vault.Report{}).Life; life == "" || life == second {
		t.Errorf("the life after the one that was left is %q", life)
	}
}
