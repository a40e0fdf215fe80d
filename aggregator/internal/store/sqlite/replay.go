package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// A runsOf says whose runs they are: of the report ids of a task, or of the marks of one of
// its rounds.
type runsOf struct {
	task  int64 // its row
	marks bool
	round uint64
}

func idsOf(task int64) runsOf { return runsOf{task: task} }

func marksOf(task int64, round uint64) runsOf { return runsOf{task, true, round} }

// key are the columns task and round.
func (of runsOf) key(more ...any) []any {
	if of.marks {
		return append([]any{of.task, of.round}, more...)
	}
	return append([]any{of.task, nil}, more...)
}

// replay keeps the run files that were used recently open. The zero value is ready.
type replay struct {
	mu      sync.Mutex // guards what follows
	open    map[runsOf]*openRuns
	damaged map[int64][]segment.Damage // of report ids, by the task's row, as it was last found
	tick    uint64
}

// openRuns are runs in memory. While they have users they stay in replay.open, so that a
// commit and a lookup see the same ones.
type openRuns struct {
	*segment.Runs
	latest  int64 // row of the newest run when they were those of the rows; guarded by their loads
	users   int
	used    uint64 // tick of the last use
	retired bool   // out of replay.open; the last user closes it
}

// acquire opens runs, or those that have come since it did so last, whichever handle they
// are of; release must be called. Of marks it fails with [store.ErrMarks] where they are not
// what was written, and with errOver where their round has ended.
func (s *Store) acquire(ctx context.Context, of runsOf) (b *openRuns, release func(), err error) {
	defer s.loads.lock(of)()
	r := &s.replay
	if b = r.use(of); b == nil {
		metas, latest, err := s.listRuns(ctx, of, -1)
		if err != nil {
			return nil, nil, err
		}
		runs, err := segment.OpenRuns(s.opt.FS, metas)
		if err != nil {
			return nil, nil, err
		}
		runs.SetLimit(s.opt.RangeIDs)
		r.note(of, runs)
		b = r.begin(of, &openRuns{Runs: runs, latest: latest})
	} else if err := s.catchUp(ctx, of, b); err != nil {
		if errors.Is(err, errOver) {
			r.retire(of, b)
		}
		r.release(b, s.opt.MaxRuns)
		return nil, nil, err
	}
	if of.marks {
		if damaged := b.Damaged(); len(damaged) > 0 {
			r.retire(of, b) // whoever has put the file back is seen
			r.release(b, s.opt.MaxRuns)
			return nil, nil, s.noMarks(of, damaged[0].Why)
		}
	}
	return b, func() { r.release(b, s.opt.MaxRuns) }, nil
}

// catchUp takes in what other handles have done to runs since they were read.
func (s *Store) catchUp(ctx context.Context, of runsOf, b *openRuns) error {
	metas, latest, err := s.listRuns(ctx, of, b.latest)
	if err != nil || latest == b.latest {
		return err
	}
	if err := b.Follow(metas); err != nil {
		return err
	}
	b.latest = latest
	s.replay.note(of, b.Runs)
	return nil
}

// use returns the open runs of a kind, nil if there are none. Nobody closes them until
// release.
func (r *replay) use(of runsOf) *openRuns {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.open[of]
	if b != nil {
		r.tick++
		b.users, b.used = b.users+1, r.tick
	}
	return b
}

// begin keeps what was opened, and uses it.
func (r *replay) begin(of runsOf, b *openRuns) *openRuns {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = make(map[runsOf]*openRuns)
	}
	r.open[of] = b
	r.tick++
	b.users, b.used = 1, r.tick
	return b
}

// note remembers which ids are damaged. Marks are not: nobody else has them, to mend them.
func (r *replay) note(of runsOf, runs *segment.Runs) {
	if of.marks {
		return
	}
	damaged := runs.Damaged()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(damaged) == 0 {
		delete(r.damaged, of.task)
		return
	}
	if r.damaged == nil {
		r.damaged = make(map[int64][]segment.Damage)
	}
	r.damaged[of.task] = damaged
}

func (r *replay) release(b *openRuns, limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.users--
	if b.retired {
		if b.users == 0 {
			b.Close()
		}
		return
	}
	files := 0
	for _, b := range r.open {
		files += b.Len()
	}
	for files > limit {
		var oldest runsOf
		var victim *openRuns
		for k, b := range r.open {
			if b.users == 0 && (victim == nil || b.used < victim.used) {
				oldest, victim = k, b
			}
		}
		if victim == nil {
			return // all in use
		}
		files -= victim.Len()
		delete(r.open, oldest)
		victim.Close()
	}
}

