package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"path"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// FailNoiseAfterWrite is the failpoint between the file of a release's noise and the
// transaction that names it.
const FailNoiseAfterWrite = "store.noise.after-write"

// A noise file is noiseMagic, a version, the number of entries, and the entries: int64,
// big-endian, in units of 2^-k.
const (
	noiseMagic   = "starlnoi"
	noiseVersion = 1
	noiseHeader  = len(noiseMagic) + 1 + 7 + 8
	noiseChunk   = 8192 // entries that are in memory at one time, of each file
)

// noiseRow is a row of the table noise.
type noiseRow struct {
	id int64
	span
	name string
	size int64
	sum  [sha256.Size]byte
}

// series is what a release with correlated noise adds to its transaction.
type series struct {
	lean    []noiseRow // the earlier releases that this one leans on, the latest first
	written *noiseRow  // of this release; nil for the last of a series
	spent   []noiseRow // nothing will lean on them any more
}

// next reads what the noise of a release is made from; a *correlated.OrderError if it may
// not be drawn.
func (t *task) next(tx *database.Tx, s *store.Series, sel store.Selection) (x series, err error) {
	if t.Mode != dap.TimeInterval {
		return x, errors.New("store: correlated noise follows the calendar, in which a leader-selected batch has no place")
	}
	sp, err := spanOf(sel.Interval)
	if err != nil {
		return x, err
	}
	var past []noiseRow
	err = tx.Each("latest-noise", []any{t.row}, func(r database.Row) error {
		var n noiseRow
		var sum []byte
		err := r.Scan(&n.id, &n.first, &n.last, &n.name, &n.size, &sum)
		copy(n.sum[:], sum)
		past = append(past, n)
		return err
	})
	if err != nil {
		return x, err
	}
	var released uint64
	if _, err := tx.One("releases-of-task", []any{t.row}, &released); err != nil {
		return x, err
	}
	latest := make([]correlated.Span, len(past))
	for i, n := range past {
		latest[i] = s.Rounds(uint64(n.first), uint64(n.last))
	}
	rule := s.Rule
	n, err := rule.Next(s.Rounds(uint64(sp.first), uint64(sp.last)), released, latest)
	if err != nil {
		return x, err
	}
	x.lean = past[:n]
	// One is always kept, to know the order by.
	if keep := max(1, rule.Strategy.Bands()-1); released+1 == rule.Rounds {
		x.spent = past
	} else {
		x.written = &noiseRow{span: sp}
		x.spent = past[min(len(past), keep-1):]
	}
	return x, nil
}

// Order implements [store.Releases].
func (s *Store) Order(ctx context.Context, id dap.TaskID, ser *store.Series, sel store.Selection) error {
	t, err := s.task(id)
	if err != nil {
		return err
	}
	return s.view(ctx, "order", func(tx *database.Tx) error {
		_, err := t.next(tx, ser, sel)
		return err
	})
}

