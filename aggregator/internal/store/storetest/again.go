package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

func init() {
	tests["AskedAgain"] = func(t *testing.T, h Harness) { testAskedAgain(t, h, false) }
	tests["LostAnswers"] = func(t *testing.T, h Harness) { testAskedAgain(t, h, true) }
}

// transactionOf names the transactions of the calls in testAskedAgain whose answers are
// lost.
var transactionOf = map[string]string{
	"SaveTime": "save-time", "HoldTask": "hold-task", "Resume": "resume", "NoteDataKey": "note-data-key", "EndDataKey": "end-data-key",
	"Spend": "spend", "ForgetRound": "forget-round", "CommitLog": "commit-log", "ForgetLog": "forget-log", "SaveSent": "save-sent", "RenewJob": "renew-job", "FinishJob": "finish-job", "Move": "move-slices",
	"QuarantineJob": "quarantine-job", "ParkJob": "park-job", "RetryJob": "retry-job", "Bury": "drop-tombstones", "Create": "create-resource",
	"Drain": "drain", "Freeze": "freeze", "Release": "release", "Delete": "delete-resource", "Withdraw": "delete-resource",
	"Fail": "fail-resource", "CommitJob": "commit-job", "Advance": "advance-job", "AddRefused": "add-refused", "Retire": "retire-task",
	"Sweep": "sweep-task", "Forgo": "forgo-collection", "Register": "register", "CloseTask": "close-task", "GiveUp": "give-up-task",
}

