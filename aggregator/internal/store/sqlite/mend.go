package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// damages are the runs of one task that are damaged, in sets that are mended together:
// those that may have an id in common, for nobody knows which of them had it.
func damages(runs []segment.Damage) (sets [][]segment.Damage) {
	wide := slices.ContainsFunc(runs, func(d segment.Damage) bool { return d.Range == segment.AllIDs })
	for _, d := range runs {
		i := slices.IndexFunc(sets, func(set []segment.Damage) bool { return wide || set[0].Range == d.Range })
		if i < 0 {
			sets = append(sets, []segment.Damage{d})
		} else {
			sets[i] = append(sets[i], d)
		}
	}
	return sets
}

// told is a set as the store tells of it. Its Sum is that of its file, or the SHA-256 of
// those of its files.
func told(set []segment.Damage) store.Damaged {
	slices.SortFunc(set, func(a, b segment.Damage) int { return cmp.Compare(a.Name, b.Name) })
	at := set[0].Range
	var out store.Damaged
	var sums []byte
	var whys []string
	for _, d := range set {
		if d.Range == segment.AllIDs {
			at = d.Range
		}
		out.IDs += d.Count
		sums = append(sums, d.Sum[:]...)
		whys = append(whys, d.Why)
	}
	out.Files, out.Low, out.High = len(set), dap.ReportID(at.Low), dap.ReportID(at.High)
	if out.Sum = set[0].Sum; len(set) > 1 {
		out.Sum = sha256.Sum256(sums)
	}
	if n := len(whys); n > 3 {
		whys = append(whys[:3], fmt.Sprintf("and %d more", n-3))
	}
	out.Why = strings.Join(whys, ", ")
	return out
}

// DamagedTasks implements [store.Replay].
func (s *Store) DamagedTasks(context.Context) (ids []dap.TaskID, err error) {
	s.replay.mu.Lock()
	defer s.replay.mu.Unlock()
	for row := range s.replay.damaged {
		if t := s.taskByRow(row); t != nil && !t.isRetired() {
			ids = append(ids, t.ID)
		}
	}
	return ids, nil
}

// Damaged implements [store.Replay].
func (s *Store) Damaged(_ context.Context, id dap.TaskID) ([]store.Damaged, error) {
	t, err := s.task(id)
	if err != nil {
		return nil, err
	}
	return s.known(t), nil
}

// known is the damage that was met in a task's runs.
func (s *Store) known(t *task) (out []store.Damaged) {
	s.replay.mu.Lock()
	defer s.replay.mu.Unlock()
	for _, set := range damages(s.replay.damaged[t.row]) {
		out = append(out, told(set))
	}
	return out
}

// CheckReplay implements [store.Replay].
func (s *Store) CheckReplay(ctx context.Context, id dap.TaskID) ([]store.Damaged, error) {
	t, err := s.task(id)
	if err != nil || t.isRetired() {
		return nil, err
	}
	b, release, err := s.acquire(ctx, idsOf(t.row))
	if err != nil {
		return nil, err
	}
	defer release()
	err = b.Recheck()
	s.replay.note(idsOf(t.row), b.Runs)
	return s.known(t), err
}

// Aggregated implements [store.Replay].
func (s *Store) Aggregated(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return s.lookUp(ctx, task, ids, (*segment.Runs).Known)
}

// AggregatedIDs implements [store.Replay].
func (s *Store) AggregatedIDs(ctx context.Context, task dap.TaskID, low, high dap.ReportID, n int) ([]dap.ReportID, error) {
	t, err := s.live(task)
	if err != nil {
		return nil, err
	}
	b, release, err := s.acquire(ctx, idsOf(t.row))
	if err != nil {
		return nil, err
	}
	defer release()
	ids, err := b.IDs(segment.Range{Low: segment.ReportID(low), High: segment.ReportID(high)}, n)
	out := make([]dap.ReportID, len(ids))
	for i, id := range ids {
		out[i] = dap.ReportID(id)
	}
	return out, err
}

