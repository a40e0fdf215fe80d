package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

// story is what an aggregator goes through in these tests, told by what the world outside
// knows of it. It is lived until it ends; a crash begins it again, on what the disk still
// holds, where the outside had got to.
type story struct {
	t            *testing.T
	leader, peer *store.Task
	series       *store.Task       // its noise is correlated over releases
	acknowledged int               // reports uploaded: 0 to acknowledged-1
	answers      map[string]string // what was answered, by who asked: it may never change
	draws        int
	drawn        map[string][]int64    // the sum that each drawn response was made of
	noise        map[string][2][]int64 // of series: the draws of each response, and what became of them
}

const (
	reportsTold = 24 // in steps of 2 of one bucket, so that its runs are merged
	jobsTold    = 3
	roundsTold  = 5 // of the series, of 3 bands
)

func newStory(t *testing.T) *story {
	return &story{
		t: t, leader: storetest.Task(t, dap.TimeInterval, 1), peer: storetest.Task(t, dap.LeaderSelected, 2),
		series:  storetest.Task(t, dap.TimeInterval, 3),
		answers: make(map[string]string), drawn: make(map[string][]int64), noise: make(map[string][2][]int64),
	}
}

// live is one life of the process: from opening the store to the end, or to the first
// error.
func (s *story) live(mem *disktest.Mem, fail *disk.Failpoints) (err error) {
	ctx := context.Background()
	st, err := sqlite.Open(ctx, options(mem, fail))
	if err != nil {
		return err
	}
	defer st.Close() // the disk may be cut
	for _, task := range []*store.Task{s.leader, s.peer, s.series} {
		if err := st.PutTask(ctx, task); err != nil {
			return err
		}
	}
	if err := s.audit(st, "after opening"); err != nil {
		return err
	}
	named, err := st.LiveFiles(ctx)
	if err != nil {
		return err
	}
	waiting := &segment.Waiting{
		FS: mem, Inbox: "inbox", Committer: st, Rows: st.Slices, MaxBytes: segment.DefaultBytes, MaxReports: 1,
	}
	room := &lost.Room{FS: mem, Newest: func() uint64 { return 1 }, Again: waiting.Holds, Failpoints: fail}
	if _, err := room.Sweep(ctx, named, "slices", "runs"); err != nil {
		return err
	}
	if err := s.kept(mem); err != nil {
		return err
	}
	inbox, err := segment.OpenInbox(context.Background(), mem, st, segment.InboxOptions{JobReports: 1})
	if err != nil {
		return err
	}
	defer inbox.Close()
	sorter, err := segment.NewSorter(inbox, segment.SorterOptions{MaxReports: 1})
	if err != nil {
		return err
	}
	if err := s.lead(ctx, st, mem, inbox, sorter); err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	if err := s.help(ctx, st); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	if err := s.correlate(ctx, st); err != nil {
		return fmt.Errorf("series: %w", err)
	}
	if err := st.Bury(ctx); err != nil {
		return err
	}
	return s.audit(st, "at the end")
}

// kept demands that a crash leaves no copy of slices for a person to judge: there was no
// other damage.
func (s *story) kept(mem *disktest.Mem) error {
	files, err := lost.List(mem)
	for _, f := range files {
		if strings.HasPrefix(f.Name, "slices/") {
			s.t.Errorf("after a crash %s is lost", f.Name)
		}
	}
	return err
}

func (s *story) audit(st store.Engine, when string) error {
	problems, err := st.Audit(context.Background())
	for _, p := range problems {
		s.t.Errorf("audit %s: %s", when, p)
	}
	return err
}