// testAskedAgain: every call took place, and its caller, who did not hear of it, makes it
// once more. The answer is the one that the package comment of store promises, and nothing
// is done twice but what it says. With lost it is the engine that does not hear of the
// commit: it finds out, or says that it does not know and is opened again.
func testAskedAgain(t *testing.T, h Harness, lost bool) {
	ctx := context.Background()
	lead, help := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	lead.End = Epoch.Add(time.Hour)
	w := NewWorld(t, h, lead, help)
	struck := make(map[string]bool)
	again := func(name string, want error, call func() (any, error)) {
		t.Helper()
		at := "store." + transactionOf[name] + ".after-commit"
		if lost {
			h.Failpoints().Arm(at, 0, func() error { struck[name] = true; return ErrFault })
		}
		first, err := call()
		h.Failpoints().Disarm(at)
		unknown := lost && errors.Is(err, store.ErrUnknown)
		if unknown {
			w.Reopen(t)
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		second, err := call()
		switch {
		case want != nil:
			w.is(err, want)
		case err != nil || !unknown && fmt.Sprint(first) != fmt.Sprint(second):
			t.Errorf("%s: at first %v, then %v, %v", name, first, second, err)
		}
		w.Audit()
	}
	do := func(name string, want error, call func() error) {
		t.Helper()
		again(name, want, func() (any, error) { return nil, call() })
	}
	claim := func() *store.Job {
		t.Helper()
		w.Now = w.Now.Add(time.Minute) // a lease that a lost call holds has ended
		return w.Claim(1)[0]
	}

	do("PutTask", nil, func() error { return w.Store.PutTask(ctx, lead) })
	registered := Provision(Task(t, dap.TimeInterval, 3))
	do("Register", nil, func() error {
		_, err := w.Store.Register(ctx, registered)
		return err
	})
	w.log(registered.Task, 10, 100, 102)
	again("CloseTask", nil, func() (any, error) {
		return w.Store.CloseTask(ctx, registered.ID, store.Closing{At: w.Now, By: "a person", Why: "over"})
	})
	do("GiveUp", nil, func() error {
		_, err := w.Store.GiveUp(ctx, registered.ID)
		return err
	})
	w.CountsAre(registered.Task, store.Counts{Acknowledged: 3, Rejected: map[dap.ReportError]uint64{dap.ReportDropped: 3}})
	do("NoteKeys", nil, func() error { return w.Store.NoteKeys(ctx) })
	do("SaveTime", nil, func() error { return w.Store.SaveTime(ctx, w.Now) })
	do("HoldTask", nil, func() error { return w.Store.HoldTask(ctx, lead.ID, "a person", w.Now) })
	again("Resume", nil, func() (any, error) { return w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false) })
	again("Spend", nil, func() (any, error) {
		return w.Store.Spend(ctx, lead.ID, []store.Spend{{Round: 1, Mark: store.Mark{1}, Report: ReportID(1)}, {Round: 1, Mark: store.Mark{1}, Report: ReportID(2)}})
	})
	again("ForgetRound", nil, func() (any, error) { return w.Store.ForgetRound(ctx, lead.ID, 1, 9) })
	key := datakey.Record{Serial: 1, From: Epoch, Until: Epoch.Add(time.Hour)}
	do("NoteDataKey", nil, func() error { return w.Store.NoteDataKey(ctx, datakey.SetID{1}, key) })
	do("EndDataKey", nil, func() error { return w.Store.EndDataKey(ctx, 1) })
	do("CommitLog", nil, func() error {
		return w.Store.CommitLog(ctx, segment.Begun{ID: disk.LogID{1}, File: "inbox/1.log"}, nil, &segment.LogDamage{File: "inbox/1.log", Bytes: 1}, nil)
	})
	do("ForgetLog", nil, func() error { return w.Store.ForgetLog(ctx, disk.LogID{1}) })

	// Four jobs: one is committed, one set aside, one parked and one given back.
	for n := range 4 {
		w.log(lead, dap.Time(10+n), 6*n, 6*n+5)
	}
	var j *store.Job
	sent := &store.Sent{Accepted: make([]byte, 1), Digest: [32]byte{1}}
	do("SaveSent", nil, func() error {
		j = claim()
		return w.Store.SaveSent(ctx, j, sent, w.Now)
	})
	j = claim()
	if j.Sent == nil || j.Sent.Digest != sent.Digest {
		t.Errorf("sent is %+v", j.Sent)
	}
	var places []store.Place
	for _, s := range j.Slices {
		to := s
		to.Object = "slices/a.obj"
		places = append(places, store.Place{From: s, To: to})
	}
	w.ok(w.Store.RetryJob(ctx, j, w.Now, "why"))
	content, err := disk.ReadFile(h.FS(), j.Slices[0].Object, 1<<20)
	w.ok(err)
	w.ok(disk.WriteFile(h.FS(), "slices/a.obj", content))
	do("Move", nil, func() error { return w.Store.Move(ctx, places) })
	j = claim()
	if j.Slices[0].Object != "slices/a.obj" {
		t.Errorf("moved to %s", j.Slices[0].Object)
	}
	numbers := w.Numbers(j)
	do("FinishJob", store.ErrStaleLease, func() error {
		c := Commit(t, lead, []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Slices[0].Bucket)}, [][]int{numbers})
		return w.Store.FinishJob(ctx, j, c)
	})
	j = claim()
	do("QuarantineJob", store.ErrStaleLease, func() error { return w.Store.QuarantineJob(ctx, j, dap.InvalidMessage, "why") })
	j = claim()
	do("ParkJob", store.ErrStaleLease, func() error { return w.Store.ParkJob(ctx, j, "why", w.Now) })
	do("RenewJob", nil, func() error {
		j = claim()
		return w.Store.RenewJob(ctx, j, w.Now)
	})
	j = claim()
	do("RetryJob", store.ErrStaleLease, func() error { return w.Store.RetryJob(ctx, j, w.Now, "why") })
	reports, err := w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false)
	if w.ok(err); reports != 6 {
		t.Errorf("%d reports go on, want 6", reports)
	}
	again("Resume", nil, func() (any, error) { return w.Store.Resume(ctx, []dap.TaskID{lead.ID}, false) })
	j = claim()
	w.ok(w.Store.FinishJob(ctx, j, w.CommitOf(lead, j)))
	do("Bury", nil, func() error { return w.Store.Bury(ctx) })
	w.Work(lead)
	w.CountsAre(lead, store.Counts{Acknowledged: 24, Aggregated: 18, Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 6}})

	var r *store.Resource
	again("Create", nil, func() (_ any, err error) {
		r, _, err = w.Store.Create(ctx, store.KindCollection, lead.ID, "", []byte("first"), true, Interval(10, 1), w.Now)
		if err != nil {
			return nil, err
		}
		return r.ID, nil
	})
	again("Drain", nil, func() (any, error) {
		sel, waiting, err := w.Store.Drain(ctx, r)
		return fmt.Sprint(sel, waiting), err
	})
	var f *store.Frozen
	again("Freeze", nil, func() (_ any, err error) {
		if f, err = w.Store.Freeze(ctx, r, *Interval(10, 1)); err != nil {
			return nil, err
		}
		return *f, nil
	})
	var got []int64
	again("Release", nil, func() (any, error) { return w.Store.Release(ctx, w.ReleaseOf(lead, r, f, &got)) })
	w.Once(got, 0, 5)
	do("Delete", store.ErrNotFound, func() error { return w.Store.Delete(ctx, r.Kind, lead.ID, r.ID) })
	second, third := w.Ask(lead, "second", Interval(12, 1)), w.Ask(lead, "third", Interval(13, 1))
	do("Withdraw", store.ErrNotFound, func() error { return w.Store.Withdraw(ctx, lead.ID, second.ID) })
	do("Forgo", nil, func() error { return w.Store.Forgo(ctx, lead.ID, "chosen") })
	do("Fail", nil, func() error { return w.Store.Fail(ctx, third, &dap.Problem{Type: dap.ProblemBatchInvalid}) })

	job := w.job(help, "job")
	commit := func(first int) *store.Commit {
		c := Commit(t, help, []store.Batch{{ID: dap.BatchID{1}}}, []dap.Time{10}, [][]int{{first, first + 1}})
		return c
	}
	again("CommitJob", nil, func() (any, error) { return w.Store.CommitJob(ctx, job, commit(0), reply) })
	again("Advance", nil, func() (any, error) { return w.Store.Advance(ctx, job, 1, [32]byte{1}, commit(2), reply) })
	w.CountsAre(help, store.Counts{Acknowledged: 4, Aggregated: 4})

	refused := map[dap.ReportError]uint64{dap.ReportTooEarly: 3}
	do("AddRefused", nil, func() error { return w.Store.AddRefused(ctx, help.ID, refused) })
	w.CountsAre(help, store.Counts{Acknowledged: 4, Aggregated: 4, Refused: map[dap.ReportError]uint64{dap.ReportTooEarly: 6}})

	do("Retire", nil, func() error { return w.Store.Retire(ctx, lead.ID, lead.End) })
	again("Sweep", nil, func() (any, error) { return w.Store.Sweep(ctx, lead.ID, 1000) })
	for name := range transactionOf {
		if lost && !struck[name] {
			t.Errorf("%s: its answer was not lost", name)
		}
	}
}
