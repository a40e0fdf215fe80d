package recipe

import (
	"fmt"

	"github.com/starling-agg/starling/dp/sketch"
)

// Tabled is a query that people answer by a text and whose released integers are a sketch,
// of which a [Table] is made: [Hierarchy], [HeavyHitters], [Distinct] and [Norm]. It is for
// recipes in which everybody reports: the number of reports, which the table counts on, is
// exact there.
type Tabled interface {
	Marked
	// Spell returns the numbers of an answer, and false where a text is none.
	Spell(text string) ([]uint64, bool)
	// Tabulate makes the table of released integers. It fails where they are not as many as
	// the query has. Each text that is asked for besides has a row of its own behind all
	// others, [sketch.None] where it is no answer.
	Tabulate(n Spread, sums []int64, reports uint64, asked []string) (*Table, error)
	whole() string
	expected(r *Recipe) string
}

// A Table is what a [Tabled] query was asked for.
type Table struct {
	Rows []TableRow `json:"rows"`
	// Search is how texts were found; nil where none were sought.
	Search *Search `json:"search,omitempty"`
}

// A TableRow is one number of a table, and what it is about.
type TableRow struct {
	Label string `json:"label"`
	Level int    `json:"level"` // from 1, the top; 0 of what the table has not
	Cell  Cell   `json:"cell"`
}

// noiseOf is what a sketch has to know of noise.
func noiseOf(n Spread) sketch.Noise {
	return sketch.Noise{Deviation: n.Deviation, Laplace: n.Scale, Draws: n.Draws}
}

// Table makes the table of a batch of reports from the released integers; nil where the
// query is not [Tabled]. It fails where they are not as many as the query has.
func (r *Recipe) Table(sums []int64, reports uint64, asked []string) (*Table, error) {
	q, ok := r.Query.(Tabled)
	if !ok {
		return nil, nil
	}
	t, err := q.Tabulate(r.Blurred(reports), sums, reports, asked)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	return t, nil
}
