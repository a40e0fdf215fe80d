package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Domain strings of noise; docs/registry.md lists them.
const (
	domainNoise    = "starling noise row v1"
	domainOwnNoise = "starling noise row v2" // under the task's own key
)

// noisePart is how many entries of a release's noise one row has, which are in memory at one
// time of each release.
const noisePart = 1 << 15

// noiseRow is a row of the table noise.
type noiseRow struct {
	row int64
	span
	entries uint64
	key     uint64 // the data key that its parts are sealed under
	own     bool   // under the task's key, too
}

// name is what a part of it is sealed as.
func (n *noiseRow) name(t *task, part int) []byte {
	domain := domainNoise
	if n.own {
		domain = domainOwnNoise
	}
	b := append([]byte(domain), t.id[:]...)
	for _, v := range []uint64{n.first, n.last, n.entries, n.key, uint64(part)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

// parts is how many rows the noise has.
func (n *noiseRow) parts() int { return int((n.entries + noisePart - 1) / noisePart) }

// series is what a release with correlated noise adds to its transaction.
type series struct {
	lean  []noiseRow // the earlier releases that this one leans on, the latest first
	write bool       // its own noise is kept; false for the last of a series
	span             // of this release
	spent []int64    // nothing will lean on them any more
}

// next reads what the noise of a release is made from; a *correlated.OrderError if it may
// not be drawn.
func (t *task) next(tx *pgdb.Tx, s *store.Series, sel store.Selection) (x series, err error) {
	if t.mode != dap.TimeInterval {
		return x, errors.New("correlated noise follows the calendar, in which a leader-selected batch has no place")
	}
	if x.span, err = spanOf(sel.Interval); err != nil {
		return x, err
	}
	var past []noiseRow
	err = tx.Each("latest-noise", []any{t.row}, func(r pgdb.Row) error {
		var n noiseRow
		err := r.Scan(&n.row, &n.first, &n.last, &n.entries, &n.key, &n.own)
		past = append(past, n)
		return err
	})
	if err != nil {
		return x, err
	}
	released, _, err := t.lastRelease(tx)
	if err != nil {
		return x, err
	}
	latest := make([]correlated.Span, len(past))
	for i, n := range past {
		latest[i] = s.Rounds(n.first, n.last)
	}
	n, err := s.Rule.Next(s.Rounds(x.first, x.last), released, latest)
	if err != nil {
		return x, err
	}
	x.lean = past[:n]
	// One is always kept, to know the order by.
	keep := max(1, s.Rule.Strategy.Bands()-1)
	if x.write = released+1 != s.Rule.Rounds; !x.write {
		keep = 1 // which none is, for there is none of its own
	}
	for _, n := range past[min(len(past), keep-1):] {
		x.spent = append(x.spent, n.row)
	}
	return x, nil
}

// Order says whether correlated noise may be drawn; see [store.Releases].
func (s *Store) Order(ctx context.Context, id dap.TaskID, ser *store.Series, sel store.Selection) error {
	return s.view(ctx, "order", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err == nil {
			_, err = t.next(tx, ser, sel)
		}
		return err
	})
}

// correlate makes correlated noise of the draws of a release and keeps it, in its
// transaction. Memory beyond the two is a part of each release.
func (s *Store) correlate(tx *pgdb.Tx, t *task, key *datakey.Key, ser *store.Series, sel store.Selection, drawn []int64) (_ []int64, err error) {
	x, err := t.next(tx, ser, sel)
	if err != nil {
		return nil, err
	}
	if key, err = (taskKeys{s, t}).of(key); err != nil {
		return nil, err
	}
	defer key.Wipe()
	own := noiseRow{span: x.span, entries: uint64(len(drawn)), key: key.Serial, own: t.own()}
	if x.write {
		if _, err := tx.One("put-noise", []any{t.row, own.first, own.last, own.entries, own.key, own.own}, &own.row); err != nil {
			return nil, err
		}
	}
	noise := make([]int64, 0, len(drawn)) // grown it would leave copies behind
	defer func() {
		if err != nil {
			clear(noise[:cap(noise)])
		}
	}()
	for part := range own.parts() {
		now := drawn[part*noisePart : min(len(drawn), (part+1)*noisePart)]
		past := make([][]int64, len(x.lean))
		for i := range x.lean {
			if past[i], err = s.readNoise(tx, t, &x.lean[i], part, len(now)); err != nil {
				return nil, fmt.Errorf("noise of an earlier release: %w", err)
			}
		}
		next, err := ser.Rule.Strategy.Next(past, now)
		for i := range past {
			clear(past[i])
		}
		if err != nil {
			return nil, err
		}
		noise = append(noise, next...)
		if x.write {
			plain := make([]byte, 0, 8*len(next))
			for _, v := range next {
				plain = binary.BigEndian.AppendUint64(plain, uint64(v))
			}
			_, err = tx.Exec("put-noise-part", own.row, part, key.Seal(own.name(t, part), plain))
			clear(plain)
		}
		clear(next)
		if err != nil {
			return nil, err
		}
	}
	if len(x.spent) > 0 {
		if _, err := tx.Exec("drop-noise", x.spent); err != nil { // with its parts
			return nil, err
		}
	}
	return noise, nil
}

// readNoise reads a part of an earlier release's noise.
func (s *Store) readNoise(tx *pgdb.Tx, t *task, n *noiseRow, part, entries int) ([]int64, error) {
	var box []byte
	found, err := tx.One("noise-part", []any{n.row, part}, &box)
	if err = expect(found, err, "part of it"); err != nil {
		return nil, err
	}
	key, err := taskKeys{s, t}.by(n.key, n.own)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	plain, err := key.Open(n.name(t, part), box)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	if len(plain) != 8*entries {
		return nil, errors.New("it has another number of entries")
	}
	out := make([]int64, entries)
	for i := range out {
		out[i] = int64(binary.BigEndian.Uint64(plain[8*i:]))
	}
	return out, nil
}

// noise checks that the noise which later releases lean on can be read.
func (a *auditor) noise(tx *pgdb.Tx, t *task) error {
	var kept []noiseRow
	err := tx.Each("latest-noise", []any{t.row}, func(r pgdb.Row) error {
		var n noiseRow
		err := r.Scan(&n.row, &n.first, &n.last, &n.entries, &n.key, &n.own)
		kept = append(kept, n)
		return err
	})
	if err != nil {
		return err
	}
	for i := range kept {
		n := &kept[i]
		for part := range n.parts() {
			left := min(n.entries-uint64(part)*noisePart, noisePart)
			if left > math.MaxInt32 {
				break
			}
			if got, err := a.s.readNoise(tx, t, n, part, int(left)); err != nil {
				a.add("task %v: the noise of its release of %d to %d: %v", t.id, n.first, n.last, err)
				break
			} else {
				clear(got)
			}
		}
	}
	return nil
}
