package hop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/showing"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

// issuers are one beside each hop, with the credentials of devices, by their numbers.
type issuers struct {
	b    *bench
	keys map[onion.Role]*arc.PrivateKey
	held map[int]showing.Held
	fail atomic.Pointer[error] // what a hop hears that asks for the key now
}

// withTokens has devices of a bench show credentials.
func (b *bench) withTokens() *bench {
	b.shows = &issuers{b: b, keys: map[onion.Role]*arc.PrivateKey{onion.First: arc.GenerateKey(), onion.Second: arc.GenerateKey()}, held: make(map[int]showing.Held)}
	if b.s.EnvelopeToken, b.s.MessageToken = arc.PresentationSize, arc.PresentationSize; b.s.Messages > 1 {
		b.s.MessageToken = arc.LimitedSize(b.s.Messages)
	}
	return b
}

var arcRoles = map[onion.Role]arc.Role{onion.First: arc.Hop1, onion.Second: arc.Hop2}

// issue gives a credential of an issuer's key.
func issue(b *bench, role onion.Role, k *arc.PrivateKey) *arc.Credential {
	p := arc.NewPending(arc.NewRequestContext(arcRoles[role], [32]byte{5}, 1, k.PublicKey().ID()))
	answer, err := k.Respond(p.Request())
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := p.Finalize(k.PublicKey(), answer)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (x *issuers) of(device int) showing.Held {
	h, ok := x.held[device]
	if !ok {
		h = showing.Held{First: issue(x.b, onion.First, x.keys[onion.First]), Second: issue(x.b, onion.Second, x.keys[onion.Second]),
			FirstKey: x.keys[onion.First].PublicKey().ID(), SecondKey: x.keys[onion.Second].PublicKey().ID()}
		x.held[device] = h
	}
	return h
}

// present is what a device shows; nil in the mode counted.
func (x *issuers) present(round uint64, device int) onion.Present {
	if x == nil {
		return nil
	}
	return showing.NewDevice(x.b.s.Recipe, round, x.b.s.Messages, x.of(device)).Present
}

func (x *issuers) verifier(role onion.Role) hop.Tokens {
	k := x.keys[role]
	id := k.PublicKey().ID()
	v := k.Verifier(arc.NewRequestContext(arcRoles[role], [32]byte{5}, 1, id))
	return showing.NewVerifier(role, x.b.s.Recipe, x.b.s.Messages, func(context.Context, uint64) (*arc.Verifier, arc.KeyID, error) {
		if fails := x.fail.Load(); fails != nil {
			return nil, id, *fails
		}
		return v, id, nil
	})
}

// inTokens runs a test in a bubble of its own, with the parties of a recipe in the mode tokens.
func inTokens(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1).withTokens()
		b.mustRun()
		defer b.stopAll()
		f(t, b)
	})
}

// TestTokens: contributions of devices with credentials go through both hops, over a loss of
// power too, and in the next round again; a device that contributes twice in a round counts
// once.
func TestTokens(t *testing.T) {
	inTokens(t, func(t *testing.T, b *bench) {
		n := b.round()
		b.contribute(b.envelopes(n, 0, 6)...)
		twice := b.envelopes(n, 2, 3)[0] // another contribution of device 2
		b.contribute(twice)
		b.restart(b.place(onion.First))
		b.flushed(n)
		got := devices(b.result(n))
		for d := range 6 {
			if got[d] != 3 {
				t.Errorf("%d messages of device %d", got[d], d)
			}
		}
		if r := b.result(n); r.Counts.Contributions != 6 || r.Counts.Refused != 1 || r.Counts.Missing() != 0 {
			t.Errorf("%+v", r.Counts)
		}
		if r := b.recipeStatus(onion.First).Requests; r["spent"] != 1 || r["unproved"] != 0 {
			t.Errorf("hop 1 counts %v", r)
		}
		next := b.round()
		b.contribute(b.envelopes(next, 0, 6)...)
		b.flushed(next)
		b.holdDevices(next, upTo(6)...)
	})
}

// TestTokensOfOne: where a contribution has one message both hops are shown presentations
// without a limit.
func TestTokensOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.s.Messages = 1
		b.withTokens().mustRun()
		defer b.stopAll()
		n := b.round()
		b.contribute(b.envelopes(n, 0, 5)...)
		b.contribute(b.envelopes(n, 0, 1)...)
		b.flushed(n)
		b.holdDevices(n, upTo(5)...)
	})
}

