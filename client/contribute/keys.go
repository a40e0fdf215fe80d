package contribute

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Errors of key lists, to branch on with errors.Is; a *[KeysError] is around them.
var (
	// ErrStale: a list has no key of the present round, is of a later time, or counts rounds
	// otherwise than the recipe.
	ErrStale = errors.New("contribute: not a key list of this time")
	// ErrSharedKey: one key stands for two rounds, or two parties, so that more opens with it
	// than should.
	ErrSharedKey = errors.New("contribute: one key for two rounds or two parties")
	// ErrConflict: a party gave another key of the same round before: it may give each device
	// one of its own.
	ErrConflict = errors.New("contribute: another key of that round was given before")
	// ErrNotLogged: the log that the recipe names has no key of the party for the present
	// round, and no other key is taken.
	ErrNotLogged = errors.New("contribute: the log has no key of that party for this round")
)

// A KeysError: a party's key list cannot be used. errors.Is tells the errors above,
// [onion.ErrKeys], [signed.ErrSignature], [signed.ErrWindow] and [signed.ErrKey] apart.
type KeysError struct {
	Party onion.Role
	Err   error
}

func (e *KeysError) Error() string {
	return fmt.Sprintf("contribute: the key list of %v cannot be used: %v", e.Party, e.Err)
}
func (e *KeysError) Unwrap() error { return e.Err }