// lead takes all reports through uploads, jobs and a collection.
func (s *story) lead(ctx context.Context, st store.Engine, mem *disktest.Mem, inbox *segment.Inbox, sorter *segment.Sorter) error {
	ask, _, err := st.Create(ctx, store.KindCollection, s.leader.ID, "", []byte("ask"), true, storetest.Interval(10, 3), storetest.Epoch)
	if err != nil {
		return err
	}
	if ask.State == store.Ready {
		return s.answered("collection", string(ask.Response))
	}
	for {
		if _, err := sorter.Sort(ctx); err != nil {
			return err
		}
		if err := s.work(ctx, st, mem); err != nil {
			return err
		}
		if s.acknowledged == reportsTold {
			break
		}
		var entries []segment.Entry
		for n := s.acknowledged; n < s.acknowledged+2; n++ {
			id := storetest.ReportID(n)
			entries = append(entries, segment.Entry{TaskID: s.leader.ID, Bucket: 10, ReportID: segment.ReportID(id), Report: id[:]})
		}
		if err := inbox.Put(ctx, entries); err != nil {
			return err
		}
		s.acknowledged += 2
	}
	sel, waiting, err := st.Drain(ctx, ask)
	if err != nil || waiting > 0 {
		return fmt.Errorf("drain: %d wait: %w", waiting, err)
	}
	frozen, err := st.Freeze(ctx, ask, sel)
	if err != nil {
		return err
	}
	return s.release(ctx, st, "collection", s.leader, &store.Release{
		Resource: ask.ID, Task: s.leader.ID, Kind: store.KindCollection,
		Selection: frozen.Selection, Count: frozen.Count, Checksum: frozen.Checksum, Debit: "none",
	})
}

func (s *story) work(ctx context.Context, st store.Engine, mem *disktest.Mem) error {
	for {
		jobs, err := st.ClaimJobs(ctx, storetest.Epoch, time.Minute, 1, store.Most{Bytes: 1 << 20, Reports: 1})
		if err != nil || len(jobs) == 0 {
			return err
		}
		for _, j := range jobs {
			sent := &store.Sent{Accepted: make([]byte, (j.Reports()+7)/8), Digest: j.Slices[0].Sum}
			if err := st.SaveSent(ctx, j, sent, storetest.Epoch.Add(time.Minute)); err != nil {
				return err
			}
			reports, err := segment.OpenSlices(ctx, payload.OpenFiles(mem), j.Slices)
			if err != nil {
				return err
			}
			var numbers []int
			for i := range reports.Len() {
				for n := range reportsTold {
					if storetest.ReportID(n) == dap.ReportID(reports.ReportID(i)) {
						numbers = append(numbers, n)
					}
				}
			}
			c := storetest.Commit(s.t, s.leader, []store.Batch{j.Batch}, []dap.Time{10}, [][]int{numbers})
			if err := st.FinishJob(ctx, j, c); err != nil {
				return err
			}
			if err := tidy(ctx, st, mem); err != nil {
				return err
			}
		}
	}
}

