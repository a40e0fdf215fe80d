package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap/keeper"
)

// A WrappingKey is one that wraps the aggregator's own keys in the database, has done so, or
// is there for it.
type WrappingKey struct {
	Name string
	// Wraps: new keys are wrapped by it.
	Wraps bool
	// Here: this machine's configuration has it.
	Here bool
	// Keys is how many keys in the database it wraps.
	Keys uint64
	// Ended: nothing is wrapped by it, nor will be.
	Ended bool
}

// keeping are an aggregator's wrapping keys, and what they wrap.
type keeping struct {
	keys    *keeper.Keeper
	secrets *postgres.Secrets
}

func reach(ctx context.Context, d *aggregator.Database) (k *keeping, err error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	k = new(keeping)
	if k.keys, err = keeper.Open(ctx, d); err != nil {
		return nil, err
	}
	if k.secrets, err = postgres.OpenSecrets(ctx, postgres.DatabaseOf(d), k.keys); err != nil {
		return nil, errors.Join(err, k.keys.Close())
	}
	return k, nil
}

func (k *keeping) close() error {
	k.secrets.Close()
	return k.keys.Close()
}

// list is what this machine and the database have, what wraps first and what ended last.
func (k *keeping) list(ctx context.Context) ([]WrappingKey, error) {
	here, err := k.keys.Keys()
	if err != nil {
		return nil, err
	}
	there, err := k.secrets.Wrappings(ctx)
	if err != nil {
		return nil, err
	}
	var list []WrappingKey
	for i, name := range here {
		list = append(list, WrappingKey{Name: name, Here: true, Wraps: i == 0})
	}
	for _, w := range there {
		i := slices.IndexFunc(list, func(x WrappingKey) bool { return x.Name == w.Key })
		if i < 0 {
			i = len(list)
			list = append(list, WrappingKey{Name: w.Key})
		}
		list[i].Keys, list[i].Ended = w.Secrets, w.Ended
	}
	return list, nil
}

// WrappingKeys lists the wrapping keys that this machine's configuration or the database
// knows.
func WrappingKeys(ctx context.Context, d *aggregator.Database) (list []WrappingKey, err error) {
	k, err := reach(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	return k.list(ctx)
}

// Rewrapped is what [Rewrap] did.
type Rewrapped struct {
	// Key wraps all keys now.
	Key string
	// Keys is how many it wraps that another one had wrapped.
	Keys int
	// Ended are the wrapping keys that ended; of those in files here the files are destroyed.
	Ended []string
	// Service are those of Ended that are no files here: whoever has them destroys them.
	Service []string
}

// Rewrap has the newest wrapping key wrap all keys in the database. Stopped on the way it is
// done again; two at once do it together. With end the older ones that this machine has, and
// which wrap nothing, end: for the whole aggregator first, and then here.
func Rewrap(ctx context.Context, d *aggregator.Database, end bool) (done Rewrapped, err error) {
	k, err := reach(ctx, d)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	if done.Key, err = k.keys.Newest(ctx); err != nil {
		return done, err
	}
	if done.Keys, err = k.secrets.Rewrap(ctx); err != nil || !end {
		return done, err
	}
	list, err := k.list(ctx)
	if err != nil {
		return done, err
	}
	var strange []string
	for _, w := range list {
		if !w.Here && w.Keys > 0 {
			strange = append(strange, w.Name)
		}
	}
	if len(strange) > 0 {
		return done, fmt.Errorf("keys in the database are wrapped by %s, which this machine does not have: nothing ends", strings.Join(strange, ", "))
	}
	for _, w := range list {
		if !w.Here || w.Wraps {
			continue
		}
		if err := k.secrets.End(ctx, w.Name, time.Now()); err != nil {
			return done, err
		}
		gone, err := k.keys.End(w.Name)
		if err != nil {
			return done, err
		}
		done.Ended = append(done.Ended, w.Name)
		if !gone {
			done.Service = append(done.Service, w.Name)
		}
	}
	return done, nil
}

// TryKMS has each key of a key management service wrap something that is no secret, and
// unwrap it.
func TryKMS(ctx context.Context, service *aggregator.KMS) error {
	for _, key := range service.Keys {
		one := *service
		one.Keys = []string{key}
		k, err := keeper.Open(ctx, &aggregator.Database{KMS: &one})
		if err == nil {
			err = k.Try(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
