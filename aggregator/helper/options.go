package helper

import (
	"errors"
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
	// Taskprov are the leaders that may bring tasks with their requests. Optional; without
	// one the helper ignores what requests advertise. Provide is required with it.
	Taskprov []aggregator.TaskPolicy
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Deferred > Always {
		return fmt.Errorf("helper: Deferred is %d", o.Deferred)
	}
	if err := o.Options.Validate(); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	if len(o.Taskprov) > 0 && o.Provide == nil {
		return errors.New("helper: nothing makes the tasks that leaders bring")
	}
	for i := range o.Taskprov {
		p := &o.Taskprov[i]
		if err := p.Validate(); err != nil {
			return fmt.Errorf("helper: %w", err)
		}
		for j := range i {
			if q := &o.Taskprov[j]; q.Name == p.Name || q.Leader == p.Leader {
				return fmt.Errorf("helper: the task policies %q and %q are of one name or leader", q.Name, p.Name)
			}
		}
	}
	return nil
}
