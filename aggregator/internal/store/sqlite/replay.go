package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"path"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/service/database"
)

// bucketKey is the scope of replay protection.
type bucketKey struct {
	task   int64
	bucket int64
}

// replay keeps the run files of recently used buckets open. The zero value is ready.
type replay struct {
	commits keyed[bucketKey] // replay check and commit are one step
	loads   keyed[bucketKey] // one openBucket per key at a time
	merges  keyed[bucketKey]

	mu   sync.Mutex // guards what follows
	open map[bucketKey]*openBucket
	tick uint64
}

// openBucket is a bucket's runs in memory. While it has users it stays in replay.open, so that a commit and a lookup
// see the same one.
type openBucket struct {
	*segment.Runs
	users   int
	used    uint64 // tick of the last use
	retired bool   // out of replay.open; the last user closes it
}

// acquire opens the runs of a bucket; release must be called.
func (s *Store) acquire(ctx context.Context, k bucketKey) (b *openBucket, release func(), err error) {
	defer s.replay.loads.lock(k)()
	r := &s.replay
	r.mu.Lock()
	b = r.open[k]
	r.mu.Unlock()
	if b == nil {
		metas, err := s.runsOf(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		runs, err := segment.OpenRuns(s.opt.FS, metas)
		if err != nil {
			return nil, nil, err
		}
		b = &openBucket{Runs: runs}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[bucketKey]*openBucket)
	}
	r.open[k] = b
	r.tick++
	b.users, b.used = b.users+1, r.tick
	return b, func() { r.release(k, b, s.opt.MaxBuckets) }, nil
}

func (r *replay) release(k bucketKey, b *openBucket, limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.users--
	if b.retired {
		if b.users == 0 {
			b.Close()
		}
		return
	}
	for len(r.open) > limit {
		var oldest bucketKey
		var victim *openBucket
		for k, b := range r.open {
			if b.users == 0 && (victim == nil || b.used < victim.used) {
				oldest, victim = k, b
			}
		}
		if victim == nil {
			return // all in use
		}
		delete(r.open, oldest)
		victim.Close()
	}
}

// retire forgets a bucket whose memory no longer agrees with its rows; the next user loads it anew.
func (r *replay) retire(k bucketKey, b *openBucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[k] == b {
		delete(r.open, k)
		b.retired = true
	}
}

func (r *replay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.open {
		b.Close()
	}
	clear(r.open)
}

func (s *Store) runsOf(ctx context.Context, k bucketKey) (metas []segment.RunMeta, err error) {
	err = s.view(ctx, "runs-of-bucket", func(tx *database.Tx) error {
		return tx.Each("runs-of-bucket", []any{k.task, k.bucket}, func(r database.Row) error {
			var m segment.RunMeta
			var sum []byte
			if err := r.Scan(&m.Name, &m.Count, &m.Size, &sum); err != nil {
				return err
			}
			m.Sum = segment.Sum(sum)
			metas = append(metas, m)
			return nil
		})
	})
	return metas, err
}

func (s *Store) runName() (string, error) {
	b, err := s.random(16)
	return path.Join(s.opt.Runs, hex.EncodeToString(b)+".run"), err
}

func putRun(tx *database.Tx, k bucketKey, m segment.RunMeta) error {
	_, err := tx.Exec("put-run", k.task, k.bucket, m.Name, m.Count, m.Size, m.Sum[:])
	return err
}

// merge makes few runs of many when that is due. Commits go on meanwhile: runs are immutable, and only merges take any
// away.
func (s *Store) merge(ctx context.Context, k bucketKey, b *openBucket) {
	defer s.replay.merges.lock(k)()
	for plan := b.MergePlan(); plan != nil; plan = b.MergePlan() {
		if err := s.mergeOnce(ctx, k, b, plan); err != nil {
			s.opt.Logger.LogAttrs(ctx, slog.LevelWarn, "merging replay runs failed", slog.Any("error", err))
			return
		}
	}
}

func (s *Store) mergeOnce(ctx context.Context, k bucketKey, b *openBucket, plan []segment.RunMeta) error {
	name, err := s.runName()
	if err != nil {
		return err
	}
	merged, err := segment.Merge(s.opt.FS, name, plan, s.opt.Failpoints)
	if err != nil {
		return err
	}
	err = s.update(ctx, "merge-runs", func(tx *database.Tx) error {
		for _, m := range plan {
			if _, err := tx.Exec("drop-run", m.Name); err != nil {
				return err
			}
		}
		return putRun(tx, k, merged)
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) {
			_ = segment.Remove(s.opt.FS, name) // what stays is swept when the store is next opened
		}
		return err
	}
	if err := b.Replace(plan, merged); err != nil {
		s.replay.retire(k, b)
		return err
	}
	old := make([]string, len(plan))
	for i, m := range plan {
		old[i] = m.Name
	}
	return segment.Remove(s.opt.FS, old...)
}

// Seen implements [store.Store].
func (s *Store) Seen(ctx context.Context, task dap.TaskID, bucket dap.Time, ids []dap.ReportID) ([]bool, error) {
	t, err := s.task(task)
	if err != nil {
		return nil, err
	}
	if bucket > maxTime {
		return make([]bool, len(ids)), nil
	}
	b, release, err := s.acquire(ctx, bucketKey{t.row, int64(bucket)})
	if err != nil {
		return nil, err
	}
	defer release()
	return b.seen(ids)
}

// seen says which ids the runs hold. Equal ids in one call get equal answers, unlike with [segment.Runs.FilterNew].
func (b *openBucket) seen(ids []dap.ReportID) ([]bool, error) {
	distinct := make([]segment.ReportID, 0, len(ids))
	at := make(map[dap.ReportID]int, len(ids))
	for _, id := range ids {
		if _, ok := at[id]; !ok {
			at[id] = len(distinct)
			distinct = append(distinct, segment.ReportID(id))
		}
	}
	held, err := b.FilterNew(distinct)
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = held[at[id]]
	}
	return out, nil
}