// Mend implements [store.Replay]. One file is written anew, and its SHA-256 proves it.
// Several of which nobody knows which id was in which become one, which the sum of their
// digests proves.
func (s *Store) Mend(ctx context.Context, task dap.TaskID, sum [32]byte, ids []dap.ReportID) error {
	t, err := s.live(task)
	if err != nil {
		return err
	}
	defer s.merges.lock(idsOf(t.row))() // nobody else changes the runs that are there
	b, release, err := s.acquire(ctx, idsOf(t.row))
	if err != nil {
		return err
	}
	defer release()
	sets := damages(b.Damaged())
	i := slices.IndexFunc(sets, func(set []segment.Damage) bool { return told(set).Sum == sum })
	if i < 0 {
		return fmt.Errorf("store: mend: %w: no such damage", store.ErrNotFound)
	}
	sorted := make([]segment.ReportID, len(ids))
	for i, id := range ids {
		sorted[i] = segment.ReportID(id)
	}
	if err := disk.MakeDirs(s.opt.FS, s.opt.Runs); err != nil {
		return fmt.Errorf("store: mend: %w", err)
	}
	if len(sets[i]) == 1 {
		err = s.rewrite(ctx, t, b, sets[i][0], sorted)
	} else {
		err = s.renew(ctx, t, b, sets[i], sorted)
	}
	s.replay.note(idsOf(t.row), b.Runs)
	if errors.Is(err, segment.ErrProof) {
		return fmt.Errorf("store: mend: %w: %w", store.ErrMismatch, err)
	}
	if err != nil {
		return fmt.Errorf("store: mend: %w", err)
	}
	return nil
}

func (s *Store) rewrite(ctx context.Context, t *task, b *openRuns, d segment.Damage, ids []segment.ReportID) error {
	if err := segment.RewriteRun(s.opt.FS, d.RunMeta, ids, s.opt.Failpoints); err != nil {
		return err
	}
	if err := b.Recheck(); err != nil {
		return err
	}
	return s.Hurry(ctx, t.ID)
}

// Hurry implements [store.Leader].
func (s *Store) Hurry(ctx context.Context, task dap.TaskID) error {
	t, err := s.task(task)
	if err != nil {
		return err
	}
	return s.update(ctx, "hurry", func(tx *database.Tx) error {
		_, err := tx.Exec("hurry-jobs", t.row)
		return err
	})
}

func (s *Store) renew(ctx context.Context, t *task, b *openRuns, set []segment.Damage, ids []segment.ReportID) error {
	var want segment.SetDigest
	for _, d := range set {
		want.Add(d.Digest)
	}
	at := told(set)
	if int64(len(ids)) != at.IDs || segment.DigestOf(&s.setKey, ids) != want {
		return segment.ErrProof
	}
	name, err := s.runName()
	if err != nil {
		return err
	}
	meta, err := segment.WriteRun(s.opt.FS, name, &s.setKey, ids, s.opt.Failpoints)
	if err != nil {
		return err
	}
	meta.Range = segment.Range{Low: segment.ReportID(at.Low), High: segment.ReportID(at.High)}
	defer s.loads.lock(idsOf(t.row))()
	var moved step
	err = s.update(ctx, "renewed", func(tx *database.Tx) (err error) {
		if moved, err = putRuns(tx, idsOf(t.row), meta); err != nil {
			return err
		}
		for _, d := range set {
			if _, err := tx.Exec("drop-run", d.Name); err != nil {
				return err
			}
		}
		_, err = tx.Exec("hurry-jobs", t.row)
		return err
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) {
			_ = segment.Remove(s.opt.FS, name) // nothing names it
		}
		return err
	}
	if err := b.Renew(set, meta); err != nil {
		s.replay.retire(idsOf(t.row), b)
		return err
	}
	b.follow(moved)
	return nil
}

// answersAtOnce bounds the responses that are in memory together.
const answersAtOnce = 64

// Answers implements [store.Helper].
func (s *Store) Answers(ctx context.Context, task dap.TaskID, fn func(response []byte) error) error {
	t, err := s.task(task)
	if err != nil {
		return err
	}
	for last, n := int64(0), answersAtOnce; n == answersAtOnce; {
		var page [][]byte
		err := s.view(ctx, "answers-of-task", func(tx *database.Tx) error {
			page = nil
			return tx.Each("answers-of-task", []any{t.row, last, answersAtOnce}, func(r database.Row) error {
				var response []byte
				err := r.Scan(&last, &response)
				page = append(page, response)
				return err
			})
		})
		if err != nil {
			return err
		}
		for _, response := range page {
			if err := fn(response); err != nil {
				return err
			}
		}
		n = len(page)
	}
	return nil
}