// TestTokensRefused: envelopes and messages without a token, or with one that was made for
// another message, contribution, round, hop, recipe or issuer, count for nothing, and spoil
// nobody else's.
func TestTokensRefused(t *testing.T) {
	inTokens(t, func(t *testing.T, b *bench) {
		n := b.round()
		k, shape := b.keys(n), b.s.Shape(b.round())
		var kept [2][]byte // what device 0 shows hop 1, and hop 2 with its first message
		present := b.shows.present(n, 0)
		_, err := shape.Seal(k, b.messages(0), func(to onion.Role, aad, bound []byte) ([]byte, error) { // which is not sent
			token, err := present(to, aad, bound)
			if i := int(to - onion.First); kept[i] == nil {
				kept[i] = token
			}
			return token, err
		})
		if err != nil {
			t.Fatal(err)
		}
		other := newBench(t, false, 9).withTokens() // whose issuers are others
		foreign := func(role onion.Role, device int) onion.Present {
			h, f := b.shows.of(device), other.shows.of(device)
			if role == onion.First {
				h.First = f.First
			} else {
				h.Second = f.Second
			}
			return showing.NewDevice(b.s.Recipe, n, b.s.Messages, h).Present
		}
		// swap replaces what a party is shown by something else.
		swap := func(role onion.Role, device int, with func(aad, bound []byte) []byte) onion.Present {
			p := b.shows.present(n, device)
			return func(to onion.Role, aad, bound []byte) ([]byte, error) {
				token, err := p(to, aad, bound)
				if to == role {
					return with(aad, bound), err
				}
				return token, err
			}
		}
		elsewhere := func(change func(*onion.Shape)) func(aad, bound []byte) []byte {
			s := shape
			change(&s)
			return func(_, bound []byte) []byte {
				token, err := showing.NewDevice(s.Recipe, s.Round, s.Messages, b.shows.of(50)).Present(onion.First, s.AAD(onion.First), bound)
				if err != nil {
					t.Fatal(err)
				}
				return token
			}
		}
		type wrong struct {
			name  string
			role  onion.Role
			shows onion.Present
		}
		list := []wrong{
			{"nothing, to hop 1", onion.First, swap(onion.First, 20, func(_, _ []byte) []byte { return make([]byte, arc.PresentationSize) })},
			{"what another contribution shows", onion.First, swap(onion.First, 21, func(_, _ []byte) []byte { return kept[0] })},
			{"a credential of another issuer", onion.First, foreign(onion.First, 22)},
			{"that of another round", onion.First, swap(onion.First, 23, elsewhere(func(s *onion.Shape) { s.Round++ }))},
			{"that of another recipe", onion.First, swap(onion.First, 24, elsewhere(func(s *onion.Shape) { s.Recipe[0]++ }))},
			{"nothing, to hop 2", onion.Second, swap(onion.Second, 25, func(_, _ []byte) []byte { return make([]byte, b.s.MessageToken) })},
			{"what another message shows", onion.Second, swap(onion.Second, 26, func(_, _ []byte) []byte { return kept[1] })},
			{"hop 2 a credential of another issuer", onion.Second, foreign(onion.Second, 27)},
		}
		var first, second uint64
		for _, w := range list {
			d := 20
			e, err := shape.Seal(k, b.messages(d), w.shows)
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			if b.contribute(e); w.role == onion.First {
				first++
			} else {
				second++
			}
		}
		b.contribute(b.envelopes(n, 1, 8)...)
		b.flushed(n)
		b.holdDevices(n, 1, 2, 3, 4, 5, 6, 7)
		if r := b.recipeStatus(onion.First); r.Requests["unproved"] != first || r.Requests["spent"] != 0 || r.Totals.Refused != first {
			t.Errorf("hop 1 counts %v, %+v; want %d", r.Requests, r.Totals, first)
		}
		if r := b.recipeStatus(onion.Second); r.Requests["unproved"] != 3*second || r.Totals.Dropped != 3*second || r.Totals.Doubled != 0 {
			t.Errorf("hop 2 counts %v, %+v; want %d", r.Requests, r.Totals, 3*second)
		}
		if c := b.result(n).Counts; c.Contributions != 7+second || c.DroppedSecond != 3*second {
			t.Errorf("%+v", c)
		}
	})
}

// onions are what hop 1 has of devices, opened: m of each.
func (b *bench) onions(n uint64, from, to int) (all [][]byte) {
	b.t.Helper()
	k := b.keys(n)
	for d := from; d < to; d++ {
		present := b.shows.present(n, d)
		for _, m := range b.messages(d) {
			enc, ct, err := k.Analyzer.Seal(info(3, b.s.Recipe, n), nil, m)
			if err != nil {
				b.t.Fatal(err)
			}
			all = append(all, b.sealSecond(n, present, append(enc, ct...)))
		}
	}
	return all
}

// sealSecond is an onion of a message that is sealed to the analyzer.
func (b *bench) sealSecond(n uint64, present onion.Present, inner []byte) []byte {
	b.t.Helper()
	token, err := present(onion.Second, b.s.Shape(n).AAD(onion.Second), inner)
	if err != nil {
		b.t.Fatal(err)
	}
	enc, ct, err := b.keys(n).Second.Seal(info(2, b.s.Recipe, n), nil, append(slices.Clip(token), inner...))
	if err != nil {
		b.t.Fatal(err)
	}
	return append(enc, ct...)
}