// retire forgets runs whose memory no longer agrees with the rows; the next user loads
// them anew.
func (r *replay) retire(of runsOf, b *openRuns) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[of] == b {
		r.forget(of)
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

// add takes a run that was committed into what is open.
func (s *Store) add(of runsOf, m segment.RunMeta, at step) {
	defer s.loads.lock(of)()
	r := &s.replay
	r.mu.Lock()
	b := r.open[of]
	r.mu.Unlock()
	if b == nil {
		return // whoever loads the rows finds it there
	}
	if err := b.AddWhole(m); err != nil {
		// Committed all the same, and maybe merged since, by who loaded the rows before us:
		// then its file is gone. The rows know, and whoever comes next loads them.
		r.retire(of, b)
		return
	}
	b.follow(at)
}

// A step is what a transaction did to the rows of runs: the newest before it, and after.
type step struct{ before, after int64 }

// follow notes a step that was done to the open runs as well. Where others came between,
// the next acquire looks for them.
func (b *openRuns) follow(at step) {
	if b.latest == at.before {
		b.latest = at.after
	}
}

// flights are the commits under way, or the lists of marks. Their ids are neither in a
// run nor free: a commit that has one of them waits for the end of the other. So two
// commits of one task go side by side unless they have a report in common.
type flights struct {
	mu    sync.Mutex
	tasks map[int64][]*flight
}

type flight struct {
	ids  []segment.ReportID
	done chan struct{}
}

// begin waits until no commit under way has one of the ids, and claims them until end is
// called, which may be repeated. A commit that waits has claimed nothing.
func (f *flights) begin(ctx context.Context, task int64, ids []segment.ReportID) (end func(), err error) {
	mine := &flight{ids, make(chan struct{})}
	var set map[segment.ReportID]struct{} // made where there are others
	for {
		f.mu.Lock()
		others := f.tasks[task]
		if len(others) > 0 && set == nil {
			f.mu.Unlock()
			set = make(map[segment.ReportID]struct{}, len(ids))
			for _, id := range ids {
				set[id] = struct{}{}
			}
			continue
		}
		i := slices.IndexFunc(others, func(o *flight) bool {
			return slices.ContainsFunc(o.ids, func(id segment.ReportID) bool { _, ok := set[id]; return ok })
		})
		if i < 0 {
			if f.tasks == nil {
				f.tasks = make(map[int64][]*flight)
			}
			f.tasks[task] = append(others, mine)
			f.mu.Unlock()
			return sync.OnceFunc(func() { f.end(task, mine) }), nil
		}
		other := others[i]
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-other.done:
		}
	}
}

func (f *flights) end(task int64, mine *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := slices.DeleteFunc(f.tasks[task], func(o *flight) bool { return o == mine })
	if f.tasks[task] = left; len(left) == 0 {
		delete(f.tasks, task)
	}
	close(mine.done)
}

// listRuns reads the newest row of runs, and all of them unless that is known.
func (s *Store) listRuns(ctx context.Context, of runsOf, known int64) (metas []segment.RunMeta, latest int64, err error) {
	err = s.view(ctx, "runs-of-task", func(tx *database.Tx) error {
		if latest, err = latestRun(tx, of); err != nil {
			return err
		}
		if latest != known {
			err = tx.Each("runs-of", of.key(), func(r database.Row) error {
				_, m, err := scanRun(r)
				metas = append(metas, m)
				return err
			})
		}
		if err != nil || !of.marks {
			return err
		}
		want, over, err := marksOfRound(tx, of)
		switch got := totalOf(metas); {
		case err != nil:
			return err
		case over:
			return errOver
		case latest != known && got != want:
			return s.noMarks(of, fmt.Sprintf("there are %d, and were %d", got.count, want.count))
		}
		return nil
	})
	return metas, latest, err
}

// latestRun is the newest row of runs, 0 if there is none. Rows of it only go where others
// come, until the task is retired or the round is over, and no row has the id of an earlier
// one.
func latestRun(tx *database.Tx, of runsOf) (row int64, err error) {
	_, err = tx.One("latest-run", of.key(), &row)
	return row, err
}

