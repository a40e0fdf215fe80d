package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/internal/service/database"
)

// auditor collects violations. It names tasks, batches and files, never reports.
type auditor struct {
	s        *Store
	problems []string

	batches []auditBatch     // by task, batch buckets ascending
	byID    map[batchKey]int // leader-selected: index in batches
	retired map[int64]bool   // tasks
	runs    []auditRun
	files   map[string]int64 // size by name
	objects map[string]int64 // least size by name
}

type batchKey struct {
	task int64
	id   dap.BatchID
}

type auditBatch struct {
	task     *task
	bucket   int64
	id       []byte
	closed   bool
	row      int64
	covered  bool         // by a release
	views    map[int]bool // in which it was released
	kept     bool         // its sum is, for views that wait
	verified uint64
	checksum dap.Checksum
	share    []byte
}

type auditRun struct {
	of   runsOf
	meta segment.RunMeta
}

func (a *auditor) add(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (b *auditBatch) String() string {
	if b.id != nil {
		return fmt.Sprintf("task %v batch %v", b.task.ID, dap.BatchID(b.id))
	}
	return fmt.Sprintf("task %v bucket %d", b.task.ID, b.bucket)
}

// Audit implements [store.Engine]. It reads every run file and so takes time in
// proportion to all reports ever aggregated; the store stays usable meanwhile.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	a := &auditor{s: s, byID: make(map[batchKey]int), retired: make(map[int64]bool), files: make(map[string]int64), objects: make(map[string]int64)}
	if err := s.view(ctx, "audit", a.rows); err != nil {
		return nil, err
	}
	a.sums()
	broken, err := a.checkFiles(ctx)
	if err != nil {
		return nil, err
	}
	for name, problem := range broken {
		a.add("%s: %s", name, problem)
	}
	return a.problems, nil
}

