package showing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/shuffle/onion"
)

// roleOf is the verifier's role of a hop.
func roleOf(to onion.Role) arc.Role {
	if to == onion.Second {
		return arc.Hop2
	}
	return arc.Hop1
}

// limited says whether a party is shown presentations under a limit.
func limited(to onion.Role, messages int) bool { return to == onion.Second && messages >= arc.MinLimit }

// Held are a device's credentials of the issuers beside both hops, with the names of these
// issuers' keys.
type Held struct {
	First, Second       *arc.Credential
	FirstKey, SecondKey arc.KeyID
}

// A Device shows the credentials of one device in one round of a recipe, with one contribution:
// a second one has the same tags, and is refused. It is not safe for concurrent use.
type Device struct {
	held  Held
	first *arc.TagBase
	// state gives each number once; nil where each contribution has one message.
	state  *arc.PresentationState
	second *arc.TagBase
	shown  map[onion.Role]int
	most   int
}

// ErrShown: the device has made its contribution of the round.
var ErrShown = errors.New("showing: one contribution of the round is made, and a second would show the same tags")

// NewDevice is for contributions of a number of messages, as the recipe has it.
func NewDevice(recipe [32]byte, round uint64, messages int, h Held) *Device {
	second := arc.NewPresentationContext(arc.Hop2, recipe, round, h.SecondKey)
	d := &Device{held: h, first: arc.NewTagBase(arc.NewPresentationContext(arc.Hop1, recipe, round, h.FirstKey)), shown: make(map[onion.Role]int), most: messages}
	if limited(onion.Second, messages) {
		d.state = h.Second.NewPresentationState(second, messages)
	} else {
		d.second = arc.NewTagBase(second)
	}
	return d
}

// Present is an [onion.Present]. It fails with [ErrShown]. Nothing of which numbers are taken
// is written down here: the ledger, which is charged before, keeps a device to one contribution
// a round over restarts.
func (d *Device) Present(to onion.Role, aad, bound []byte) ([]byte, error) {
	most := 1
	if to == onion.Second {
		most = d.most
	}
	if d.shown[to] == most {
		return nil, ErrShown
	}
	d.shown[to]++
	b := arc.Bind(roleOf(to), aad, bound)
	switch {
	case to == onion.First:
		return d.held.First.Present(d.first, b).Append(nil), nil
	case to != onion.Second:
		return nil, fmt.Errorf("showing: internal error: nothing is shown to %v", to)
	case d.state == nil:
		return d.held.Second.Present(d.second, b).Append(nil), nil
	}
	list, err := d.state.Present(func([]byte) error { return nil }, b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrShown, err)
	}
	return list[0].Append(nil), nil
}

// Keys find the key of the issuer beside a hop for the epoch of a round. They fail with an error
// that wraps [ErrNoKey] where there never was one or it is destroyed, so that nothing that is
// shown can hold; any other error is of now.
type Keys func(ctx context.Context, round uint64) (*arc.Verifier, arc.KeyID, error)

// ErrNoKey: the issuer has no key of the round's epoch, and never will.
var ErrNoKey = errors.New("showing: no key of the epoch")

// A Verifier is a hop.Tokens. Safe for concurrent use.
type Verifier struct {
	role     onion.Role
	recipe   [32]byte
	messages int
	keys     Keys

	mu    sync.Mutex
	round uint64 // of base; guarded by mu
	key   arc.KeyID
	base  *arc.TagBase // nil: none yet
}

// NewVerifier is that of a hop of a recipe whose contributions have a number of messages.
func NewVerifier(role onion.Role, recipe [32]byte, messages int, keys Keys) *Verifier {
	return &Verifier{role: role, recipe: recipe, messages: messages, keys: keys}
}

// tagBase is that of a round, kept for the next batch of it.
func (v *Verifier) tagBase(round uint64, key arc.KeyID) *arc.TagBase {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.base == nil || v.round != round || v.key != key {
		v.round, v.key, v.base = round, key, arc.NewTagBase(arc.NewPresentationContext(roleOf(v.role), v.recipe, round, key))
	}
	return v.base
}

// Verify says what is known of each token, all of one round, in one batch: each verdict's
// error wraps [onion.ErrToken].
func (v *Verifier) Verify(ctx context.Context, round uint64, aad []byte, shown []onion.Opened) ([]onion.Verdict, error) {
	all := make([]onion.Verdict, len(shown))
	verifier, key, err := v.keys(ctx, round)
	if errors.Is(err, ErrNoKey) {
		for i := range all {
			all[i].Err = fmt.Errorf("%w: %w", onion.ErrToken, err)
		}
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	base := v.tagBase(round, key)
	var at []int // of those that can be read
	var one []arc.Item
	var more []arc.LimitedItem
	for i, x := range shown {
		b := arc.Bind(roleOf(v.role), aad, x.Parts)
		var tag arc.Tag
		if limited(v.role, v.messages) {
			p, err := arc.ReadLimitedPresentation(x.Token, v.messages)
			if err != nil {
				all[i].Err = fmt.Errorf("%w: %w", onion.ErrToken, err)
				continue
			}
			more, tag = append(more, arc.LimitedItem{Base: base, Binding: b, Presentation: p}), p.Tag()
		} else {
			p, err := arc.ReadPresentation(x.Token)
			if err != nil {
				all[i].Err = fmt.Errorf("%w: %w", onion.ErrToken, err)
				continue
			}
			one, tag = append(one, arc.Item{Base: base, Binding: b, Presentation: p}), p.Tag()
		}
		at, all[i].Tag = append(at, i), sha256.Sum256(tag[:])
	}
	errs := verifier.VerifyBatch(one)
	if limited(v.role, v.messages) {
		errs = verifier.VerifyLimitedBatch(more, v.messages)
	}
	for j, i := range at {
		if errs[j] != nil {
			all[i].Err = fmt.Errorf("%w: %w", onion.ErrToken, errs[j])
		}
	}
	return all, nil
}