// Refresh fetches the key lists of all parties, unless it has those of the present round.
// Through a relay it fails with *[ohttp.SendingError] for a manifest by which contributions
// would come too late to be counted, and as [Manifests.Manifest] does; with
// *[client.RefusedError] where the log holds the recipe no longer, and for lists with
// *[KeysError]: then none is taken.
func (c *Contributor) Refresh(ctx context.Context) error {
	if err := c.o.Held(c.checked); err != nil {
		return err
	}
	if c.o.Via != nil {
		m, err := c.o.Via.Source().Manifest(ctx)
		if err == nil {
			err = m.CheckSending(c.recipe.MaxSending())
		}
		if err != nil {
			return fmt.Errorf("contribute: manifest: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	round := c.shuffle.Round(c.o.Now())
	need, err := c.needs(c.o.Now())
	if err != nil {
		return err
	}
	if _, err := sealTo(c.held, need); err == nil {
		return nil
	}
	lists := make([]*onion.KeyList, len(c.parties))
	for i, p := range c.parties {
		if c.log != nil {
			var err error
			if lists[i], err = c.logged(p, round, need); err != nil {
				return &KeysError{p.role, err}
			}
			continue
		}
		b, err := c.fetch(ctx, p)
		if err != nil {
			return fmt.Errorf("contribute: fetch the key list of %v: %w", p.role, err)
		}
		if lists[i], err = c.read(b, p, round, need); err != nil {
			return &KeysError{p.role, err}
		}
	}
	if err := c.compare(lists); err != nil {
		return err
	}
	c.remember(lists, round)
	c.keyMu.Lock()
	c.held = lists
	c.keyMu.Unlock()
	return nil
}

// needs is the last of the shuffle's rounds that an answer of this time may be sent in.
func (c *Contributor) needs(now time.Time) (uint64, error) {
	unit, err := c.recipe.TimePrecision.At(now)
	if err != nil {
		return 0, fmt.Errorf("contribute: the present time: %w", err)
	}
	_, end := c.recipe.PartRounds(c.recipe.Round(unit))
	if last := c.shuffle.Last; last > 0 {
		end = min(end, last+1)
	}
	return end - 1, nil
}

// logged is a party's list as the log has it, an entry for each round: from the present one
// to the last that is needed, and on as far as none is missing. The log holds one key of a round, so that a list that the
// party itself hands out, to this device or to any other, is never asked for.
func (c *Contributor) logged(p party, round, need uint64) (*onion.KeyList, error) {
	var all *onion.KeyList
	for n := round; ; n++ {
		b, err := c.log.ShuffleKeys(c.shuffle.Recipe, p.role, n, p.root)
		if n > need && err != nil {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotLogged, err)
		}
		one, err := c.read(b, p, n, n)
		switch {
		case err != nil:
			return nil, err
		case all == nil:
			all = one
		default:
			all.Keys, all.Until = append(all.Keys, one.Keys...), one.Until
		}
	}
}

// fetch returns a party's list: that of the manifest if it pins one, and else the party's own.
func (c *Contributor) fetch(ctx context.Context, p party) ([]byte, error) {
	r := exchange.Request{
		Method: http.MethodGet, URL: dap.ResourceURL(p.url, onion.KeysPath(c.shuffle.Recipe)), Want: dap.Media(onion.KeysMedia), MaxBody: onion.MaxKeyList,
	}
	if c.o.Via != nil {
		answer, err := exchange.Do(ctx, c.o.Via, r, exchange.Retry{Attempts: 1})
		if direct := new(ohttp.DirectError); !errors.As(err, &direct) {
			return bodyOf(answer), err
		}
	}
	answer, err := exchange.Do(ctx, c.lists, r, c.retry)
	return bodyOf(answer), err
}

func bodyOf(a *exchange.Answer) []byte {
	if a == nil {
		return nil
	}
	return a.Body
}

// read holds one list to the recipe, its owner and the time.
func (c *Contributor) read(b []byte, p party, round, need uint64) (*onion.KeyList, error) {
	l, err := onion.OpenKeyList(b, p.root, c.shuffle.Recipe, p.role)
	if err != nil {
		return nil, err
	}
	last := l.First + uint64(len(l.Keys)) - 1
	switch now := c.o.Now(); {
	case l.Issued.After(now.Add(clockSkew)):
		return nil, fmt.Errorf("%w: it is of later than now", ErrStale)
	case !l.Until.Equal(c.shuffle.Flush(last)):
		return nil, fmt.Errorf("%w: it ends at another time than round %d is flushed", ErrStale, last)
	case round < l.First || max(round, need) > last:
		return nil, fmt.Errorf("%w: it has keys of rounds %d to %d, and none of %d", ErrStale, l.First, last, max(round, need))
	}
	for i := range l.Keys {
		if _, err := l.Key(l.First + uint64(i)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// compare holds the lists to one another, and to those before.
func (c *Contributor) compare(lists []*onion.KeyList) error {
	all := make(map[[signed.KeySize]byte]bool)
	for _, l := range lists {
		for i, k := range l.Keys {
			if all[k] {
				return &KeysError{l.Role, ErrSharedKey}
			}
			all[k] = true
			if before, ok := c.seen[roleRound{l.Role, l.First + uint64(i)}]; ok && before != k {
				return &KeysError{l.Role, fmt.Errorf("%w: round %d", ErrConflict, l.First+uint64(i))}
			}
		}
	}
	return nil
}

// remember takes note of keys, and forgets those of rounds before the present one.
func (c *Contributor) remember(lists []*onion.KeyList, round uint64) {
	for k := range c.seen {
		if k.round < round {
			delete(c.seen, k)
		}
	}
	for _, l := range lists {
		for i, k := range l.Keys {
			if n := l.First + uint64(i); n >= round {
				c.seen[roleRound{l.Role, n}] = k
			}
		}
	}
}

// sealTo are the keys of a round, in the order of the lists.
func sealTo(lists []*onion.KeyList, round uint64) ([]*sealed.PublicKey, error) {
	if lists == nil {
		return nil, client.ErrNoKeys
	}
	keys := make([]*sealed.PublicKey, len(lists))
	for i, l := range lists {
		var err error
		if keys[i], err = l.Key(round); err != nil {
			return nil, fmt.Errorf("%w: %v: %w", client.ErrNoKeys, l.Role, err)
		}
	}
	return keys, nil
}