// tidy moves what is left of files, and removes these.
func tidy(ctx context.Context, st store.Engine, mem *disktest.Mem) error {
	list, err := st.Leftover(ctx, time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	if len(list) > 0 {
		files := payload.OpenFiles(mem)
		moved, err := segment.MoveSlices(ctx, files, files, segment.ObjectName("slices"), list)
		if err != nil {
			return err
		}
		var places []store.Place
		for i := range list {
			places = append(places, store.Place{From: list[i], To: moved[i]})
		}
		if err := st.Move(ctx, places); err != nil {
			return err
		}
	}
	return st.Bury(ctx)
}

// help answers a leader's jobs and its request for a share.
func (s *story) help(ctx context.Context, st store.Engine) error {
	batch := store.Batch{ID: dap.BatchID{3}}
	for i := range jobsTold {
		name := fmt.Sprintf("job %d", i)
		r, _, err := st.Create(ctx, store.KindAggregation, s.peer.ID, "", []byte(name), false, nil, storetest.Epoch)
		if err != nil {
			return err
		}
		// Of two rounds, and one mark of the job before: who has it may never change.
		shown := []store.Spend{{Round: 1, Mark: store.Mark{byte(i + 1)}}, {Round: 1, Mark: store.Mark{byte(i + 2)}}, {Round: 2, Mark: store.Mark{byte(i + 1)}}}
		for k := range shown {
			shown[k].Report = storetest.ReportID(2 * i)
		}
		spent, err := st.Spend(ctx, s.peer.ID, shown)
		if err != nil {
			return err
		}
		if err := s.answered("marks of "+name, fmt.Sprint(spent)); err != nil {
			return err
		}
		c := storetest.Commit(s.t, s.peer, []store.Batch{batch, batch}[:1], []dap.Time{7}, [][]int{{2 * i, 2*i + 1, 2*i + 2}})
		response, err := st.CommitJob(ctx, r, c, func(verdict []dap.ReportError) ([]byte, error) {
			return fmt.Appendf(nil, "%v", verdict), nil
		})
		if err != nil {
			return err
		}
		if err := s.answered(name, string(response)); err != nil {
			return err
		}
	}
	sel := store.Selection{ID: batch.ID}
	r, _, err := st.Create(ctx, store.KindShare, s.peer.ID, "", []byte("share"), false, &sel, storetest.Epoch)
	if err != nil {
		return err
	}
	var sum dap.Checksum
	for n := range 2*jobsTold + 1 {
		sum.Add(storetest.ReportID(n))
	}
	return s.release(ctx, st, "share", s.peer, &store.Release{
		Resource: r.ID, Task: s.peer.ID, Kind: store.KindShare, Selection: sel, Count: 2*jobsTold + 1, Checksum: sum, Debit: "none",
	})
}

func (s *story) release(ctx context.Context, st store.Engine, who string, task *store.Task, rel *store.Release) error {
	rel.Build = func(sum *vdaf.AggShare, _ store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
		s.draws++
		response := fmt.Sprintf("draw %d", s.draws)
		if rel.Series != nil {
			z, err := rel.Draw(nil, store.Frozen{}) // again: of a series it depends on nothing
			if err != nil {
				return nil, nil, err
			}
			s.noise[response] = [2][]int64{z, slices.Clone(noise)}
		}
		values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
		s.drawn[response] = values
		return []byte(response), nil, err
	}
	response, err := st.Release(ctx, rel)
	if err != nil {
		return err
	}
	return s.answered(who, string(response))
}

// rule has three bands, 1, 1/2 and 3/8.
func (s *story) rule() correlated.Series {
	strategy, err := correlated.SquareRoot(3, 8)
	if err != nil {
		s.t.Fatal(err)
	}
	return correlated.Series{Strategy: strategy, Separation: 3, Rounds: roundsTold + 1}
}

// correlate releases a batch of each of a few buckets, with noise that leans on the
// batches before.
func (s *story) correlate(ctx context.Context, st store.Engine) error {
	for round := range roundsTold {
		bucket := dap.Time(40 + round)
		name := fmt.Sprintf("round %d", round)
		numbers := []int{10 * round, 10*round + 1, 10*round + 2, 10*round + 3, 10*round + 4}
		r, _, err := st.Create(ctx, store.KindAggregation, s.series.ID, "", []byte(name), false, nil, storetest.Epoch)
		if err != nil {
			return err
		}
		c := storetest.Commit(s.t, s.series, []store.Batch{{Start: bucket}}, []dap.Time{bucket}, [][]int{numbers})
		if _, err := st.CommitJob(ctx, r, c, func([]dap.ReportError) ([]byte, error) { return []byte("done"), nil }); err != nil {
			return err
		}
		sel := storetest.Interval(bucket, 1)
		share, _, err := st.Create(ctx, store.KindShare, s.series.ID, "", []byte("share of "+name), false, sel, storetest.Epoch)
		if err != nil {
			return err
		}
		var sum dap.Checksum
		for _, n := range numbers {
			sum.Add(storetest.ReportID(n))
		}
		draws := make([]int64, storetest.Elements)
		for i := range draws {
			draws[i] = int64((s.draws+1)*1_000_003*(i+1)) % 70_001 // of this attempt alone
		}
		rel := &store.Release{
			Resource: share.ID, Task: s.series.ID, Kind: store.KindShare, Selection: *sel, Count: 5, Checksum: sum, Debit: "none",
			Series: &store.Series{Rule: s.rule(), Units: 1},
			Draw:   func(*vdaf.AggShare, store.Frozen) ([]int64, error) { return slices.Clone(draws), nil },
		}
		if err := s.release(ctx, st, name, s.series, rel); err != nil {
			return err
		}
	}
	return nil
}

// answered holds an answer against the one given before.
func (s *story) answered(who, response string) error {
	if before, ok := s.answers[who]; ok && before != response {
		s.t.Errorf("%s was answered %q, and now %q", who, before, response)
	}
	s.answers[who] = response
	return nil
}

// ends checks the story's end: every report counted once.
func (s *story) ends() {
	s.t.Helper()
	for who, reports := range map[string]int{"collection": reportsTold, "share": 2*jobsTold + 1} {
		values := s.drawn[s.answers[who]]
		if len(values) != storetest.Elements {
			s.t.Fatalf("the answer to %s is of no draw: %q", who, s.answers[who])
		}
		for n, v := range values {
			if want := map[bool]int64{true: 1}[n < reports]; v != want {
				s.t.Errorf("%s: report %d counted %d times, want %d", who, n, v, want)
			}
		}
	}
}

// leans checks that the noise of every answer leans on that of the answers before it,
// whatever attempts there were between.
func (s *story) leans() {
	s.t.Helper()
	var past [][]int64
	for round := range roundsTold {
		made, ok := s.noise[s.answers[fmt.Sprintf("round %d", round)]]
		if !ok {
			s.t.Fatalf("round %d was answered without a draw: %q", round, s.answers[fmt.Sprintf("round %d", round)])
		}
		w, err := s.rule().Strategy.Next(past[:min(len(past), 2)], made[0])
		if err != nil {
			s.t.Fatal(err)
		}
		if !slices.Equal(w, made[1]) {
			s.t.Errorf("the noise of round %d leans on other noise than was released", round)
		}
		past = slices.Insert(past, 0, w)
	}
}

// finish lives the story to its end on what a crash left.
func (s *story) finish(mem *disktest.Mem) {
	s.t.Helper()
	for range 2 { // the second life finds all done and changes no answer
		if err := s.live(mem, nil); err != nil {
			s.t.Fatalf("after the crash: %v", err)
		}
	}
	s.ends()
	s.leans()
}

var errPower = errors.New("power lost")

// TestPowerLossAtEveryFailpoint cuts the power at each named place, at its first and at a
// later passing.
func TestPowerLossAtEveryFailpoint(t *testing.T) {
	learn := new(disk.Failpoints)
	s := newStory(t)
	if err := s.live(disktest.NewMem(1), learn); err != nil {
		t.Fatal(err)
	}
	s.ends()
	hits := learn.Hits()
	for _, name := range []string{
		"store.commit-log.before-commit", "store.finish-job.after-commit", "store.move-slices.before-commit", "store.merge-runs.before-commit",
		"store.commit-job.before-commit", "store.spend.before-commit", "store.spend.after-commit", "store.release.after-commit", "store.freeze.before-commit",
		segment.FailRunAfterWrite, sqlite.FailNoiseAfterWrite,
	} {
		if hits[name] == 0 {
			t.Errorf("the story does not pass %s", name)
		}
	}
	for name, n := range hits {
		for _, skip := range []int{0, n / 2} {
			if skip > 0 && n < 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s#%d", name, skip), func(t *testing.T) {
				t.Parallel()
				s := newStory(t)
				mem, fail := disktest.NewMem(uint64(skip)+uint64(len(name))), new(disk.Failpoints)
				fail.Arm(name, skip, func() error {
					mem.Cut()
					return errPower
				})
				err := s.live(mem, fail)
				switch {
				case err == nil:
					t.Error("the failure was not reported")
				case strings.HasPrefix(name, "store.merge-runs"):
					// A merge that fails is no failure of the commit before it; the cut
					// showed at the next step.
				case strings.HasSuffix(name, ".after-commit") && !errors.Is(err, store.ErrUnknown):
					t.Errorf("done but reported failed is %v, want ErrUnknown", err)
				}
				s.finish(mem.Crash())
			})
		}
	}
}

