package postgres

import (
	"sync"

	"github.com/starling-agg/starling/internal/pgdb"
)

const (
	// openAtOnce is how many open batches a claim looks at in one statement.
	openAtOnce = 64
	// mostFull is of how many tasks a handle remembers which batches are full.
	mostFull = 10_000
)

// full is what a handle knows of leader-selected batches that take no further report: those
// whose verified reports are the minimum, which no batch ever loses. So a claim does not add
// up all batches that nobody has collected. The zero value is ready.
type full struct {
	mu sync.Mutex
	m  map[int64]int64 // by task: all its batches up to that one are
}

// fillable is the oldest open batch of a task that lacks reports, and how many it has or was
// assigned; row is 0 where there is none.
func (f *full) fillable(tx *pgdb.Tx, t *task) (row int64, id []byte, has uint64, err error) {
	f.mu.Lock()
	before := f.m[t.row]
	f.mu.Unlock()
	full, whole := before, true // so far
	for at, more := before, true; more && row == 0; {
		n := 0
		err := tx.Each("open-batches", []any{t.row, at, openAtOnce}, func(r pgdb.Row) error {
			var name []byte
			var verified, assigned uint64
			var held bool
			if err := r.Scan(&at, &name, &verified, &assigned, &held); err != nil {
				return err
			}
			n++
			if whole = whole && verified >= t.minimum(); whole {
				full = at
			}
			if row == 0 && !held && verified+assigned < t.minimum() {
				row, id, has = at, name, verified+assigned
			}
			return nil
		})
		if err != nil {
			return 0, nil, 0, err
		}
		more = n == openAtOnce
	}
	if full > before {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.m == nil || len(f.m) >= mostFull {
			f.m = make(map[int64]int64)
		}
		f.m[t.row] = max(f.m[t.row], full)
	}
	return row, id, has, nil
}