// TestPaddingHop: a first hop that hands on messages of fewer devices than the least batch, and
// fills it up with its own, with those of devices sealed anew, or with what one device may not
// show, gets nothing handed on; in the mode counted it would be alone to know.
func TestPaddingHop(t *testing.T) {
	for name, pad := range map[string]func(b *bench, n uint64, honest [][]byte) [][]byte{
		"its own, which show nothing": func(b *bench, n uint64, _ [][]byte) (all [][]byte) {
			for range 3 * b.s.Messages {
				all = append(all, b.sealSecond(n, func(onion.Role, []byte, []byte) ([]byte, error) { return make([]byte, b.s.MessageToken), nil }, make([]byte, b.s.Shape(n).Record(onion.Analyzer))))
			}
			return all
		},
		"its own, under a key of its own": func(b *bench, n uint64, _ [][]byte) [][]byte {
			other := newBench(b.t, false, 9).withTokens()
			mine := b.shows
			b.shows = &issuers{b: b, keys: other.shows.keys, held: make(map[int]showing.Held)}
			defer func() { b.shows = mine }()
			return b.onions(n, 10, 13)
		},
		"one device again and again": func(b *bench, n uint64, _ [][]byte) [][]byte {
			return slices.Concat(b.onions(n, 0, 1), b.onions(n, 1, 2), b.onions(n, 1, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTokens(t, func(t *testing.T, b *bench) {
				n := b.round()
				honest := b.onions(n, 0, 2)
				x := &batch{by: b.place(onion.First).signer, token: fromFirst, piece: 4, records: slices.Concat(honest, pad(b, n, honest))}
				x.m = &onion.Manifest{Recipe: b.s.Recipe, Round: n, Role: onion.First, At: b.s.Flush(n), Contributions: 5, Messages: 15, Root: rootOf(x.records)}
				time.Sleep(time.Until(b.s.Flush(n)))
				if word := b.hand(onion.Second, x); word != "" {
					t.Fatalf("refused at once, %s: hop 2 opens later", word)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				s := b.recipeStatus(onion.Second)
				if s.Totals.Rounds["few"] != 1 || s.Totals.Messages != 0 || s.Requests["unproved"]+s.Requests["spent"] != 9 {
					t.Errorf("%+v %v", s.Totals, s.Requests)
				}
				if b.result(n) != nil {
					t.Error("there is a result")
				}
			})
		})
	}
}

// TestTokensLater: a hop that cannot say now which tokens hold waits with the round, and one
// whose issuer has no key any more counts none.
func TestTokensLater(t *testing.T) {
	inTokens(t, func(t *testing.T, b *bench) {
		n := b.round()
		b.contribute(b.envelopes(n, 0, 5)...)
		unreadable := errors.New("the issuer's keys cannot be read")
		b.shows.fail.Store(&unreadable)
		b.flushed(n)
		if s := b.roundStatus(onion.First); s.Round != n || s.Trouble == "" {
			t.Errorf("%+v", s)
		}
		if r := b.recipeStatus(onion.First).Requests; r["unproved"] != 0 {
			t.Errorf("hop 1 counts %v", r)
		}
		b.shows.fail.Store(nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		b.holdDevices(n, upTo(5)...)

		n = b.round()
		b.contribute(b.envelopes(n, 0, 5)...)
		gone := fmt.Errorf("gone: %w", showing.ErrNoKey)
		b.shows.fail.Store(&gone)
		b.flushed(n)
		if s := b.recipeStatus(onion.First); s.Requests["unproved"] != 5 || s.Totals.Rounds["few"] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTagsStayInMemory: what devices show is on no disk once the round is handed on, and their
// tags never.
func TestTagsStayInMemory(t *testing.T) {
	inTokens(t, func(t *testing.T, b *bench) {
		n := b.round()
		var tags [][]byte
		k := b.keys(n)
		for d := range 5 {
			present := b.shows.present(n, d)
			e, err := b.s.Shape(n).Seal(k, b.messages(d), func(to onion.Role, aad, bound []byte) ([]byte, error) {
				token, err := present(to, aad, bound)
				if to == onion.First {
					p, err := arc.ReadPresentation(token)
					if err != nil {
						t.Fatal(err)
					}
					tag := p.Tag()
					tags = append(tags, tag[:])
				}
				return token, err
			})
			if err != nil {
				t.Fatal(err)
			}
			b.contribute(e)
		}
		b.flushed(n)
		for _, p := range b.parties {
			for name, content := range disktest.FilesOf(t, p.fs) {
				for _, tag := range tags {
					if bytes.Contains(content, tag[1:]) {
						t.Errorf("%v has a tag in %s", p.role, name)
					}
				}
			}
		}
	})
}

// TestTokenOptions: a hop of the mode tokens needs somebody who knows them, and no other does.
func TestTokenOptions(t *testing.T) {
	b := newBench(t, false, 1).withTokens()
	for _, role := range []onion.Role{onion.First, onion.Second} {
		o := b.options(b.place(role))
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
		tokens := o.Shuffles[0].Tokens
		if o.Shuffles[0].Tokens = nil; o.Validate() == nil {
			t.Errorf("%v checks no tokens", role)
		}
		o.Shuffles[0].Tokens, o.Shuffles[0].EnvelopeToken, o.Shuffles[0].MessageToken = tokens, 0, 0
		if o.Validate() == nil {
			t.Errorf("%v checks tokens that nobody shows", role)
		}
	}
}
