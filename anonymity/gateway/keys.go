package gateway

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// A keyset is what requests are opened with at one time; it does not change.
type keyset struct {
	ring *ohttp.Keyring
	byID map[uint8]*key
	list []*key // in the order of the options

	lists []*list // of keys for tokens
	// asks are the tasks that were ever given keys for tokens: without one nothing
	// of theirs counts from then on, whatever keys are there.
	asks map[[taskSize]byte]bool
	all  []tracked // of list and lists
}

// tracked is what came under a key of either kind.
type tracked struct {
	name   string
	raw    [journal.KeySize]byte // the name's bytes
	opened *opened
}

type key struct {
	Key
	raw    [journal.KeySize]byte // of its name
	opened *opened
}

// knows says whether a report of that name came under any of the keys. Gateway.claims
// must be held.
func (s *keyset) knows(name [journal.IDSize]byte) bool {
	for _, k := range s.list {
		if _, ok := k.opened.ids[name]; ok {
			return true
		}
	}
	return false
}

func (k *key) usable(c disk.Clock) bool { return k.NotAfter.IsZero() || c.Now().Before(k.NotAfter) }

// setKeys exchanges the keys while requests come in. A key that stays goes on with what
// it has opened; one that is not among the new ones opens nothing more when setKeys
// returns, what it has opened is forgotten, and a durable note is kept that it may not
// come back. No key at all is allowed: every request is refused then.
//
// It fails and changes nothing with [ErrRetired] if a key was in use and then was not, and
// with a *[StateError] if a key was in use with another state, or what it has opened is not
// there. After an error of the disk the new
// keys may be in use, and calling it again does what is left.
func (g *Gateway) setKeys(keys []Key, lists []Admission) (err error) {
	g.rotate.Lock()
	defer g.rotate.Unlock()
	old := g.keys.Load()
	kept := make(map[string]*opened)
	if old != nil {
		for _, k := range old.all {
			kept[k.name] = k.opened
		}
	}
	next := &keyset{byID: make(map[uint8]*key)}
	if next.asks, err = g.asking(old, lists); err != nil {
		return err
	}
	names := make(map[string]bool)
	pairs := make([]*sealed.KeyPair, len(keys))
	for i, k := range keys {
		pairs[i] = k.Pair
	}
	if next.ring, err = ohttp.NewKeyring(pairs...); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	var begun []*opened
	take := func(note string, raw [journal.KeySize]byte) (*opened, error) {
		name := hex.EncodeToString(raw[:])
		o := kept[name]
		if o == nil {
			if err := g.note(note, raw); err != nil {
				return nil, err
			}
			var err error
			if o, err = g.openOpened(raw, name); err != nil {
				return nil, err
			}
			begun = append(begun, o)
			for _, c := range g.unsettled(raw) {
				o.add(c)
			}
		}
		names[name] = true
		next.all = append(next.all, tracked{name, raw, o})
		return o, nil
	}
	err = func() error {
		for _, k := range keys {
			raw, err := keyName(k.Pair)
			if err != nil {
				return fmt.Errorf("gateway: %w", err)
			}
			o, err := take(k.Note, raw)
			if err != nil {
				return err
			}
			made := &key{k, raw, o}
			next.byID[k.Pair.ID()], next.list = made, append(next.list, made)
		}
		for _, a := range lists {
			raw := a.Keys.Name()
			o, err := take(a.Note, raw)
			if err != nil {
				return err
			}
			next.lists = append(next.lists, &list{a, raw, o})
		}
		return nil
	}()
	if err != nil {
		for _, o := range begun {
			err = errors.Join(err, o.log.Close())
		}
		return err
	}
	g.keys.Store(next)
	var errs []error
	for name, o := range kept {
		if !names[name] {
			errs = append(errs, o.end())
		}
	}
	return errors.Join(append(errs, retire(g.o.FS, names))...)
}