// rows checks what the rows alone can show, and remembers the rest.
func (a *auditor) rows(tx *database.Tx) error {
	err := tx.Each("audit-integrity", nil, func(r database.Row) error {
		var line string
		err := r.Scan(&line)
		if line != "ok" {
			a.add("database file: %s", line)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = tx.Each("audit-foreign-keys", nil, func(r database.Row) error {
		var table, parent string
		var row, key int64
		err := r.Scan(&table, &row, &parent, &key)
		a.add("row %d of %s names a missing row of %s", row, table, parent)
		return err
	})
	if err != nil {
		return err
	}
	if err := a.readRetired(tx); err != nil {
		return err
	}
	if err := a.readBatches(tx); err != nil {
		return err
	}
	if err := a.readReleases(tx); err != nil {
		return err
	}
	if err := a.readSums(tx); err != nil {
		return err
	}
	if err := a.readFiles(tx); err != nil {
		return err
	}
	if err := a.readResponses(tx); err != nil {
		return err
	}
	for _, c := range []struct{ statement, problem string }{
		{"audit-unledgered", "task %v: resource %s is ready without an entry in the ledger"},
		{"audit-holds", "task %v: collection %s holds a batch that it cannot have"},
		{"audit-lost-jobs", "task %v: job %s waits for a closed batch"},
		{"audit-lost-slices", "task %v: reports of the closed bucket %s wait"},
		{"audit-jobs", "task %v: job %s has another number of reports than its slices"},
		{"audit-answers", "task %v: job %s keeps other answers of the helper than its step tells"},
		{"audit-stray-noise", "task %v: noise %s is of no release"},
		{"audit-kept", "task %v: a noised share is kept of resource %s, which was not released"},
		{"audit-frozen", "task %v: the batch frozen by collection %s changed"},
	} {
		err := tx.Each(c.statement, nil, func(r database.Row) error {
			var row int64
			var what string
			err := r.Scan(&row, &what)
			a.add(c.problem, a.s.taskByRow(row).ID, what)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := a.readMarks(tx); err != nil {
		return err
	}
	if err := a.readRegistry(tx); err != nil {
		return err
	}
	return a.counts(tx)
}

// readRetired checks that tasks were retired after their end, and that what is swept has
// left nothing but what is kept for ever.
func (a *auditor) readRetired(tx *database.Tx) error {
	return tx.Each("audit-retired", nil, func(r database.Row) error {
		var row, at int64
		var swept, left bool
		var collected, released uint64
		if err := r.Scan(&row, &at, &swept, &collected, &released, &left); err != nil {
			return err
		}
		a.retired[row] = true
		t := a.s.taskByRow(row)
		t.mu.RLock()
		end, known := t.over(), t.vdaf != nil
		t.mu.RUnlock()
		switch {
		case known && end.IsZero():
			a.add("task %v: retired, but has no end", t.ID)
		case known && time.Unix(0, at).Before(end):
			a.add("task %v: retired before its end", t.ID)
		}
		if swept && left {
			a.add("task %v: swept, but rows of it are left", t.ID)
		}
		if collected != released {
			a.add("task %v: %d reports collected, its ledger has %d", t.ID, collected, released)
		}
		return nil
	})
}

// readMarks checks that the runs of each round are those that were written. Those of a round
// that is over go, and those of a retired task.
func (a *auditor) readMarks(tx *database.Tx) error {
	there := make(map[runsOf]total)
	for _, r := range a.runs {
		if r.of.marks {
			x := there[r.of]
			x.add(&r.meta)
			there[r.of] = x
		}
	}
	over := make(map[runsOf]bool)
	err := tx.Each("audit-spent", nil, func(r database.Row) error {
		var of runsOf
		var want total
		var sum []byte
		var state int
		if err := r.Scan(&of.task, &of.round, &want.count, &sum, &state); err != nil || a.retired[of.task] {
			return err
		}
		of.marks, want.digest = true, segment.SetDigest(sum)
		got := there[of]
		delete(there, of)
		if over[of] = state > 0; state == 0 && got != want {
			a.add("task %v: the marks of round %d are not what was written: there are %d, and were %d", a.s.taskByRow(of.task).ID, of.round, got.count, want.count)
		}
		return nil
	})
	for of := range there {
		a.add("task %v: there are marks of round %d, of which nothing is known", a.s.taskByRow(of.task).ID, of.round)
	}
	a.runs = slices.DeleteFunc(a.runs, func(r auditRun) bool { return over[r.of] })
	return err
}

func (a *auditor) readBatches(tx *database.Tx) error {
	return tx.Each("audit-batches", nil, func(r database.Row) error {
		var x batchRow
		var row int64
		if err := r.Scan(append([]any{&row}, x.dest()...)...); err != nil {
			return err
		}
		b := auditBatch{
			task: a.s.taskByRow(row), row: x.id, bucket: int64(x.bucket), id: x.batch, closed: x.closed, verified: x.verified,
			checksum: dap.Checksum(x.checksum), share: x.share,
		}
		if !x.closed && !b.task.whole(&x) {
			a.add("%s", b.task.broken(&x))
		}
		if b.id != nil {
			a.byID[batchKey{row, dap.BatchID(b.id)}] = len(a.batches)
		}
		a.batches = append(a.batches, b)
		return nil
	})
}

// readResponses checks what was released and is still there.
func (a *auditor) readResponses(tx *database.Tx) error {
	return tx.Each("audit-responses", nil, func(r database.Row) error {
		var row int64
		var id string
		var response, sum []byte
		err := r.Scan(&row, &id, &response, &sum)
		if !bytes.Equal(sum, responseSum(response)) {
			a.add("task %v: resource %s: its response is not what was written", a.s.taskByRow(row).ID, id)
		}
		return err
	})
}

// covered are the batches that a release names.
func (a *auditor) covered(t *task, sp span, id []byte) []*auditBatch {
	start, _ := slices.BinarySearchFunc(a.batches, t.row, func(b auditBatch, row int64) int { return cmp.Compare(b.task.row, row) })
	of := a.batches[start:]
	if id != nil {
		if i, ok := a.byID[batchKey{t.row, dap.BatchID(id)}]; ok {
			return []*auditBatch{&a.batches[i]}
		}
		return nil
	}
	// Batches of a task have batch buckets all or none.
	from, _ := slices.BinarySearchFunc(of, sp.first, func(b auditBatch, first int64) int {
		if b.task != t {
			return 1
		}
		return cmp.Compare(b.bucket, first)
	})
	var out []*auditBatch
	for i := from; i < len(of) && of[i].task == t && sp.contains(of[i].bucket); i++ {
		out = append(out, &of[i])
	}
	return out
}

// readReleases checks each entry of the ledger against the batches that it closed, and
// the chains through it.
func (a *auditor) readReleases(tx *database.Tx) error {
	type end struct {
		position uint64
		chain    releases.Digest
	}
	ends := make(map[int64]end)
	var seq uint64
	var total releases.Total
	return tx.Each("audit-releases", nil, func(r database.Row) error {
		var row int64
		var kind int
		var resource string
		var sp span
		var id, checksum, answer, chain, all []byte
		var count, at, position, fresh uint64
		var view int
		err := r.Scan(&row, &kind, &resource, &sp.first, &sp.last, &id, &count, &checksum, &at, &position, &answer, &chain, &all, &view, &fresh)
		if err != nil {
			return err
		}
		t := a.s.taskByRow(row)
		last, begun := ends[row]
		if !begun {
			last.chain = releases.Begin(t.ID)
		}
		next := last.chain.Next(&releases.Release{Batch: batchOfRow(sp, id), Count: count, Answer: [32]byte(answer)})
		seq, total = seq+1, total.Next(next)
		if position != last.position+1 || at != seq || next != releases.Digest(chain) || total != releases.Total(all) {
			a.add("task %v: the ledger is damaged at release %d, of resource %s", t.ID, position, resource)
		}
		ends[row] = end{position, releases.Digest(chain)}
		total = releases.Total(all)
		if count < t.minimum() {
			a.add("task %v: resource %s released %d reports, below the minimum of %d", t.ID, resource, count, t.minimum())
		}
		if a.retired[row] {
			return nil
		}
		var covered, first uint64
		var sum dap.Checksum
		for _, b := range a.covered(t, sp, id) {
			if b.views[view] {
				a.add("%v: released twice", b)
			}
			if !b.covered {
				first += b.verified
			}
			if b.views == nil {
				b.views = make(map[int]bool)
			}
			b.covered, b.views[view] = true, true
			covered += b.verified
			sum.Merge(b.checksum)
			if !b.closed {
				a.add("%v: released but not closed", b)
			}
		}
		if covered != count {
			a.add("task %v: resource %s released %d reports, its batches have %d", t.ID, resource, count, covered)
		}
		if first != fresh {
			a.add("task %v: resource %s released %d reports for the first time, its batches have %d such", t.ID, resource, fresh, first)
		}
		if sum != dap.Checksum(checksum) {
			a.add("task %v: resource %s released another set of reports than its batches have", t.ID, resource)
		}
		return nil
	})
}

func (a *auditor) readFiles(tx *database.Tx) error {
	err := tx.Each("audit-tombstones", nil, func(r database.Row) error {
		var name string
		err := r.Scan(&name)
		a.add("%s: a row names it, and it has a tombstone", name)
		return err
	})
	if err != nil {
		return err
	}
	err = tx.Each("audit-noise", nil, func(r database.Row) error {
		var name string
		var size int64
		err := r.Scan(&name, &size)
		a.files[name] = size
		return err
	})
	if err != nil {
		return err
	}
	if err := a.readSlices(tx); err != nil {
		return err
	}
	return tx.Each("audit-runs", nil, func(r database.Row) error {
		var run auditRun
		var err error
		if run.of, run.meta, err = scanRun(r); err != nil {
			return err
		}
		a.files[run.meta.Name] = run.meta.Size
		if !a.retired[run.of.task] {
			a.runs = append(a.runs, run)
		}
		return nil
	})
}

// readSlices checks that the files of waiting reports are as long as their slices want.
func (a *auditor) readSlices(tx *database.Tx) error {
	err := tx.Each("audit-objects", nil, func(r database.Row) error {
		var name string
		err := r.Scan(&name)
		a.objects[name] = 0
		return err
	})
	if err != nil {
		return err
	}
	return tx.Each("audit-slices", nil, func(r database.Row) error {
		id, m, err := a.s.readSlice(r)
		if err != nil {
			return err
		}
		if err := m.Check(); err != nil {
			a.add("slice %d: %v", id, err)
			return nil
		}
		a.objects[m.Object] = max(a.objects[m.Object], m.End())
		return nil
	})
}

// counts checks each task's ledger of reports.
func (a *auditor) counts(tx *database.Tx) error {
	a.s.mu.RLock()
	defer a.s.mu.RUnlock()
	for row, t := range a.s.rows {
		retired := a.retired[row]
		c, err := t.counts(tx)
		if err != nil {
			return err
		}
		accounted := c.Aggregated + c.Waiting
		for _, n := range c.Rejected {
			accounted += n
		}
		if c.Acknowledged != accounted {
			a.add("task %v: %d reports acknowledged, %d accounted for", t.ID, c.Acknowledged, accounted)
		}
		if retired {
			continue // its batches and runs go, or have gone
		}
		var verified, collected, replay uint64
		for _, b := range a.batches {
			if b.task == t {
				verified += b.verified
				if b.closed && b.covered {
					collected += b.verified
				}
			}
		}
		for _, r := range a.runs {
			if r.of == idsOf(row) {
				replay += uint64(r.meta.Count)
			}
		}
		if verified != c.Aggregated {
			a.add("task %v: %d reports aggregated, its batches have %d", t.ID, c.Aggregated, verified)
		}
		if collected != c.Collected {
			a.add("task %v: %d reports collected, its closed batches have %d", t.ID, c.Collected, collected)
		}
		// nothing can be replayed in a task that a restore closed
		if replay != c.Aggregated && t.closedIn == 0 {
			a.add("task %v: %d reports aggregated, its replay runs have %d", t.ID, c.Aggregated, replay)
		}
	}
	return nil
}

// over says whether the time of a batch's views has ended.
func (b *auditBatch) over() bool {
	b.task.mu.RLock()
	defer b.task.mu.RUnlock()
	return b.id == nil && b.bucket < b.task.gone
}

// readSums checks that sums are kept of those batches for which a view waits, and of no
// other.
func (a *auditor) readSums(tx *database.Tx) error {
	at := make(map[int64]*auditBatch)
	for i := range a.batches {
		at[a.batches[i].row] = &a.batches[i]
	}
	err := tx.Each("audit-sums", nil, func(r database.Row) error {
		var task, row int64
		var key uint64
		err := r.Scan(&task, &row, &key)
		if b := at[row]; b != nil {
			b.kept = true
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range at {
		waits := b.closed && b.covered && b.verified > 0 && len(b.views) < len(b.task.Views) && !b.over() && b.task.closedIn == 0
		switch {
		case waits && !b.kept:
			a.add("%v: its sum is gone, and a view waits for it", b)
		case b.kept && !waits:
			a.add("%v: its sum was kept, and no view waits for it", b)
		}
	}
	return nil
}

// sums checks the batches one by one.
func (a *auditor) sums() {
	for i := range a.batches {
		b := &a.batches[i]
		if b.closed && !b.covered && !b.over() {
			a.add("%v: closed without a release", b)
		}
		if b.closed && b.share != nil {
			a.add("%v: closed but its share was kept", b)
		}
		v, err := b.task.getVDAF()
		if err != nil || b.share == nil {
			continue // the task is not in use in this life of the process
		}
		if _, err := v.ReadAggShare(b.share); err != nil {
			a.add("%v: %v", b, err)
		}
	}
}

// checkFiles checks every named file, and the ids in the runs against the checksums of
// the batches. A file that it finds missing may have been dropped by a commit since; only
// a file that is still named counts.
func (a *auditor) checkFiles(ctx context.Context) (map[string]string, error) {
	broken := make(map[string]string)
	for name, size := range a.files {
		e, err := a.s.opt.FS.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			broken[name] = "named, but missing"
		case err != nil:
			return nil, fmt.Errorf("store: audit: %w", err)
		case e.Size != size:
			broken[name] = fmt.Sprintf("%d bytes, should have %d", e.Size, size)
		}
	}
	for name, least := range a.objects {
		e, err := a.s.opt.FS.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			broken[name] = "named, but missing"
		case err != nil:
			return nil, fmt.Errorf("store: audit: %w", err)
		case e.Size < least:
			broken[name] = fmt.Sprintf("%d bytes, should have %d at least", e.Size, least)
		}
	}
	sums := make(map[int64]dap.Checksum) // of a task's runs
	for start := 0; start < len(a.runs); {
		end, of := start, a.runs[start].of
		var metas []segment.RunMeta
		for ; end < len(a.runs) && a.runs[end].of == of; end++ {
			metas = append(metas, a.runs[end].meta)
		}
		start = end
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sum, err := a.readRuns(of, metas, broken)
		if err != nil {
			return nil, err
		}
		if !of.marks {
			sums[of.task] = sum
		}
	}
	if len(broken) > 0 {
		live, err := a.s.LiveFiles(ctx)
		if err != nil {
			return nil, err
		}
		named := make(map[string]struct{}, len(live))
		for _, name := range live {
			named[name] = struct{}{}
		}
		for name := range broken {
			if _, ok := named[name]; !ok {
				delete(broken, name)
			}
		}
		return broken, nil // checksums say nothing where files could not be read
	}
	for i := range a.batches {
		b := &a.batches[i]
		if b.task.closedIn != 0 {
			continue // it has no runs any more
		}
		sum := sums[b.task.row]
		sum.Merge(b.checksum)
		sums[b.task.row] = sum
	}
	for row, sum := range sums {
		if sum != (dap.Checksum{}) {
			a.add("task %v: its batches have other reports than its replay runs", a.s.taskByRow(row).ID)
		}
	}
	return broken, nil
}

// readRuns checks the runs of a task, or of one of its rounds: that each is whole and none
// shares an id with another. It returns the checksum of their ids.
func (a *auditor) readRuns(of runsOf, metas []segment.RunMeta, broken map[string]string) (sum dap.Checksum, err error) {
	runs, err := segment.OpenRuns(a.s.opt.FS, metas)
	if err != nil {
		return sum, fmt.Errorf("store: audit: %w", err)
	}
	defer runs.Close()
	for _, d := range runs.Damaged() {
		if broken[d.Name] == "" {
			broken[d.Name] = d.Why
		}
		if of.marks {
			broken[d.Name] += fmt.Sprintf("; it has marks of round %d", of.round)
		}
	}
	if len(runs.Damaged()) > 0 {
		return sum, nil
	}
	err = runs.Each(func(id segment.ReportID) { sum.Add(dap.ReportID(id)) })
	if errors.Is(err, segment.ErrCorrupt) {
		broken[metas[0].Name] = err.Error()
		return sum, nil
	}
	return sum, err
}