// correlate makes correlated noise of the draws of a release, and keeps it in a file.
// Memory beyond the two is a chunk of each file.
func (s *Store) correlate(ser *store.Series, x *series, drawn []int64) (_ []int64, err error) {
	past := make([]*noiseReader, len(x.lean))
	defer func() {
		for _, r := range past {
			if r != nil {
				r.close()
			}
		}
	}()
	for i, row := range x.lean {
		if past[i], err = s.openNoise(row, len(drawn)); err != nil {
			return nil, fmt.Errorf("store: noise of an earlier release: %w", err)
		}
	}
	noise := make([]int64, 0, len(drawn)) // grown it would leave copies behind, and so would out
	defer func() {
		if err != nil {
			clear(noise[:cap(noise)])
		}
	}()
	step := func(w io.Writer) error {
		chunks := make([][]int64, len(past))
		out := make([]byte, 0, 8*min(noiseChunk, len(drawn)))
		defer func() { clear(out[:cap(out)]) }()
		for left := drawn; len(left) > 0; {
			now := left[:min(len(left), noiseChunk)]
			left = left[len(now):]
			for i, r := range past {
				if chunks[i], err = r.next(len(now)); err != nil {
					return err
				}
			}
			next, err := ser.Rule.Strategy.Next(chunks, now)
			if err != nil {
				return err
			}
			noise = append(noise, next...)
			out = out[:0]
			for _, v := range next {
				out = binary.BigEndian.AppendUint64(out, uint64(v))
			}
			clear(next)
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		for _, r := range past {
			if err := r.check(); err != nil {
				return err
			}
		}
		return nil
	}
	if x.written == nil {
		err := step(io.Discard)
		return noise, err
	}
	random, err := s.random(16)
	if err != nil {
		return nil, err
	}
	x.written.name = path.Join(s.opt.Runs, hex.EncodeToString(random)+".noise")
	x.written.size = int64(noiseHeader + 8*len(drawn))
	err = disk.WriteStream(s.opt.FS, x.written.name, func(f io.Writer) error {
		hash := sha256.New()
		w := io.MultiWriter(f, hash)
		if _, err := w.Write(appendNoiseHeader(nil, len(drawn))); err != nil {
			return err
		}
		err := step(w)
		hash.Sum(x.written.sum[:0])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("store: write noise: %w", err)
	}
	return noise, s.opt.Failpoints.Hit(FailNoiseAfterWrite)
}

func appendNoiseHeader(b []byte, entries int) []byte {
	b = append(append(b, noiseMagic...), noiseVersion, 0, 0, 0, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint64(b, uint64(entries))
}

// dropNoise removes files that no row names (any more). The next start sweeps those that
// stay.
func (s *Store) dropNoise(ctx context.Context, rows ...noiseRow) {
	names := make([]string, 0, len(rows))
	for _, n := range rows {
		if n.name != "" {
			names = append(names, n.name)
		}
	}
	if err := segment.Remove(s.opt.FS, names...); err != nil {
		s.opt.Logger.LogAttrs(ctx, slog.LevelWarn, "removing spent noise failed", slog.Any("error", err))
	}
}

// save is the part of a release's transaction.
func (x *series) save(tx *database.Tx, t *task) error {
	for _, n := range x.spent {
		if _, err := tx.Exec("drop-noise", n.id); err != nil {
			return err
		}
	}
	if n := x.written; n != nil {
		if _, err := tx.Insert("put-noise", t.row, n.first, n.last, n.name, n.size, n.sum[:]); err != nil {
			return err
		}
	}
	return nil
}

// A noiseReader reads a noise file from its beginning to its end, once.
type noiseReader struct {
	file disk.File
	in   io.Reader
	hash hash.Hash
	row  noiseRow
	raw  []byte
	out  []int64
}

var errNoise = errors.New("store: a noise file is not what its row says")

func (s *Store) openNoise(row noiseRow, entries int) (_ *noiseReader, err error) {
	f, err := s.opt.FS.Open(row.name)
	if err != nil {
		return nil, err
	}
	r := &noiseReader{file: f, hash: sha256.New(), row: row}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	want := appendNoiseHeader(nil, entries)
	if size != row.size || size != int64(len(want)+8*entries) {
		return nil, errNoise
	}
	r.in = io.TeeReader(io.NewSectionReader(f, 0, size), r.hash)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r.in, got); err != nil {
		return nil, err
	}
	if string(got) != string(want) {
		return nil, errNoise
	}
	return r, nil
}

// next reads n entries, which are valid until it is called again.
func (r *noiseReader) next(n int) ([]int64, error) {
	if cap(r.out) < n {
		r.raw, r.out = make([]byte, 8*n), make([]int64, n)
	}
	r.raw, r.out = r.raw[:8*n], r.out[:n]
	if _, err := io.ReadFull(r.in, r.raw); err != nil {
		return nil, err
	}
	for i := range r.out {
		r.out[i] = int64(binary.BigEndian.Uint64(r.raw[8*i:]))
	}
	return r.out, nil
}

// check holds what was read against the row.
func (r *noiseReader) check() error {
	if [sha256.Size]byte(r.hash.Sum(nil)) != r.row.sum {
		return errNoise
	}
	return nil
}

func (r *noiseReader) close() {
	clear(r.raw[:cap(r.raw)])
	clear(r.out[:cap(r.out)])
	r.file.Close()
}
