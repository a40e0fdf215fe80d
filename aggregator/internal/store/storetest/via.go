package storetest

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/releases"
)

// via is an engine whose calls go through do, which chooses the handle that each is made
// at, and what becomes of it. A call that fails returns nothing but its error.
type via struct {
	do    func(method string, call func(store.Engine) error) error
	close func() error
}

func one[T any](v *via, method string, call func(store.Engine) (T, error)) (T, error) {
	var out, none T
	err := v.do(method, func(e store.Engine) (err error) {
		out, err = call(e)
		return err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

func two[T, U any](v *via, method string, call func(store.Engine) (T, U, error)) (T, U, error) {
	type both struct {
		t T
		u U
	}
	out, err := one(v, method, func(e store.Engine) (b both, err error) {
		b.t, b.u, err = call(e)
		return b, err
	})
	return out.t, out.u, err
}

func (v *via) Close() error { return v.close() }

func (v *via) PutTask(ctx context.Context, t *store.Task) error {
	return v.do("PutTask", func(e store.Engine) error { return e.PutTask(ctx, t) })
}

func (v *via) LetGo(task dap.TaskID) {
	_ = v.do("LetGo", func(e store.Engine) error {
		e.LetGo(task)
		return nil
	})
}

func (v *via) Tasks(ctx context.Context) ([]dap.TaskID, error) {
	return one(v, "Tasks", func(e store.Engine) ([]dap.TaskID, error) { return e.Tasks(ctx) })
}

func (v *via) TaskState(ctx context.Context, task dap.TaskID) (store.TaskState, error) {
	return one(v, "TaskState", func(e store.Engine) (store.TaskState, error) { return e.TaskState(ctx, task) })
}

func (v *via) Retire(ctx context.Context, task dap.TaskID, now time.Time) error {
	return v.do("Retire", func(e store.Engine) error { return e.Retire(ctx, task, now) })
}

func (v *via) Sweep(ctx context.Context, task dap.TaskID, n int) (bool, error) {
	return one(v, "Sweep", func(e store.Engine) (bool, error) { return e.Sweep(ctx, task, n) })
}

func (v *via) Register(ctx context.Context, tasks ...store.Provision) (int, error) {
	return one(v, "Register", func(e store.Engine) (int, error) { return e.Register(ctx, tasks...) })
}

func (v *via) Amend(ctx context.Context, task dap.TaskID, terms []byte) error {
	return v.do("Amend", func(e store.Engine) error { return e.Amend(ctx, task, terms) })
}

func (v *via) CloseTask(ctx context.Context, task dap.TaskID, c store.Closing) (store.Closing, error) {
	return one(v, "CloseTask", func(e store.Engine) (store.Closing, error) { return e.CloseTask(ctx, task, c) })
}

func (v *via) Registration(ctx context.Context, task dap.TaskID) (*store.Registration, error) {
	return one(v, "Registration", func(e store.Engine) (*store.Registration, error) { return e.Registration(ctx, task) })
}

func (v *via) Registrations(ctx context.Context, after uint64, n int) ([]store.Registration, error) {
	return one(v, "Registrations", func(e store.Engine) ([]store.Registration, error) { return e.Registrations(ctx, after, n) })
}

func (v *via) LogFate(ctx context.Context, log segment.Begun) (segment.Fate, error) {
	return one(v, "LogFate", func(e store.Engine) (segment.Fate, error) { return e.LogFate(ctx, log) })
}

func (v *via) CommitLog(ctx context.Context, log segment.Begun, slices []segment.Slice, lost *segment.LogDamage, others []segment.Begun) error {
	return v.do("CommitLog", func(e store.Engine) error { return e.CommitLog(ctx, log, slices, lost, others) })
}

func (v *via) BeginLogs(ctx context.Context, logs []segment.Begun) error {
	return v.do("BeginLogs", func(e store.Engine) error { return e.BeginLogs(ctx, logs) })
}

func (v *via) BegunLogs(ctx context.Context) ([]segment.Begun, error) {
	return one(v, "BegunLogs", func(e store.Engine) ([]segment.Begun, error) { return e.BegunLogs(ctx) })
}

func (v *via) ForgetLog(ctx context.Context, log disk.LogID) error {
	return v.do("ForgetLog", func(e store.Engine) error { return e.ForgetLog(ctx, log) })
}

func (v *via) BatchState(ctx context.Context, task dap.TaskID, b store.Batch) (store.BatchState, error) {
	return one(v, "BatchState", func(e store.Engine) (store.BatchState, error) { return e.BatchState(ctx, task, b) })
}

func (v *via) AddRefused(ctx context.Context, task dap.TaskID, refused map[dap.ReportError]uint64) error {
	return v.do("AddRefused", func(e store.Engine) error { return e.AddRefused(ctx, task, refused) })
}

func (v *via) ClaimJobs(ctx context.Context, now time.Time, lease time.Duration, n int, most store.Most, except ...store.Except) ([]*store.Job, error) {
	return one(v, "ClaimJobs", func(e store.Engine) ([]*store.Job, error) { return e.ClaimJobs(ctx, now, lease, n, most, except...) })
}

func (v *via) SetAside(ctx context.Context, j *store.Job, slices []int, code dap.ReportError, why string) (*store.Job, error) {
	return one(v, "SetAside", func(e store.Engine) (*store.Job, error) { return e.SetAside(ctx, j, slices, code, why) })
}

func (v *via) Slices(ctx context.Context, cursor int64, n int) ([]segment.Slice, int64, error) {
	return two(v, "Slices", func(e store.Engine) ([]segment.Slice, int64, error) { return e.Slices(ctx, cursor, n) })
}

func (v *via) Leftover(ctx context.Context, before time.Time) ([]segment.Slice, error) {
	return one(v, "Leftover", func(e store.Engine) ([]segment.Slice, error) { return e.Leftover(ctx, before) })
}

func (v *via) Move(ctx context.Context, places []store.Place) error {
	return v.do("Move", func(e store.Engine) error { return e.Move(ctx, places) })
}

func (v *via) SaveSent(ctx context.Context, j *store.Job, s *store.Sent, expires time.Time) error {
	return v.do("SaveSent", func(e store.Engine) error { return e.SaveSent(ctx, j, s, expires) })
}

func (v *via) Shared(ctx context.Context, j *store.Job, location string) (bool, error) {
	return one(v, "Shared", func(e store.Engine) (bool, error) { return e.Shared(ctx, j, location) })
}

func (v *via) RenewJob(ctx context.Context, j *store.Job, expires time.Time) error {
	return v.do("RenewJob", func(e store.Engine) error { return e.RenewJob(ctx, j, expires) })
}

func (v *via) RetryJob(ctx context.Context, j *store.Job, after time.Time, why string) error {
	return v.do("RetryJob", func(e store.Engine) error { return e.RetryJob(ctx, j, after, why) })
}

func (v *via) QuarantineJob(ctx context.Context, j *store.Job, code dap.ReportError, why string) error {
	return v.do("QuarantineJob", func(e store.Engine) error { return e.QuarantineJob(ctx, j, code, why) })
}

func (v *via) ParkJob(ctx context.Context, j *store.Job, why string, now time.Time) error {
	return v.do("ParkJob", func(e store.Engine) error { return e.ParkJob(ctx, j, why, now) })
}

func (v *via) HoldTask(ctx context.Context, task dap.TaskID, why string, now time.Time) error {
	return v.do("HoldTask", func(e store.Engine) error { return e.HoldTask(ctx, task, why, now) })
}

func (v *via) Holds(ctx context.Context) ([]store.Hold, error) {
	return one(v, "Holds", func(e store.Engine) ([]store.Hold, error) { return e.Holds(ctx) })
}

func (v *via) Resume(ctx context.Context, tasks []dap.TaskID, drop bool) (uint64, error) {
	return one(v, "Resume", func(e store.Engine) (uint64, error) { return e.Resume(ctx, tasks, drop) })
}

func (v *via) GiveUp(ctx context.Context, task dap.TaskID) (uint64, error) {
	return one(v, "GiveUp", func(e store.Engine) (uint64, error) { return e.GiveUp(ctx, task) })
}

func (v *via) FinishJob(ctx context.Context, j *store.Job, c *store.Commit) error {
	return v.do("FinishJob", func(e store.Engine) error { return e.FinishJob(ctx, j, c) })
}

func (v *via) Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return one(v, "Seen", func(e store.Engine) ([]bool, error) { return e.Seen(ctx, task, ids) })
}

func (v *via) Spend(ctx context.Context, task dap.TaskID, list []store.Spend) ([]bool, error) {
	return one(v, "Spend", func(e store.Engine) ([]bool, error) { return e.Spend(ctx, task, list) })
}

func (v *via) Spent(ctx context.Context, task dap.TaskID, first, last uint64) ([]store.Spent, error) {
	return one(v, "Spent", func(e store.Engine) ([]store.Spent, error) { return e.Spent(ctx, task, first, last) })
}

func (v *via) SpentRounds(ctx context.Context, task dap.TaskID, n int) ([]uint64, error) {
	return one(v, "SpentRounds", func(e store.Engine) ([]uint64, error) { return e.SpentRounds(ctx, task, n) })
}

func (v *via) ForgetRound(ctx context.Context, task dap.TaskID, round uint64, n int) (bool, error) {
	return one(v, "ForgetRound", func(e store.Engine) (bool, error) { return e.ForgetRound(ctx, task, round, n) })
}

func (v *via) Hurry(ctx context.Context, task dap.TaskID) error {
	return v.do("Hurry", func(e store.Engine) error { return e.Hurry(ctx, task) })
}

func (v *via) Sent(ctx context.Context, task dap.TaskID) ([]store.JobInFlight, error) {
	return one(v, "Sent", func(e store.Engine) ([]store.JobInFlight, error) { return e.Sent(ctx, task) })
}

func (v *via) Verified(ctx context.Context, task dap.TaskID, interval dap.Interval) (uint64, uint64, error) {
	return two(v, "Verified", func(e store.Engine) (uint64, uint64, error) { return e.Verified(ctx, task, interval) })
}

func (v *via) Drain(ctx context.Context, r *store.Resource) (store.Selection, uint64, error) {
	return two(v, "Drain", func(e store.Engine) (store.Selection, uint64, error) { return e.Drain(ctx, r) })
}

func (v *via) Freeze(ctx context.Context, r *store.Resource, sel store.Selection) (*store.Frozen, error) {
	return one(v, "Freeze", func(e store.Engine) (*store.Frozen, error) { return e.Freeze(ctx, r, sel) })
}

func (v *via) Withdraw(ctx context.Context, task dap.TaskID, id string) error {
	return v.do("Withdraw", func(e store.Engine) error { return e.Withdraw(ctx, task, id) })
}

func (v *via) Forgo(ctx context.Context, task dap.TaskID, id string) error {
	return v.do("Forgo", func(e store.Engine) error { return e.Forgo(ctx, task, id) })
}

func (v *via) Usage(ctx context.Context, now time.Time) (store.Usage, error) {
	return one(v, "Usage", func(e store.Engine) (store.Usage, error) { return e.Usage(ctx, now) })
}

func (v *via) Levels(ctx context.Context) (store.Levels, error) {
	return one(v, "Levels", func(e store.Engine) (store.Levels, error) { return e.Levels(ctx) })
}

func (v *via) CommitJob(ctx context.Context, r *store.Resource, c *store.Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	return one(v, "CommitJob", func(e store.Engine) ([]byte, error) { return e.CommitJob(ctx, r, c, reply) })
}

func (v *via) Advance(ctx context.Context, r *store.Resource, step uint16, digest [32]byte, c *store.Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	return one(v, "Advance", func(e store.Engine) ([]byte, error) { return e.Advance(ctx, r, step, digest, c, reply) })
}

func (v *via) HasJob(ctx context.Context, task dap.TaskID, id string, body []byte) (bool, error) {
	return one(v, "HasJob", func(e store.Engine) (bool, error) { return e.HasJob(ctx, task, id, body) })
}

func (v *via) UnfinishedJobs(ctx context.Context, before time.Time) (uint64, error) {
	return one(v, "UnfinishedJobs", func(e store.Engine) (uint64, error) { return e.UnfinishedJobs(ctx, before) })
}

func (v *via) Answers(ctx context.Context, task dap.TaskID, fn func(response []byte) error) error {
	return v.do("Answers", func(e store.Engine) error { return e.Answers(ctx, task, fn) })
}

func (v *via) Create(ctx context.Context, kind store.Kind, task dap.TaskID, id string, body []byte, keep bool, sel *store.Selection, now time.Time) (*store.Resource, bool, error) {
	return two(v, "Create", func(e store.Engine) (*store.Resource, bool, error) {
		return e.Create(ctx, kind, task, id, body, keep, sel, now)
	})
}

func (v *via) Resource(ctx context.Context, kind store.Kind, task dap.TaskID, id string) (*store.Resource, error) {
	return one(v, "Resource", func(e store.Engine) (*store.Resource, error) { return e.Resource(ctx, kind, task, id) })
}

func (v *via) Delete(ctx context.Context, kind store.Kind, task dap.TaskID, id string) error {
	return v.do("Delete", func(e store.Engine) error { return e.Delete(ctx, kind, task, id) })
}

func (v *via) PendingResources(ctx context.Context, kind store.Kind, n int) ([]*store.Resource, error) {
	return one(v, "PendingResources", func(e store.Engine) ([]*store.Resource, error) { return e.PendingResources(ctx, kind, n) })
}

func (v *via) Fail(ctx context.Context, r *store.Resource, p *dap.Problem) error {
	return v.do("Fail", func(e store.Engine) error { return e.Fail(ctx, r, p) })
}

func (v *via) Order(ctx context.Context, task dap.TaskID, s *store.Series, sel store.Selection) error {
	return v.do("Order", func(e store.Engine) error { return e.Order(ctx, task, s, sel) })
}

func (v *via) Release(ctx context.Context, rel *store.Release) ([]byte, error) {
	return one(v, "Release", func(e store.Engine) ([]byte, error) { return e.Release(ctx, rel) })
}

func (v *via) Ledger(ctx context.Context, task dap.TaskID) (store.Ledger, error) {
	return one(v, "Ledger", func(e store.Engine) (store.Ledger, error) { return e.Ledger(ctx, task) })
}

func (v *via) LedgerAt(ctx context.Context, task dap.TaskID, length uint64) (releases.Digest, error) {
	return one(v, "LedgerAt", func(e store.Engine) (releases.Digest, error) { return e.LedgerAt(ctx, task, length) })
}

func (v *via) ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) ([]store.Released, error) {
	return one(v, "ReleasesAfter", func(e store.Engine) ([]store.Released, error) { return e.ReleasesAfter(ctx, task, after, n) })
}

func (v *via) Frozen(ctx context.Context, task dap.TaskID) ([]store.Released, error) {
	return one(v, "Frozen", func(e store.Engine) ([]store.Released, error) { return e.Frozen(ctx, task) })
}

func (v *via) Kept(ctx context.Context, kind store.Kind, task dap.TaskID, id string) (*store.Kept, error) {
	return one(v, "Kept", func(e store.Engine) (*store.Kept, error) { return e.Kept(ctx, kind, task, id) })
}

func (v *via) Reseal(ctx context.Context, r *store.Reseal) error {
	return v.do("Reseal", func(e store.Engine) error { return e.Reseal(ctx, r) })
}

func (v *via) KeptUnder(ctx context.Context, serial uint64) (uint64, error) {
	return one(v, "KeptUnder", func(e store.Engine) (uint64, error) { return e.KeptUnder(ctx, serial) })
}

func (v *via) DamagedTasks(ctx context.Context) ([]dap.TaskID, error) {
	return one(v, "DamagedTasks", func(e store.Engine) ([]dap.TaskID, error) { return e.DamagedTasks(ctx) })
}

func (v *via) Damaged(ctx context.Context, task dap.TaskID) ([]store.Damaged, error) {
	return one(v, "Damaged", func(e store.Engine) ([]store.Damaged, error) { return e.Damaged(ctx, task) })
}

func (v *via) CheckReplay(ctx context.Context, task dap.TaskID) ([]store.Damaged, error) {
	return one(v, "CheckReplay", func(e store.Engine) ([]store.Damaged, error) { return e.CheckReplay(ctx, task) })
}

func (v *via) Aggregated(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return one(v, "Aggregated", func(e store.Engine) ([]bool, error) { return e.Aggregated(ctx, task, ids) })
}

func (v *via) AggregatedIDs(ctx context.Context, task dap.TaskID, low, high dap.ReportID, n int) ([]dap.ReportID, error) {
	return one(v, "AggregatedIDs", func(e store.Engine) ([]dap.ReportID, error) { return e.AggregatedIDs(ctx, task, low, high, n) })
}

func (v *via) EndViews(ctx context.Context, task dap.TaskID, before dap.Time) error {
	return v.do("EndViews", func(e store.Engine) error { return e.EndViews(ctx, task, before) })
}

func (v *via) Viewed(ctx context.Context) ([]dap.TaskID, error) {
	return one(v, "Viewed", func(e store.Engine) ([]dap.TaskID, error) { return e.Viewed(ctx) })
}

func (v *via) Mend(ctx context.Context, task dap.TaskID, sum [32]byte, ids []dap.ReportID) error {
	return v.do("Mend", func(e store.Engine) error { return e.Mend(ctx, task, sum, ids) })
}

func (v *via) Totals(ctx context.Context) (*store.Counts, error) {
	return one(v, "Totals", func(e store.Engine) (*store.Counts, error) { return e.Totals(ctx) })
}

func (v *via) Counts(ctx context.Context, task dap.TaskID) (*store.Counts, error) {
	return one(v, "Counts", func(e store.Engine) (*store.Counts, error) { return e.Counts(ctx, task) })
}

func (v *via) Batches(ctx context.Context, task dap.TaskID, n int) ([]store.BatchStatus, error) {
	return one(v, "Batches", func(e store.Engine) ([]store.BatchStatus, error) { return e.Batches(ctx, task, n) })
}

func (v *via) Stuck(ctx context.Context, task dap.TaskID) ([]store.Stuck, error) {
	return one(v, "Stuck", func(e store.Engine) ([]store.Stuck, error) { return e.Stuck(ctx, task) })
}

func (v *via) Shares(ctx context.Context, task dap.TaskID) (uint64, uint64, error) {
	return two(v, "Shares", func(e store.Engine) (uint64, uint64, error) { return e.Shares(ctx, task) })
}

func (v *via) Damages(ctx context.Context) ([]store.Damage, error) {
	return one(v, "Damages", func(e store.Engine) ([]store.Damage, error) { return e.Damages(ctx) })
}

func (v *via) LiveFiles(ctx context.Context) ([]string, error) {
	return one(v, "LiveFiles", func(e store.Engine) ([]string, error) { return e.LiveFiles(ctx) })
}

func (v *via) Bury(ctx context.Context) error {
	return v.do("Bury", func(e store.Engine) error { return e.Bury(ctx) })
}

func (v *via) DataKeys(ctx context.Context) (datakey.SetID, []datakey.Record, error) {
	return two(v, "DataKeys", func(e store.Engine) (datakey.SetID, []datakey.Record, error) { return e.DataKeys(ctx) })
}

func (v *via) NoteDataKey(ctx context.Context, set datakey.SetID, r datakey.Record) error {
	return v.do("NoteDataKey", func(e store.Engine) error { return e.NoteDataKey(ctx, set, r) })
}

func (v *via) EndDataKey(ctx context.Context, serial uint64) error {
	return v.do("EndDataKey", func(e store.Engine) error { return e.EndDataKey(ctx, serial) })
}

func (v *via) KeysWereMade(ctx context.Context) (bool, error) {
	return one(v, "KeysWereMade", func(e store.Engine) (bool, error) { return e.KeysWereMade(ctx) })
}

func (v *via) NoteKeys(ctx context.Context) error {
	return v.do("NoteKeys", func(e store.Engine) error { return e.NoteKeys(ctx) })
}

func (v *via) SeenTime(ctx context.Context) (time.Time, error) {
	return one(v, "SeenTime", func(e store.Engine) (time.Time, error) { return e.SeenTime(ctx) })
}

func (v *via) SaveTime(ctx context.Context, t time.Time) error {
	return v.do("SaveTime", func(e store.Engine) error { return e.SaveTime(ctx, t) })
}

func (v *via) Audit(ctx context.Context) ([]string, error) {
	return one(v, "Audit", func(e store.Engine) ([]string, error) { return e.Audit(ctx) })
}
