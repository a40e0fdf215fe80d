// Package storetest is the conformance suite that every engine of [store.Engine] is run
// through: [Run] and [Interleave]. The engine's tests say how to open it, [Harness].
//
// Its reports are unique: report n adds 1 to element n of the aggregate, so that any
// element above one is a proven double count, and any element below one a loss.
package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A Harness is one store of the engine under test, empty at first. All that it needs is
// its own and ends with the test.
type Harness interface {
	// Open opens the store, or opens it again after Close or [store.ErrUnknown].
	Open(t *testing.T) store.Engine
	// Beside opens another handle on the store that is open, as another process does where
	// the engine allows for several. It is closed first.
	Beside(t *testing.T) store.Engine
	// FS is where logs lie, and what was copied out of them.
	FS() disk.FS
	// Failpoints are those of the store.
	Failpoints() *disk.Failpoints
	// Tamper runs a statement on the rows of the store, which is not open, as no call does.
	Tamper(t *testing.T, statement string)
	// MarkDamage are statements for Tamper, each of which changes what is kept of the marks
	// of a round, which stands in them as %d, or may, and there is one whose marks go to the
	// round before.
	MarkDamage() []string
	// Noise is how many releases have noise that is kept: where it lies, not what names it.
	Noise(t *testing.T) int
	// Sums is how many closed batches have a sum that is kept.
	Sums(t *testing.T) int
}

// Run runs the suite; each test gets a harness of its own. Every test runs at one handle,
// and at two that take turns, call by call.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	RunOnly(t, open, slices.Sorted(maps.Keys(tests))...)
}

// RunOnly runs those tests of the suite, at one handle and at two: for an engine that has a
// part of the contract as yet.
func RunOnly(t *testing.T, open func(t *testing.T) Harness, names ...string) {
	for _, test := range names {
		if tests[test] == nil {
			t.Fatalf("the suite has no test %s", test)
		}
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			tests[test](t, open(t))
		})
		t.Run(test+"AtTwoHandles", func(t *testing.T) {
			t.Parallel()
			tests[test](t, pair{open(t)})
		})
	}
}

var tests = map[string]func(t *testing.T, h Harness){}

// Elements is the length of the aggregate, and one more than the largest report number.
const Elements = 256

// VDAF is the one of the suite.
func VDAF(t testing.TB) vdaf.VDAF {
	v, err := prio3.NewHistogram(2, Elements, 16)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ReportID is the id of report n.
func ReportID(n int) (id dap.ReportID) {
	binary.BigEndian.PutUint32(id[:], uint32(n))
	sum := sha256.Sum256(id[:4])
	copy(id[4:], sum[:])
	return id
}

func number(id dap.ReportID) int { return int(binary.BigEndian.Uint32(id[:])) }

// Task is a task of the suite; seed tells tasks apart.
func Task(t testing.TB, mode dap.BatchMode, seed byte) *store.Task {
	return &store.Task{
		ID: dap.TaskID{seed, byte(mode)}, Config: []byte{seed, byte(mode), 1, 2, 3}, Mode: mode, TimePrecision: 300,
		MinBatch: 5, VDAF: VDAF(t),
	}
}

// World drives one store as a leader and as a helper would.
type World struct {
	t      testing.TB
	h      Harness
	Store  store.Engine
	inbox  *segment.Inbox
	sorter *segment.Sorter
	tasks  []*store.Task
	Now    time.Time

	committer committer
	building  func() // called inside Build of [World.correlate]; may be nil
}

// committer is the handle that the logs are committed through.
type committer struct{ store.Engine }

// through has fn commit logs through a handle.
func (w *World) through(e store.Engine, fn func()) {
	w.committer.Engine = e
	fn()
	w.committer.Engine = w.Store
}

// Epoch is when the suite begins.
var Epoch = time.Unix(1_700_000_000, 0)

// NewWorld opens the store and the inbox before it.
func NewWorld(t *testing.T, h Harness, tasks ...*store.Task) *World {
	w := &World{t: t, h: h, tasks: tasks, Now: Epoch}
	w.open(t)
	t.Cleanup(w.close)
	return w
}

func (w *World) open(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	w.Store = w.h.Open(t)
	for _, task := range w.tasks {
		w.ok(w.Store.PutTask(ctx, task))
	}
	w.ok(w.Store.Bury(ctx))
	var err error
	w.committer.Engine = w.Store
	w.inbox, err = segment.OpenInbox(ctx, w.h.FS(), &w.committer, segment.InboxOptions{JobReports: most.Reports})
	w.ok(err)
	w.sorter, err = segment.NewSorter(w.inbox, segment.SorterOptions{MaxReports: most.Reports})
	w.ok(err)
}

func (w *World) close() {
	if w.inbox != nil {
		_ = w.inbox.Close() // the disk may be cut
		w.inbox = nil
	}
	if w.Store != nil {
		_ = w.Store.Close()
		w.Store = nil
	}
}

// Reopen closes everything, as a crash of the process would, and starts again on what the
// disk holds.
func (w *World) Reopen(t *testing.T) {
	t.Helper()
	w.close()
	w.open(t)
}

func (w *World) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *World) is(err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Fatalf("got %v, want %v", err, want)
	}
}

