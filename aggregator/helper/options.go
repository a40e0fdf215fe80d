package helper

import (
	"fmt"

	"github.com/starling-agg/starling/aggregator"
)

// Deferred says when a helper answers later instead of at once.
type Deferred uint8

const (
	// Never: the answer to a request is the result. The default.
	Never Deferred = iota
	// Always: requests are stored and answered by a worker; the leader polls. For helpers
	// behind proxies that cut long requests. A request, which holds the clients' sealed
	// shares, is erased from the database's files with its last step.
	Always
)

// Options make a helper.
type Options struct {
	aggregator.Options

	// Deferred says when to answer later. Default Never.
	Deferred Deferred
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Deferred > Always {
		return fmt.Errorf("helper: Deferred is %d", o.Deferred)
	}
	if err := o.Options.Validate(); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	return nil
}