// TestPowerLossAtAnyWrite cuts the power at places spread over all that is ever written,
// torn writes included.
func TestPowerLossAtAnyWrite(t *testing.T) {
	mem := disktest.NewMem(1)
	s := newStory(t)
	if err := s.live(mem, nil); err != nil {
		t.Fatal(err)
	}
	total := mem.Writes()
	const places = 24
	for i := range places {
		at := total * i / places
		t.Run(fmt.Sprintf("write %d of %d", at, total), func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			mem := disktest.NewMem(uint64(at))
			left := at
			mem.Inject(func(op disktest.Op, _ string) error {
				switch op {
				case disktest.OpRead, disktest.OpOpen:
					return nil
				}
				if left--; left < 0 {
					return errPower
				}
				return nil
			})
			if err := s.live(mem, nil); err == nil && i < places-1 { // the last may fall into Close
				t.Error("the failure was not reported")
			}
			s.finish(mem.Crash())
		})
	}
}

// TestFirstCommitSurvives: the files are new, so their names have to be made durable too.
func TestFirstCommitSurvives(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(16) {
		h := newHarness(seed)
		task := storetest.Task(t, dap.TimeInterval, 1)
		st := h.Open(t)
		if err := st.PutTask(ctx, task); err != nil {
			t.Fatal(err)
		}
		h.mem = h.mem.Crash()
		st.Close() // on the disk that lost its power
		st = h.Open(t)
		if ids, err := st.Tasks(ctx); err != nil || len(ids) != 1 {
			t.Errorf("seed %d: the task is lost: %v, %v", seed, ids, err)
		}
		st.Close()
	}
}

