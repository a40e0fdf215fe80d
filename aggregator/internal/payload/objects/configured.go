package objects

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"os"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// Marks opens the place of marks, and finds out whether it keeps the contract of [payload].
func Marks(ctx context.Context, o *aggregator.Marks) (payload.Store, io.Closer, error) {
	s, place, err := OpenMarks(o)
	if err == nil && o.Objects != nil {
		if err = payload.Probe(ctx, s, "probe/"); err != nil {
			err = fmt.Errorf("marks: %w", err)
		}
	}
	return s, place, err
}

// OpenMarks is Marks that asks nothing of the place yet, and writes nothing there.
func OpenMarks(o *aggregator.Marks) (payload.Store, io.Closer, error) {
	if o.Objects != nil {
		s, err := Configured(o.Objects)
		if err != nil {
			return nil, nil, fmt.Errorf("marks: %w", err)
		}
		return s, io.NopCloser(nil), nil
	}
	dir, err := disk.OS(o.Directory)
	if err != nil {
		return nil, nil, fmt.Errorf("marks: %w", err)
	}
	return payload.OpenFiles(dir), dir, nil
}

// Configured opens what an aggregator's options name. It asks nothing of the store yet.
func Configured(o *aggregator.Objects) (*Store, error) {
	opt := Options{
		Endpoint: o.Endpoint, Region: o.Region, Bucket: o.S3Bucket, Prefix: o.Prefix, PathStyle: o.PathStyle,
		Credentials: service.Secret(o.Credentials), Profile: o.Profile,
	}
	if o.TLSCA != "" {
		b, err := os.ReadFile(o.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("objects: authorities: %w", err)
		}
		opt.RootCAs = x509.NewCertPool()
		if !opt.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("objects: authorities: no certificate in %s", o.TLSCA)
		}
	}
	return Open(opt)
}