// Audit fails the test if the store finds fault with itself.
func (w *World) Audit() {
	w.t.Helper()
	problems, err := w.Store.Audit(context.Background())
	w.ok(err)
	for _, p := range problems {
		w.t.Errorf("audit: %s", p)
	}
	if len(problems) > 0 {
		w.t.FailNow()
	}
}

// Upload acknowledges reports first to last of one bucket.
func (w *World) Upload(task *store.Task, bucket dap.Time, first, last int) {
	w.t.Helper()
	var entries []segment.Entry
	for n := first; n <= last; n++ {
		entries = append(entries, segment.Entry{
			TaskID: task.ID, Bucket: uint64(bucket), ReportID: segment.ReportID(ReportID(n)), Report: fmt.Appendf(nil, "report %d", n),
		})
	}
	w.ok(w.inbox.Put(context.Background(), entries))
}

// Sort has the slices of what was uploaded named.
func (w *World) Sort() {
	w.t.Helper()
	_, err := w.sorter.Sort(context.Background())
	w.ok(err)
}

// most is what the jobs of the suite take.
var most = store.Most{Bytes: 1 << 20, Reports: 8}

// Claim leases up to n jobs for a minute.
func (w *World) Claim(n int) []*store.Job {
	w.t.Helper()
	jobs, err := w.Store.ClaimJobs(context.Background(), w.Now, time.Minute, n, most)
	w.ok(err)
	return jobs
}

// Numbers are the reports of a job.
func (w *World) Numbers(j *store.Job) []int {
	w.t.Helper()
	numbers, err := w.numbers(j.Slices)
	w.ok(err)
	return numbers
}

func (w *World) numbers(slices []segment.Slice) (numbers []int, err error) {
	r, err := segment.OpenSlices(context.Background(), payload.OpenFiles(w.h.FS()), slices)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for i := range r.Len() {
		numbers = append(numbers, number(dap.ReportID(r.ReportID(i))))
	}
	return numbers, nil
}

// Commit is the commit of reports to the batches that they belong to, batch by batch.
func Commit(t testing.TB, task *store.Task, batches []store.Batch, times []dap.Time, numbers [][]int) *store.Commit {
	c := &store.Commit{Task: task.ID, Batches: batches}
	for b, list := range numbers {
		for _, n := range list {
			c.Candidates = append(c.Candidates, store.Candidate{
				ID: ReportID(n), Time: times[b], Batch: int32(b), Report: int32(len(c.Candidates)),
			})
		}
	}
	calls := 0
	c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
		if calls++; calls > 1 {
			t.Error("Fold called twice")
		}
		if len(verdict) != len(c.Candidates) {
			return nil, fmt.Errorf("%d verdicts for %d candidates", len(verdict), len(c.Candidates))
		}
		sums := make([][]int64, len(batches))
		for i, cand := range c.Candidates {
			if verdict[i] != 0 {
				continue
			}
			if sums[cand.Batch] == nil {
				sums[cand.Batch] = make([]int64, Elements)
			}
			sums[cand.Batch][number(cand.ID)]++
		}
		shares := make([]*vdaf.AggShare, len(batches))
		for b, sum := range sums {
			if sum == nil {
				continue
			}
			shares[b] = task.VDAF.NewAggShare()
			if err := shares[b].AddSigned(sum); err != nil {
				return nil, err
			}
		}
		return shares, nil
	}
	return c
}

// CommitOf is the commit of a whole claimed job.
func (w *World) CommitOf(task *store.Task, j *store.Job) *store.Commit {
	w.t.Helper()
	return Commit(w.t, task, []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Slices[0].Bucket)}, [][]int{w.Numbers(j)})
}

