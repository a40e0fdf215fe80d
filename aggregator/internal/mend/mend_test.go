package mend_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

// recordOn is the record of a store, on its own disk.
func recordOn(t *testing.T, mem *disktest.Mem) disk.FS {
	t.Helper()
	if err := disk.MakeDirs(mem, "record"); err != nil {
		t.Fatal(err)
	}
	return disk.Sub(mem, "record")
}

func id(n int) (id dap.ReportID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// side is one aggregator's store.
type side struct {
	t    *testing.T
	mem  *disktest.Mem
	task *store.Task
	store.Engine
}

func newSide(t *testing.T, mem *disktest.Mem, rangeIDs int64) *side {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{
		FS: mem, Record: recordOn(t, mem), Role: dap.RoleLeader, Party: "https://leader.example/", RangeIDs: rangeIDs,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := &side{t, mem, storetest.Task(t, dap.LeaderSelected, 1), st}
	if err := st.PutTask(t.Context(), s.task); err != nil {
		t.Fatal(err)
	}
	return s
}

// commit aggregates reports first to last.
func (s *side) commit(first, last int) error {
	ctx := s.t.Context()
	c := &store.Commit{Task: s.task.ID, Batches: []store.Batch{{ID: dap.BatchID{1}}}}
	for n := first; n <= last; n++ {
		c.Candidates = append(c.Candidates, store.Candidate{ID: id(n), Time: 1})
	}
	c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
		return []*vdaf.AggShare{s.task.VDAF.NewAggShare()}, nil
	}
	r, _, err := s.Create(ctx, store.KindAggregation, s.task.ID, "", fmt.Append(nil, first, last), false, nil, storetest.Epoch)
	if err != nil {
		return err
	}
	_, err = s.CommitJob(ctx, r, c, func(v []dap.ReportError) ([]byte, error) {
		if slices.ContainsFunc(v, func(e dap.ReportError) bool { return e != 0 }) {
			return nil, errors.New("a report is refused")
		}
		return []byte("done"), nil
	})
	return err
}

// lose ends the life of a store, removes those of its runs that which says, and begins
// another.
func (s *side) lose(rangeIDs int64, which func(i int) bool) *side {
	s.t.Helper()
	if err := s.Close(); err != nil {
		s.t.Fatal(err)
	}
	entries, err := s.mem.ReadDir("runs")
	if err != nil {
		s.t.Fatal(err)
	}
	for i, e := range entries {
		if which(i) {
			if err := disk.Remove(s.mem, "runs/"+e.Name); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	again := newSide(s.t, s.mem, rangeIDs)
	if _, err := again.CheckReplay(s.t.Context(), s.task.ID); err != nil {
		s.t.Fatal(err)
	}
	return again
}

func none(_ context.Context, ids []dap.ReportID) ([]bool, error) { return make([]bool, len(ids)), nil }

// damaged is what is known to be damaged.
func (s *side) damaged() []store.Damaged {
	s.t.Helper()
	d, err := s.Damaged(s.t.Context(), s.task.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// mendAll takes what the peer has, page by page, and says how many pages they were.
func (s *side) mendAll(peer *side) (pages int, err error) {
	ctx := s.t.Context()
	for _, d := range s.damaged() {
		run := mend.NewRun(s, s.task.ID, d)
		for whole := false; !whole; pages++ {
			page, err := mend.Page(ctx, peer, s.task.ID, run.Next(), run.High(), nil, func(dap.ReportID) bool { return false })
			if err != nil {
				return pages, err
			}
			if whole, err = run.Take(ctx, page, none); err != nil {
				return pages, err
			}
		}
	}
	return pages, nil
}

// TestMendInPages: tens of thousands of ids, whole ranges and all files at once, at
// aggregators that merge and divide otherwise.
func TestMendInPages(t *testing.T) {
	const jobs, job = 10, 4096
	for name, which := range map[string]func(i int) bool{
		"one file":   func(i int) bool { return i == 0 },
		"every file": func(int) bool { return true },
		"some files": func(i int) bool { return i%2 == 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const small = 1 << 13
			ours, peer := newSide(t, disktest.NewMem(1), small), newSide(t, disktest.NewMem(2), 1<<20)
			for n := range jobs {
				for _, s := range []*side{ours, peer} {
					if err := s.commit(n*job, n*job+job-1); err != nil {
						t.Fatal(err)
					}
				}
			}
			ours = ours.lose(small, which)
			if len(ours.damaged()) == 0 {
				t.Fatal("nothing is damaged")
			}
			if err := ours.commit(0, jobs*job-1); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("reports that may be in what is lost: %v", err)
			}
			pages, err := ours.mendAll(peer)
			if err != nil {
				t.Fatal(err)
			}
			if name == "every file" && pages < 3 {
				t.Errorf("%d ids came in %d pages", jobs*job, pages)
			}
			if d := ours.damaged(); len(d) > 0 {
				t.Fatalf("still damaged: %+v", d)
			}
			ours = ours.lose(small, func(int) bool { return false })
			var all []dap.ReportID
			for n := range jobs * job {
				all = append(all, id(n))
			}
			seen, err := ours.Seen(t.Context(), ours.task.ID, append(all, id(jobs*job)))
			if err != nil || slices.Contains(seen[:len(all)], false) || seen[len(all)] {
				t.Errorf("seen is wrong after mending: %v", err)
			}
			if err := ours.commit(jobs*job, jobs*job+99); err != nil { // merges go on
				t.Error(err)
			}
			if problems, err := ours.Audit(t.Context()); err != nil || len(problems) > 0 {
				t.Error(problems, err)
			}
		})
	}
}

// TestMendProves: several files that were lost together are proved as one is; what a peer
// swaps is refused, and a peer that has too little or too much is told of in words.
func TestMendProves(t *testing.T) {
	ctx := t.Context()
	ours, peer, other := newSide(t, disktest.NewMem(1), 0), newSide(t, disktest.NewMem(2), 0), newSide(t, disktest.NewMem(3), 0)
	for n := range 3 {
		for _, s := range []*side{ours, peer} {
			if err := s.commit(10*n, 10*n+9); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := other.commit(0, 28); err != nil {
		t.Fatal(err)
	}
	if err := other.commit(100, 100); err != nil {
		t.Fatal(err)
	}
	ours = ours.lose(0, func(int) bool { return true })
	d := ours.damaged()
	if len(d) != 1 || d[0].IDs != 30 || d[0].Files != 3 || !strings.Contains(d[0].Why, "is missing") {
		t.Fatalf("damaged: %+v", d)
	}
	if _, err := ours.mendAll(other); !errors.Is(err, mend.ErrProof) {
		t.Errorf("another report in place of one: %v", err)
	}
	if err := other.commit(29, 29); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.mendAll(other); !errors.Is(err, mend.ErrMany) {
		t.Errorf("one report more: %v", err)
	}
	// Marked, and known here not to be committed, it is left out.
	run := mend.NewRun(ours, ours.task.ID, d[0])
	page, err := mend.Page(ctx, other, ours.task.ID, run.Next(), run.High(), nil, func(x dap.ReportID) bool { return x == id(100) })
	if err != nil {
		t.Fatal(err)
	}
	whole, err := run.Take(ctx, page, func(_ context.Context, ids []dap.ReportID) ([]bool, error) {
		if !slices.Equal(ids, []dap.ReportID{id(100)}) {
			t.Errorf("asked about %d ids", len(ids))
		}
		return []bool{true}, nil
	})
	if !whole || err != nil {
		t.Errorf("with the report left out: %v, %v", whole, err)
	}
	if err := ours.Mend(ctx, ours.task.ID, d[0].Sum, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("mending what is whole: %v", err)
	}
}

// TestPage: extra ids stand where they belong, marked unless they are aggregated, and a
// page is never too long.
func TestPage(t *testing.T) {
	peer := newSide(t, disktest.NewMem(1), 0)
	if err := peer.commit(0, 4095); err != nil {
		t.Fatal(err)
	}
	var extra []dap.ReportID
	for n := 4000; n < 4000+mend.PageSize; n++ {
		extra = append(extra, id(n))
	}
	slices.SortFunc(extra, func(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) })
	high := dap.ReportID(bytes.Repeat([]byte{0xff}, 16))
	got := make(map[dap.ReportID]bool)
	var low dap.ReportID
	for pages := 0; ; pages++ {
		page, err := mend.Page(t.Context(), peer, peer.task.ID, low, high, extra, func(dap.ReportID) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mend.ReadPage(mend.AppendPage(nil, page)); err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if _, twice := got[e.ID]; twice {
				t.Fatal("an id is there twice")
			}
			got[e.ID] = e.Marked
		}
		if len(page) < mend.PageSize {
			if pages != 1 {
				t.Errorf("%d pages before the last, want 1", pages)
			}
			break
		}
		low = page[len(page)-1].ID
		low[15]++ // the ids are far apart
	}
	if len(got) != 4000+mend.PageSize {
		t.Errorf("%d ids, want %d", len(got), 4000+mend.PageSize)
	}
	for n := range 4000 + mend.PageSize {
		if marked, ok := got[id(n)]; !ok || marked != (n >= 4096) {
			t.Fatalf("report %d: there %v, marked %v", n, ok, marked)
		}
	}
}

// FuzzMessages: each message has one encoding, and what is read is within its bounds.
func FuzzMessages(f *testing.F) {
	needs := []mend.Need{{Sum: [32]byte{1}, High: dap.ReportID{9}, IDs: 7}, {Next: dap.ReportID{3}, High: dap.ReportID{3}, IDs: 1}}
	page := []mend.Entry{{ID: id(0)}, {ID: id(1), Marked: true}}
	f.Add(mend.AppendNeeds(nil, needs))
	f.Add(mend.AppendAsk(nil, dap.ReportID{1}, dap.ReportID{2}))
	f.Add(mend.AppendPage(nil, page))
	f.Add((&mend.Gift{Sum: [32]byte{2}, From: dap.ReportID{0}, Page: page}).Append(nil))
	f.Add(mend.AppendOutcome(nil, mend.Unlike, dap.ReportID{5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, again []byte, err error) {
			t.Helper()
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%s: %x is read, and written as %x", what, b, again)
			}
		}
		n, err := mend.ReadNeeds(b)
		same("needs", mend.AppendNeeds(nil, n), err)
		low, high, err := mend.ReadAsk(b)
		same("ask", mend.AppendAsk(nil, low, high), err)
		p, err := mend.ReadPage(b)
		same("page", mend.AppendPage(nil, p), err)
		if len(n) > mend.MaxNeeds || len(p) > mend.PageSize {
			t.Error("too much was read")
		}
		g, err := mend.ReadGift(b)
		same("gift", g.Append(nil), err)
		o, next, err := mend.ReadOutcome(b)
		same("outcome", mend.AppendOutcome(nil, o, next), err)
	})
}

// TestMessagesRoundTrip: what is written is read.
func TestMessagesRoundTrip(t *testing.T) {
	needs := []mend.Need{{Sum: [32]byte{1}, High: dap.ReportID{9}, IDs: 7}}
	if got, err := mend.ReadNeeds(mend.AppendNeeds(nil, needs)); err != nil || !slices.Equal(got, needs) {
		t.Errorf("needs %+v, %v", got, err)
	}
	page := []mend.Entry{{ID: id(0)}, {ID: id(1), Marked: true}}
	gift := mend.Gift{Sum: [32]byte{2}, From: dap.ReportID{1}, Page: page}
	if got, err := mend.ReadGift(gift.Append(nil)); err != nil || got.Sum != gift.Sum || got.From != gift.From || !slices.Equal(got.Page, page) {
		t.Errorf("gift %+v, %v", got, err)
	}
	if o, next, err := mend.ReadOutcome(mend.AppendOutcome(nil, mend.Mended, id(3))); o != mend.Mended || next != id(3) || err != nil {
		t.Errorf("outcome %v, %x, %v", o, next, err)
	}
	if _, err := mend.ReadPage(mend.AppendPage(nil, []mend.Entry{page[1], page[0]})); err == nil {
		t.Error("a page out of order is read")
	}
}
