package postgres

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/releases"
)

// auditor collects violations. It names tasks, batches and resources, never reports.
type auditor struct {
	s        *Store
	problems []string
}

func (a *auditor) add(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// Audit checks what the rows of this engine should say of each other; see [store.Engine].
// It reads every run and share once, a task at a time, of one state of the database.
func (s *Store) Audit(ctx context.Context) (problems []string, err error) {
	err = s.view(ctx, "audit", func(tx *pgdb.Tx) error {
		a := &auditor{s: s}
		defer func() { problems = a.problems }()
		if err := a.ledger(tx); err != nil {
			return err
		}
		if err := a.registry(tx); err != nil {
			return err
		}
		if err := a.issuances(tx); err != nil {
			return err
		}
		var ids []dap.TaskID
		err := tx.Each("audit-tasks", nil, func(r pgdb.Row) error {
			var id []byte
			err := r.Scan(&id)
			if err == nil {
				ids = append(ids, dap.TaskID(id))
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := a.task(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		problems, err = s.missing(ctx, problems)
	}
	if err != nil {
		return nil, err
	}
	return problems, nil
}

// ledger checks the chains through the releases of all tasks, and that none is missing.
func (a *auditor) ledger(tx *pgdb.Tx) error {
	type end struct {
		position uint64
		chain    releases.Digest
	}
	ends := make(map[dap.TaskID]end)
	var seq uint64
	var total releases.Total
	err := tx.Each("audit-releases", nil, func(r pgdb.Row) error {
		var task, id, answer, chain, all []byte
		var resource string
		var view int
		var sp span
		var count, minimum, at, position uint64
		if err := r.Scan(&task, &resource, &view, &sp.first, &sp.last, &id, &count, &minimum, &at, &position, &answer, &chain, &all); err != nil {
			return err
		}
		last, begun := ends[dap.TaskID(task)]
		if !begun {
			last.chain = releases.Begin(dap.TaskID(task))
		}
		next := last.chain.Next(&releases.Release{Batch: releasedBatch(sp, id), Count: count, Answer: [32]byte(answer)})
		seq, total = seq+1, total.Next(next)
		if position != last.position+1 || at != seq || next != releases.Digest(chain) || total != releases.Total(all) {
			a.add("task %v: the ledger is damaged at release %d, of resource %s", dap.TaskID(task), position, resource)
		}
		if count < max(minimum, 1) {
			a.add("task %v: resource %s released %d reports, below the minimum of %d", dap.TaskID(task), resource, count, minimum)
		}
		ends[dap.TaskID(task)] = end{position, releases.Digest(chain)}
		seq, total = at, releases.Total(all)
		return nil
	})
	if err != nil {
		return err
	}
	var head uint64
	var sum []byte
	if _, err := tx.One("audit-head", nil, &head, &sum); err != nil {
		return err
	}
	if head != seq || !bytes.Equal(sum, total[:]) {
		a.add("the ledger has %d releases, its head says %d", seq, head)
	}
	return nil
}

// auditBatch is a row of the table batch with the parts of it that there are.
type auditBatch struct {
	batchSum
	row    int64
	closed bool
	parts  int
	kept   uint64       // reports of the parts of one that is closed
	views  map[int]bool // in which it was released
}

func (a *auditor) task(tx *pgdb.Tx, id dap.TaskID) error {
	t, err := find(tx, reading, id)
	if err != nil {
		return err
	}
	if t.retired { // its batches and runs go, or have gone
		var swept, left, marks bool
		_, err := tx.One("audit-retired", []any{t.row}, &swept, &left)
		if err != nil {
			return err
		}
		version, err := tx.Version()
		if err == nil && version.Number >= spentSince {
			_, err = tx.One("audit-retired-marks", []any{t.row}, &marks)
		}
		if swept && (left || marks) {
			a.add("task %v: retired and swept, and rows of it are left", id)
		}
		return err
	}
	if err := a.s.spans(tx, t); err != nil {
		return err
	}
	batches, err := a.batches(tx, t)
	if err != nil {
		return err
	}
	var over uint64
	if len(t.views) > 0 {
		if _, err := tx.One("views-ended", []any{t.row}, &over); err != nil {
			return err
		}
	}
	if err := a.releases(tx, t, batches); err != nil {
		return err
	}
	var verified, collected uint64
	var sum dap.Checksum
	for _, b := range batches {
		verified += b.reports
		sum.Merge(b.checksum)
		gone := uint64(b.of.Start) < over
		waits := b.closed && len(b.views) > 0 && len(b.views) < len(t.views) && !gone && t.closedIn == 0
		switch name := t.call(b.of); {
		case b.closed && len(b.views) == 0 && !gone:
			a.add("task %v %s: closed without a release", id, name)
		case len(b.views) > 0 && !b.closed:
			a.add("task %v %s: released but not closed", id, name)
		case waits && b.kept != b.reports:
			a.add("task %v %s: a view waits for its sum, and %d of %d reports of that are there", id, name, b.kept, b.reports)
		case b.closed && b.parts > 0 && !waits:
			a.add("task %v %s: closed but its share was kept", id, name)
		}
		if b.closed && len(b.views) > 0 {
			collected += b.reports
		}
	}
	replay, err := a.runs(tx, t, &sum)
	if err != nil {
		return err
	}
	c, err := t.counts(tx)
	if err != nil {
		return err
	}
	accounted := c.Aggregated + c.Waiting
	for _, n := range c.Rejected {
		accounted += n
	}
	for _, x := range []struct {
		wrong bool
		what  string
		of, n uint64
	}{
		{c.Acknowledged != accounted, "%d reports acknowledged, %d accounted for", c.Acknowledged, accounted},
		{verified != c.Aggregated, "%d reports aggregated, its batches have %d", c.Aggregated, verified},
		{collected != c.Collected, "%d reports collected, its closed batches have %d", c.Collected, collected},
		// nothing can be replayed in a task that a restore closed
		{replay != c.Aggregated && t.closedIn == 0, "%d reports aggregated, its replay runs have %d", c.Aggregated, replay},
	} {
		if x.wrong {
			a.add("task %v: "+x.what, id, x.of, x.n)
		}
	}
	if sum != (dap.Checksum{}) && t.closedIn == 0 {
		a.add("task %v: its batches have other reports than its replay runs", id)
	}
	if err := a.jobs(tx, t); err != nil {
		return err
	}
	if err := a.marks(tx, t); err != nil {
		return err
	}
	if err := a.noise(tx, t); err != nil {
		return err
	}
	return a.resources(tx, t)
}

// marks checks that the marks of each round are what was written. Those of a round that is
// over go.
func (a *auditor) marks(tx *pgdb.Tx, t *task) error {
	if version, err := tx.Version(); err != nil || version.Number < spentSince {
		return err
	}
	rounds := make(map[uint64]*round)
	err := tx.Each("audit-spent", []any{t.row}, func(r pgdb.Row) error {
		var n uint64
		x := new(round)
		err := x.scan(r, &n)
		rounds[n] = x
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(rounds)) {
		if rounds[n].over {
			continue
		}
		of := marksOf(t.id, n).found(t)
		got, err := a.entries(tx, of, func([]byte) {})
		if err != nil {
			return err
		}
		if want := rounds[n].total; got != want {
			a.add("task %v: the marks of round %d are not what was written: there are %d, and were %d", t.id, n, got.count, want.count)
		}
	}
	return tx.Each("audit-stray-spent", []any{t.row}, func(r pgdb.Row) error {
		var n uint64
		err := r.Scan(&n)
		a.add("task %v: there are marks of round %d, of which nothing is known", t.id, n)
		return err
	})
}

// batches reads the batches of a task, with what their parts add up to.
func (a *auditor) batches(tx *pgdb.Tx, t *task) (map[int64]*auditBatch, error) {
	batches := make(map[int64]*auditBatch)
	err := tx.Each("audit-batches", []any{t.row}, func(r pgdb.Row) error {
		b := new(auditBatch)
		var bucket uint64
		var id, checksum []byte
		if err := r.Scan(&b.row, &b.closed, &b.reports, &b.first, &b.last, &checksum, &bucket, &id); err != nil {
			return err
		}
		if b.of = batchOf(bucket, id); b.closed {
			b.checksum = dap.Checksum(checksum)
		}
		batches[b.row] = b
		return nil
	})
	if err != nil {
		return nil, err
	}
	v, unknown := a.s.vdaf(t.id) // unknown: the task is not in use in this life of the process
	err = tx.Each("audit-parts", []any{t.row}, func(r pgdb.Row) error {
		var p partRow
		var box, sum []byte
		if err := p.scan(r, &p.key, &p.own, &box, &sum); err != nil {
			return err
		}
		b := batches[p.batch]
		p.of = b.of
		b.parts++
		if b.closed {
			b.kept += p.reports
		} else {
			b.add(&p)
		}
		if !bytes.Equal(sum, t.sum(&p, box)) {
			a.add("%v", t.broken(&p))
		} else if unknown == nil {
			if _, err := t.open(taskKeys{a.s, t}, v, &p, box, sum); err != nil {
				a.add("task %v %s: %v", t.id, t.call(p.of), err)
			}
		}
		return nil
	})
	return batches, err
}

// releases checks each release against the batches that it closed.
func (a *auditor) releases(tx *pgdb.Tx, t *task, batches map[int64]*auditBatch) error {
	ordered := slices.SortedFunc(maps.Values(batches), func(x, y *auditBatch) int { return compareBatches(x.of, y.of) })
	statement, views := "audit-released", len(t.views) > 0
	if views {
		statement = "audit-released-in-views"
	}
	return tx.Each(statement, []any{t.row}, func(r pgdb.Row) error {
		var kind, view int
		var resource string
		var sp span
		var id, checksum []byte
		var count, fresh, first uint64
		columns := []any{&kind, &resource, &sp.first, &sp.last, &id, &count, &checksum}
		if views {
			columns = append(columns, &view, &fresh)
		}
		if err := r.Scan(columns...); err != nil {
			return err
		}
		from, to := batchOf(sp.first, id), batchOf(sp.last, id)
		begin, _ := slices.BinarySearchFunc(ordered, from, func(x *auditBatch, of store.Batch) int { return compareBatches(x.of, of) })
		var covered uint64
		var sum dap.Checksum
		for _, b := range ordered[begin:] {
			if compareBatches(b.of, to) > 0 {
				break
			}
			if b.views[view] {
				a.add("task %v %s: released twice", t.id, t.call(b.of))
			}
			if len(b.views) == 0 {
				first += b.reports
				b.views = make(map[int]bool)
			}
			b.views[view] = true
			covered += b.reports
			sum.Merge(b.checksum)
		}
		if covered != count {
			a.add("task %v: resource %s released %d reports, its batches have %d", t.id, resource, count, covered)
		}
		if views && first != fresh {
			a.add("task %v: resource %s released %d reports for the first time, its batches have %d such", t.id, resource, fresh, first)
		}
		if sum != dap.Checksum(checksum) {
			a.add("task %v: resource %s released another set of reports than its batches have", t.id, resource)
		}
		return nil
	})
}

// compareBatches orders the batches of a task.
func compareBatches(a, b store.Batch) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), bytes.Compare(a.ID[:], b.ID[:]))
}

// runs checks the runs of a task's ids, which it counts and adds to a checksum.
func (a *auditor) runs(tx *pgdb.Tx, t *task, sum *dap.Checksum) (ids uint64, err error) {
	_, err = a.entries(tx, idsOf(t.id).found(t), func(id []byte) {
		sum.Add(dap.ReportID(id))
		ids++
	})
	return ids, err
}

// entries checks that each run is what was written and none shares an id with another, and
// calls fn with all entries. It says what those that are whole come to.
func (a *auditor) entries(tx *pgdb.Tx, of runsOf, fn func(entry []byte)) (x total, err error) {
	where := fmt.Sprintf("task %v", of.task)
	if of.marks {
		where += fmt.Sprintf(", marks of round %d", of.round)
	}
	rs, err := a.s.load(tx, of)
	if err != nil {
		return x, err
	}
	for _, row := range slices.Sorted(maps.Keys(rs.heads)) {
		var digest segment.SetDigest
		want := rs.heads[row].digest
		rs, err = a.s.readWhole(tx, of, rs, []int64{row}, func(_ int64, all []byte) {
			for entry := range slices.Chunk(all, of.entry) {
				digest.PutEntry(&a.s.setKey, entry)
			}
		})
		if err != nil {
			return x, err
		}
		if rs.bad[row] == nil && digest != want {
			a.add("%s: run %d has another digest than its ids", where, row)
		}
	}
	if len(rs.bad) > 0 {
		a.add("%s: %s", where, rs.told().Why)
	}
	twice := false
	h, err := a.s.hidden(of)
	if err != nil {
		return x, err
	}
	// One that is in the clear and hidden too is seen by the number of all.
	for _, own := range []bool{false, true} {
		var last []byte
		_, err = a.s.ascend(tx, of, rs, own, segment.AllIDs, func(entry []byte) bool {
			twice = twice || last != nil && bytes.Equal(entry[:idSize], last)
			if last = entry[:idSize]; own {
				entry = h.show(entry)
			}
			fn(entry)
			return true
		})
		if err != nil {
			return x, err
		}
	}
	if twice {
		a.add("%s: an id is in two runs", where)
	}
	return rs.total(), nil
}

// resources checks what was released and is still there.
func (a *auditor) resources(tx *pgdb.Tx, t *task) error {
	err := tx.Each("audit-responses", []any{t.row}, func(r pgdb.Row) error {
		var id string
		var response, sum []byte
		var released bool
		if err := r.Scan(&id, &response, &sum, &released); err != nil {
			return err
		}
		if want := sha256.Sum256(response); !bytes.Equal(sum, want[:]) {
			a.add("task %v: resource %s: its response is not what was written", t.id, id)
		}
		if !released {
			a.add("task %v: resource %s is ready without an entry in the ledger", t.id, id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Each("audit-strays", []any{t.row}, func(r pgdb.Row) error {
		var id string
		var kept bool
		err := r.Scan(&id, &kept)
		if kept {
			a.add("task %v: a noised share is kept of resource %s, which was not released", t.id, id)
		} else {
			a.add("task %v: collection %s holds a batch that it cannot have", t.id, id)
		}
		return err
	})
}