// Work claims and commits until nothing is left, and says how many jobs it did.
func (w *World) Work(task *store.Task) (done int) {
	w.t.Helper()
	for {
		jobs := w.Claim(4)
		if len(jobs) == 0 {
			w.ok(w.Store.Bury(context.Background()))
			return done
		}
		for _, j := range jobs {
			w.ok(w.Store.FinishJob(context.Background(), j, w.CommitOf(task, j)))
			done++
		}
	}
}

// unnamed lists the files of reports that no row names, but for logs that take uploads, or
// have taken none.
func (w *World) unnamed() (names []string) {
	w.t.Helper()
	live, err := w.Store.LiveFiles(context.Background())
	w.ok(err)
	begun, err := w.Store.BegunLogs(context.Background())
	w.ok(err)
	for _, log := range begun {
		live = append(live, log.File)
	}
	for _, dir := range []string{"inbox", "slices"} {
		files, err := w.h.FS().ReadDir(dir)
		w.ok(err)
		for _, f := range files {
			if name := path.Join(dir, f.Name); f.Size > disk.LogHeaderSize && !slices.Contains(live, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Ask makes a leader's collection resource; sel is nil for leader-selected tasks.
func (w *World) Ask(task *store.Task, body string, sel *store.Selection) *store.Resource {
	w.t.Helper()
	r, _, err := w.Store.Create(context.Background(), store.KindCollection, task.ID, "", []byte(body), true, sel, w.Now)
	w.ok(err)
	return r
}

// Hold drains and freezes a collection at rest.
func (w *World) Hold(r *store.Resource) *store.Frozen {
	w.t.Helper()
	sel, waiting, err := w.Store.Drain(context.Background(), r)
	w.ok(err)
	if waiting != 0 {
		w.t.Fatalf("%d reports wait", waiting)
	}
	f, err := w.Store.Freeze(context.Background(), r, sel)
	w.ok(err)
	return f
}

// ReleaseOf hands out the frozen batch of a leader's collection; got receives the sum,
// element by element.
func (w *World) ReleaseOf(task *store.Task, r *store.Resource, f *store.Frozen, got *[]int64) *store.Release {
	return &store.Release{
		Resource: r.ID, Task: task.ID, Kind: r.Kind, Selection: f.Selection, Count: f.Count, Checksum: f.Checksum, Debit: "none",
		Build: func(sum *vdaf.AggShare, frozen store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			want := *f
			if r.Kind == store.KindShare {
				want.Fullest = frozen.Fullest // the leader, whose batch f is, does not say it
			}
			if frozen != want {
				w.t.Errorf("Build was given %+v, frozen is %+v", frozen, want)
			}
			values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
			*got = values
			return []byte("the response"), nil, err
		},
	}
}

// Once fails the test unless values is one at reports first to last and zero elsewhere.
func (w *World) Once(values []int64, first, last int) {
	w.t.Helper()
	if len(values) != Elements {
		w.t.Fatalf("%d elements, want %d", len(values), Elements)
	}
	for n, v := range values {
		want := int64(0)
		if first <= n && n <= last {
			want = 1
		}
		if v != want {
			w.t.Fatalf("report %d counted %d times, want %d", n, v, want)
		}
	}
}

// CountsAre compares the ledger of reports.
func (w *World) CountsAre(task *store.Task, want store.Counts) {
	w.t.Helper()
	got, err := w.Store.Counts(context.Background(), task.ID)
	w.ok(err)
	same := got.Acknowledged == want.Acknowledged && got.Waiting == want.Waiting && got.Aggregated == want.Aggregated &&
		got.Collected == want.Collected && maps.Equal(got.Rejected, want.Rejected) && maps.Equal(got.Refused, want.Refused)
	if !same {
		w.t.Fatalf("counts are %+v, want %+v", *got, want)
	}
}

// Interval is the selection of buckets [start, start+n).
func Interval(start dap.Time, n dap.Duration) *store.Selection {
	return &store.Selection{Interval: dap.Interval{Start: start, Duration: n}}
}

// shareOf keeps the signatures of Fold short.
type shareOf = vdaf.AggShare

func checksum(first, last int) (sum dap.Checksum) {
	for n := first; n <= last; n++ {
		sum.Add(ReportID(n))
	}
	return sum
}
