package postgres

import "github.com/starling-agg/starling/aggregator/internal/payload"

// Rows is a payload store all of whose objects are rows, whatever their names.
func (s *Store) Rows() payload.Store { return objects{s: s, all: true} }
