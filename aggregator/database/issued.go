package database

import (
	"context"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
)

// Issued is the register of the issuer beside an aggregator.
type Issued = postgres.Issued

// OpenIssued opens the register of the issuer beside an aggregator, for a deployment, in the
// schema that the aggregator's processes share, as which it is one for all of them. It has
// three connections at most of its own. It fails with [aggregator.StoreError].
func OpenIssued(ctx context.Context, d aggregator.Database, deployment [32]byte) (*Issued, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	return postgres.OpenIssued(ctx, postgres.DatabaseOf(&d), deployment)
}
