// Package keeper opens the wrapping keys that a configuration names: files in a directory, a
// key management service, or the service beside the files that were there before it.
package keeper

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/kms"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// A Keeper has the wrapping keys of an aggregator. It implements [wrap.Wrapper]: the service
// wraps, where there is one, and what names one of its keys goes to it; the files have the
// rest.
type Keeper struct {
	service *kms.Service // nil: the files wrap
	ids     []string     // of the service's keys, the newest first
	files   *wrap.Files  // nil: there are none
	fsys    *disk.OSFS   // the directory above them
}

var _ wrap.Wrapper = (*Keeper)(nil)

// Open opens what a database's options name. Files must have a key; a service is asked
// nothing yet ([Keeper.Try]).
func Open(ctx context.Context, d *aggregator.Database) (k *Keeper, err error) {
	k = new(Keeper)
	defer func() {
		if err != nil {
			_ = k.Close()
		}
	}()
	if d.KMS != nil {
		k.ids = d.KMS.Keys
		if k.service, err = openService(d.KMS); err != nil {
			return k, err
		}
	}
	if d.WrappingKeys == "" {
		if k.service == nil {
			err = errors.New("a database without wrapping keys")
		}
		return k, err
	}
	if k.fsys, err = disk.OS(filepath.Dir(d.WrappingKeys)); err != nil {
		return k, fmt.Errorf("wrapping keys: %w", err)
	}
	if k.files, err = wrap.OpenFiles(k.fsys, filepath.Base(d.WrappingKeys), nil); err == nil {
		_, err = k.files.Newest(ctx)
	}
	if err != nil {
		return k, fmt.Errorf("wrapping keys: %s: %w (starling key wrapping --out DIR makes one; all processes have the same)", d.WrappingKeys, err)
	}
	return k, nil
}

func openService(o *aggregator.KMS) (*kms.Service, error) {
	opt := kms.Options{
		Endpoint: o.Endpoint, Region: o.Region, Keys: o.Keys, Credentials: service.Secret(o.Credentials), Profile: o.Profile,
	}
	if o.TLSCA != "" {
		b, err := os.ReadFile(o.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("kms: authorities: %w", err)
		}
		opt.RootCAs = x509.NewCertPool()
		if !opt.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("kms: authorities: no certificate in %s", o.TLSCA)
		}
	}
	return kms.Open(opt)
}

// Close closes the directory.
func (k *Keeper) Close() error {
	if k.fsys == nil {
		return nil
	}
	return k.fsys.Close()
}

// wraps is what new secrets are wrapped with.
func (k *Keeper) wraps() wrap.Wrapper {
	if k.service != nil {
		return k.service
	}
	return k.files
}

// Newest implements [wrap.Wrapper].
func (k *Keeper) Newest(ctx context.Context) (string, error) { return k.wraps().Newest(ctx) }

// Wrap implements [wrap.Wrapper].
func (k *Keeper) Wrap(ctx context.Context, secret, aad []byte) (wrap.Box, error) {
	return k.wraps().Wrap(ctx, secret, aad)
}

// Unwrap implements [wrap.Wrapper].
func (k *Keeper) Unwrap(ctx context.Context, box wrap.Box, aad []byte) ([]byte, error) {
	if k.files == nil || slices.Contains(k.ids, box.Key) {
		return k.service.Unwrap(ctx, box, aad)
	}
	return k.files.Unwrap(ctx, box, aad)
}

// Try wraps a secret that is none with the newest key, and unwraps it: so a service that
// cannot be reached, or refuses, is found out before a key has to be wrapped.
func (k *Keeper) Try(ctx context.Context) error {
	secret, aad := []byte("a secret of nothing"), []byte("for a try")
	box, err := k.Wrap(ctx, secret, aad)
	if err != nil {
		return err
	}
	back, err := k.Unwrap(ctx, box, aad)
	if err == nil && !bytes.Equal(back, secret) {
		err = wrap.ErrBox
	}
	return err
}

// Keys are the names of the keys that are here, the one that wraps first.
func (k *Keeper) Keys() ([]string, error) {
	names := slices.Clone(k.ids)
	if k.files == nil {
		return names, nil
	}
	files, err := k.files.Keys()
	return append(names, files...), err
}

// End destroys a key that is a file and not the newest of them, and says whether it was
// one: a service's ends there, and the newest file with its directory.
func (k *Keeper) End(name string) (gone bool, err error) {
	if k.files == nil || slices.Contains(k.ids, name) {
		return false, nil
	}
	err = k.files.End(name)
	if errors.Is(err, wrap.ErrInUse) {
		return false, nil
	}
	return err == nil, err
}
