package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
)

// A work is one claimed job on its way to the helper and back.
type work struct {
	*store.Job
	task     *task.Task
	data     *segment.Reports // reports and batch read it
	reports  []dap.Report
	batch    rounds.Job
	sent     []int  // reports in the request of the current step, ascending
	accepted []byte // bitmap of those in the first
	helpers  string // id of the helper's job, once it has answered; empty if it did not say
	conduct  store.Conduct
	past     []exchange // so far, where the VDAF takes several rounds
}

// stepJob claims one job and takes it as far as it goes. A failure of the work itself
// is written down with the claim and is no error of the pass.
func (l *Leader) stepJob(ctx context.Context) (bool, error) {
	if l.room.Work() != nil {
		return false, nil // claims, too, are written
	}
	if err := l.unreturned.retry(ctx); errors.Is(err, store.ErrNoRoom) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	now := l.opt.Clock.Now()
	waits := l.party.Lacking(ctx)
	for _, id := range append(l.permits.Without(permit.Verify), l.busy.tasks(now)...) {
		waits = append(waits, store.Except{Task: id})
	}
	claimed, err := l.store.ClaimJobs(ctx, now, l.opt.Lease, 1, l.opt.most(), waits...)
	if err != nil || len(claimed) == 0 {
		return false, err
	}
	l.claims.Add(1)
	defer l.claims.Add(-1)
	w := &work{Job: claimed[0]}
	released := l.keepClaim(ctx, *w.Job)
	err = l.aggregate(ctx, w)
	released()
	l.busy.heard(w.Task, err, l.opt.Clock.Now())
	if w.batch != nil {
		w.batch.Close()
	}
	if w.data != nil {
		w.data.Close()
	}
	switch {
	case err == nil:
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobDone)
		l.wakeCollect()
		return true, nil
	case errors.Is(err, store.ErrStaleLease), errors.Is(err, errCommitted):
		return true, nil // somebody else has it, or it is done: nothing to give back
	case errors.Is(err, errSetAside):
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobFailed)
		return true, nil
	case errors.Is(err, store.ErrUnknown):
		return true, err
	}
	return true, l.unreturned.giveBack(ctx, func(ctx context.Context) error { return l.giveBack(ctx, w, err) })
}

// renews says whether claims are renewed: a lease alone does not cover the asking of the
// helper.
func (l *Leader) renews() bool { return l.opt.Lease < l.opt.HelperTimeout+l.opt.Patience }

// keepClaim renews the claim of a job until it is released. Once the claim is another
// worker's there is nothing more to renew, and what this one does is refused.
func (l *Leader) keepClaim(ctx context.Context, j store.Job) (released func()) {
	if !l.renews() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for l.sleep(ctx, l.opt.Lease/3) == nil {
			err := l.store.RenewJob(ctx, &j, l.opt.Clock.Now().Add(l.opt.Lease))
			if errors.Is(err, store.ErrStaleLease) {
				return
			}
			if err != nil && ctx.Err() == nil {
				l.opt.Log.Warn("the claim of a job could not be renewed", "task", j.Task, "why", err.Error())
			}
		}
	})
	return func() {
		cancel()
		renewing.Wait()
	}
}

// aggregate takes a claimed job through the aggregation job at the helper.
func (l *Leader) aggregate(ctx context.Context, w *work) error {
	if w.task = l.tasks.Get(w.Task); w.task == nil {
		return fmt.Errorf("the task is not provisioned here any more")
	}
	if err := l.begin(ctx, w); err != nil {
		return err
	}
	for step := uint16(0); len(w.sent) > 0; step++ { // once, but for VDAFs of several rounds
		if err := l.ask(ctx, w, step); err != nil {
			return err
		}
	}
	if err := l.commit(ctx, w); err != nil {
		return err
	}
	l.forget(ctx, w)
	return nil
}