// scanRun reads a row of the table run but for its id.
func scanRun(r database.Row) (of runsOf, m segment.RunMeta, err error) {
	var low, high, sum, digest []byte
	var round int64 // -1 for NULL
	if err := r.Scan(&of.task, &round, &low, &high, &m.Name, &m.Count, &m.Size, &sum, &digest); err != nil {
		return of, m, err
	}
	if m.Owned = round >= 0; m.Owned {
		of = marksOf(of.task, uint64(round))
	}
	m.Range = segment.Range{Low: segment.ReportID(low), High: segment.ReportID(high)}
	m.Sum, m.Digest = segment.Sum(sum), segment.SetDigest(digest)
	return of, m, nil
}

func (s *Store) runName() (string, error) {
	b, err := s.random(16)
	return path.Join(s.opt.Runs, hex.EncodeToString(b)+".run"), err
}

func putRuns(tx *database.Tx, of runsOf, metas ...segment.RunMeta) (at step, err error) {
	if at.before, err = latestRun(tx, of); err != nil {
		return at, err
	}
	at.after = at.before
	for _, m := range metas {
		at.after, err = tx.Insert("put-run", of.key(m.Range.Low[:], m.Range.High[:], m.Name, m.Count, m.Size, m.Sum[:], m.Digest[:])...)
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// merge makes few runs of many where that is due. Commits go on meanwhile: runs are
// immutable, and only merges take any away.
func (s *Store) merge(ctx context.Context, of runsOf) {
	defer s.merges.lock(of)()
	b, release, err := s.acquire(ctx, of)
	if err == nil {
		defer release()
		for plan := b.MergePlan(); plan != nil && err == nil; plan = b.MergePlan() {
			err = s.mergeOnce(ctx, of, b, plan)
		}
	}
	if err != nil && !errors.Is(err, errOver) {
		s.opt.Logger.LogAttrs(ctx, slog.LevelWarn, "merging replay runs failed", slog.Any("error", err))
	}
}

func (s *Store) mergeOnce(ctx context.Context, of runsOf, b *openRuns, plan *segment.Plan) error {
	merged, err := segment.Merge(s.opt.FS, s.runName, &s.setKey, plan, s.opt.Failpoints)
	if err != nil {
		return err
	}
	names := func(metas []segment.RunMeta) (names []string) {
		for _, m := range metas {
			names = append(names, m.Name)
		}
		return names
	}
	defer s.loads.lock(of)()
	var at step
	err = s.update(ctx, "merge-runs", func(tx *database.Tx) (err error) {
		if at, err = putRuns(tx, of, merged...); err != nil {
			return err
		}
		for _, m := range plan.Runs {
			if n, err := tx.Exec("drop-run", m.Name); err != nil {
				return err
			} else if n != 1 {
				return fmt.Errorf("internal error: %s is merged already", m.Name)
			}
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) {
			// what stays is swept when the store is next opened
			_ = segment.Remove(s.opt.FS, names(merged)...)
		}
		s.replay.retire(of, b)
		return err
	}
	if err := b.Replace(plan.Runs, merged); err != nil {
		s.replay.retire(of, b)
		return err
	}
	b.follow(at)
	s.replay.mu.Lock()
	current := s.replay.open[of]
	s.replay.mu.Unlock()
	if current != nil && current != b { // b was retired meanwhile
		s.replay.retire(of, current)
	}
	return segment.Remove(s.opt.FS, names(plan.Runs)...)
}

// Seen implements [store.Leader].
func (s *Store) Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return s.lookUp(ctx, task, ids, (*segment.Runs).FilterNew)
}

func (s *Store) lookUp(ctx context.Context, task dap.TaskID, ids []dap.ReportID, in func(*segment.Runs, []segment.ReportID) ([]bool, error)) ([]bool, error) {
	t, err := s.task(task)
	if err != nil {
		return nil, err
	}
	b, release, err := s.acquire(ctx, idsOf(t.row))
	if err != nil {
		return nil, err
	}
	defer release()
	// Equal ids in one call get equal answers, unlike from the runs.
	distinct := make([]segment.ReportID, 0, len(ids))
	at := make(map[dap.ReportID]int, len(ids))
	for _, id := range ids {
		if _, ok := at[id]; !ok {
			at[id] = len(distinct)
			distinct = append(distinct, segment.ReportID(id))
		}
	}
	held, err := in(b.Runs, distinct)
	if err != nil {
		return nil, s.damage(t.row, b, err)
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = held[at[id]]
	}
	return out, nil
}

// damage passes an error of a lookup on, and remembers what it says of the runs.
func (s *Store) damage(task int64, b *openRuns, err error) error {
	var damaged *segment.DamagedError
	if errors.As(err, &damaged) {
		s.replay.note(idsOf(task), b.Runs)
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	return fmt.Errorf("store: replay check: %w", err)
}