// TestFailedSyncStopsTheStore has one fsync of the database fail: what it held is
// unknown, so the process must not go on, and opening again tells.
func TestFailedSyncStopsTheStore(t *testing.T) {
	syncs, bad := 0, 0
	count := func(op disktest.Op, name string) error {
		if op == disktest.OpSync && strings.HasPrefix(name, "store.db") {
			if syncs++; syncs == bad {
				return errors.New("input/output error")
			}
		}
		return nil
	}
	h := newHarness(0) // how many syncs a new store takes, which is known to have failed if one does
	h.mem.Inject(count)
	if err := h.Open(t).Close(); err != nil {
		t.Fatal(err)
	}
	opening := syncs
	for skip := range 12 {
		s := newStory(t)
		mem := disktest.NewMem(uint64(skip))
		syncs, bad = 0, opening+3*skip+1
		mem.Inject(count)
		if err := s.live(mem, nil); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("sync %d: %v, want ErrUnknown", bad, err)
		}
		s.finish(mem.Crash())
	}
}

// TestUnknownOutcome holds each transaction reported failed, although it was done,
// against the store's promise: nothing works until the store is opened again.
func TestUnknownOutcome(t *testing.T) {
	ctx := context.Background()
	h := newHarness(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	st := h.Open(t)
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	refused := map[dap.ReportError]uint64{dap.ReportTooEarly: 1}
	h.fail.Arm("store.add-refused.before-commit", 0, func() error { return errPower })
	if err := st.AddRefused(ctx, task.ID, refused); !errors.Is(err, errPower) || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a failure before the commit is %v", err)
	}
	h.fail.Disarm("store.add-refused.before-commit")
	if c, err := st.Counts(ctx, task.ID); err != nil || len(c.Refused) != 0 {
		t.Fatalf("a failure before the commit left %+v, %v", c, err)
	}
	h.fail.Arm("store.add-refused.after-commit", 0, func() error { return errPower })
	if err := st.AddRefused(ctx, task.ID, refused); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("a failure after the commit is %v", err)
	}
	if _, err := st.Counts(ctx, task.ID); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("the store went on: %v", err)
	}
	st.Close()
	h.fail.Disarm("store.add-refused.after-commit")
	st = h.Open(t)
	defer st.Close()
	if c, err := st.Counts(ctx, task.ID); err != nil || c.Refused[dap.ReportTooEarly] != 1 {
		t.Fatalf("after opening again: %+v, %v", c, err)
	}
}

// TestAuditSeesDamage changes what lies on the disk, and rows, and wants to hear of it.
func TestAuditSeesDamage(t *testing.T) {
	ctx := context.Background()
	mem := disktest.NewMem(1)
	s := newStory(t)
	if err := s.live(mem, nil); err != nil {
		t.Fatal(err)
	}
	st, err := sqlite.Open(ctx, options(mem, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	files, err := st.LiveFiles(ctx)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	content, err := disk.ReadFile(mem, files[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(content)
	flipped[len(flipped)/2] ^= 1
	for name, damaged := range map[string][]byte{"short": content[:len(content)-1], "flipped": flipped} {
		if err := disk.WriteFile(mem, files[0], damaged); err != nil {
			t.Fatal(err)
		}
		if problems, err := st.Audit(ctx); err != nil || len(problems) == 0 {
			t.Errorf("%s: the audit says %q, %v", name, problems, err)
		}
	}
	if err := disk.Remove(mem, files[0]); err != nil {
		t.Fatal(err)
	}
	if problems, err := st.Audit(ctx); err != nil || len(problems) == 0 {
		t.Errorf("gone: the audit says %q, %v", problems, err)
	}
	if err := disk.WriteFile(mem, files[0], content); err != nil {
		t.Fatal(err)
	}
	if problems, err := st.Audit(ctx); err != nil || len(problems) != 0 {
		t.Errorf("restored: the audit says %q, %v", problems, err)
	}
}
