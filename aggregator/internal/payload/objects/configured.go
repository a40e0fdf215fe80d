package objects

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/internal/service"
)

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