// begin reads the reports of a claimed job, opens our shares and takes the VDAF's first
// step on all of its reports; those that are refused, or aggregated already, are left out
// of the job. A repetition leaves out the same ones.
//
// Step 8 of one report: from a claimed job, to the leader's message to the helper.
func (l *Leader) begin(ctx context.Context, w *work) error {
	if err := l.read(ctx, w); err != nil {
		return err
	}
	n := w.data.Len()
	w.reports = make([]dap.Report, n)
	in := make([]verify.Report, n)
	ids := make([]dap.ReportID, n)
	var err error
	for i := range n {
		if w.reports[i], err = dap.ReadReport(w.data.Report(i)); err != nil {
			return &quarantine{dap.InvalidMessage, "the job holds what is no report"}
		}
		in[i].Share = w.reports[i].LeaderShare()
		ids[i] = w.reports[i].Metadata.ID
	}
	life := l.keys.Life() // before the keys
	w.batch, err = l.engine.Begin(ctx, verify.Params{
		Task: w.task, Role: dap.RoleLeader, KeyID: w.task.KeyID, Keys: l.keys.Keyring(),
		Issuer: l.opt.Issuer, Now: l.steady.Latest(), Skew: l.opt.Limits.ClockSkew,
	}, in)
	if err != nil {
		return err
	}
	// Before the helper is asked, which may count what is sent: a repetition has the same.
	if err := rounds.Spend(ctx, l.store, w.task.ID, w.batch); err != nil {
		return err
	}
	l.opt.Observe.Doubted(w.batch.Uncredited())
	for _, code := range w.batch.Verdicts() {
		if code != dap.HpkeUnknownConfigID && code != dap.HpkeDecryptError {
			continue
		}
		// Refused for good only by who has every key that was offered before they came.
		if err := l.intake.lives(ctx, life); err != nil {
			return err
		}
		break
	}
	seen, err := l.store.Seen(ctx, w.Task, ids)
	if err != nil {
		return err
	}
	for i := range n {
		switch {
		case w.Sent != nil && bit(w.Sent.Accepted, i):
			w.sent = append(w.sent, i) // whatever is thought of it now, the helper may have it
		case w.data.Repeated(i):
			w.batch.Refuse(i, dap.ReportReplayed)
		case w.Sent != nil && !seen[i]:
			// no effect where it has a verdict, as it had at the first attempt
			w.batch.Refuse(i, dap.ReportDropped)
		case seen[i]:
			w.batch.Refuse(i, dap.ReportReplayed)
		case w.batch.Verdicts()[i] == 0:
			w.sent = append(w.sent, i)
		}
	}
	w.accepted = bitmap(w.sent, n)
	return nil
}

// errSetAside: nothing is left of a job whose files are lost.
var errSetAside = errors.New("leader: all of the job is set aside")

// read reads the reports of a job. Slices that are damaged or gone are set aside, and the
// others go on; where the job was sent its request cannot be built without them.
func (l *Leader) read(ctx context.Context, w *work) (err error) {
	for {
		if w.data, err = segment.OpenSlices(ctx, l.intake.files(), w.Slices); err == nil {
			return nil
		}
		gone := goneSlices(err)
		const why = "the file of the reports is damaged or gone"
		switch {
		case gone == nil:
			return err
		case w.Sent != nil:
			return &quarantine{dap.ReportDropped, why}
		}
		left, err := l.store.SetAside(ctx, w.Job, gone, dap.ReportDropped, why)
		if err != nil {
			return err
		}
		reports := w.Reports()
		if left != nil {
			reports -= left.Reports()
		}
		l.backlog.named.Add(-int64(reports))
		l.opt.Log.Error("reports were set aside", "task", w.Task, "reports", reports, "why", why)
		if left == nil {
			return errSetAside
		}
		w.Job = left
	}
}

// goneSlices are those, by their index, that could not be opened and never will be; nil
// where any may be another time.
func goneSlices(err error) (gone []int) {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range many.Unwrap() {
		var s *segment.SliceError
		if !errors.As(err, &s) || !s.Gone() {
			return nil
		}
		gone = append(gone, s.Index)
	}
	return gone
}

// name names a job for the helper: the same in each of its lives, and no other's.
func (w *work) name() string { return fmt.Sprintf("job-%d-%x", w.ID, w.Slices[0].Sum[:8]) }

// bitmap has a bit for each of n reports, set for those that are listed.
func bitmap(list []int, n int) []byte {
	b := make([]byte, (n+7)/8)
	for _, i := range list {
		b[i/8] |= 1 << (i % 8)
	}
	return b
}

func bit(b []byte, i int) bool { return i/8 < len(b) && b[i/8]>>(i%8)&1 == 1 }
