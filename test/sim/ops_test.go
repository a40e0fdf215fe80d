package sim

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
)

// An op is one operation and how often it is drawn.
type op struct {
	weight int
	run    func(*world)
	nested bool // may run while a message is under way
}

var ops = []op{
	{20, (*world).opUpload, true},
	{16, (*world).stepLeader, true},
	{10, (*world).stepHelper, true},
	{12, (*world).opWait, true},
	{12, (*world).opCollect, true},
	{8, (*world).opPoll, true},
	{2, (*world).opDelete, false},
	{6, (*world).opResend, true},
	{5, (*world).opDeliver, true},
	{3, (*world).opPower, true},
	{9, (*world).opArm, true},
	{1, (*world).opStop, false},
	{1, (*world).opForgeShare, true},
}

// pick draws an operation.
func (w *world) pick() op {
	total, all := 0, append(ops[:len(ops):len(ops)], w.extra...)
	for _, o := range all {
		if w.depth == 0 || o.nested {
			total += o.weight
		}
	}
	n := w.rng.IntN(total)
	for _, o := range all {
		if w.depth > 0 && !o.nested {
			continue
		}
		if n -= o.weight; n < 0 {
			return o
		}
	}
	panic("sim: internal error: no operation")
}

const maxDepth = 2

// interleave runs other operations while one is waiting for a message.
func (w *world) interleave() {
	if w.cfg.lively || w.depth >= maxDepth || w.rng.IntN(5) > 0 {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	w.logf("meanwhile:")
	for range 1 + w.rng.IntN(3) {
		for _, n := range w.nodes() {
			n.settle(w.rng)
		}
		w.pick().run(w)
	}
}

// work has a helper that answers later work on what it was just asked, as its own workers
// would while the leader, whose step is one of ours, waits for it.
func (w *world) work(m *message) {
	if !w.cfg.lively && m.to == w.helper && w.cfg.deferred == helper.Always {
		w.stepHelper()
	}
}

// opUpload makes some reports and sends them, perhaps beside some that were sent before.
func (w *world) opUpload() {
	var reports []*report
	most := 8
	if w.cfg.series {
		most = 2 // they must last for some rounds
	}
	for range 1 + w.rng.IntN(most) {
		if len(w.oracle.reports) >= length-spare {
			break
		}
		k := good
		switch n := w.rng.IntN(20); {
		case n == 0:
			k = early
		case n < 4:
			k = badLeader + kind(w.rng.IntN(int(lastOfKind-badLeader)+1))
		}
		if w.cfg.units > 0 && w.rng.IntN(8) == 0 {
			k = inside
		}
		age := time.Duration(0)
		if w.rng.IntN(3) == 0 {
			age = time.Duration(w.rng.IntN(3)) * precision * time.Second
		}
		if r := w.make(k, age); r != nil {
			reports = append(reports, r)
		}
	}
	for w.rng.IntN(3) == 0 && len(w.oracle.reports) > 0 {
		reports = append(reports, w.oracle.reports[w.rng.IntN(len(w.oracle.reports))])
	}
	w.rng.Shuffle(len(reports), func(i, j int) { reports[i], reports[j] = reports[j], reports[i] })
	w.upload(reports)
}

// opWait lets time pass: a moment, a back-off, a lease, or a bucket.
func (w *world) opWait() {
	longest := []time.Duration{time.Second, maxBackOff, 2 * lease, precision * time.Second}[w.rng.IntN(4)]
	if w.cfg.units > 0 && longest == precision*time.Second {
		longest = w.roundEnd(0).Sub(w.start)
	}
	if time.Since(w.start) > 3*w.round() {
		longest = min(longest, maxBackOff) // the units must stay few enough to be filled
	}
	time.Sleep(time.Duration(w.rng.Int64N(int64(longest))))
}

// live is the leader-selected job that has not been deleted, or nil: there is one at a
// time.
func (w *world) live() *job {
	if n := len(w.jobs); n > 0 && !w.jobs[n-1].deleted {
		return w.jobs[n-1]
	}
	return nil
}

func (w *world) newJob(q dap.Query) *job {
	j := &job{query: q}
	w.jobs = append(w.jobs, j)
	return j
}

// opCollect asks for a batch, or goes on with one.
func (w *world) opCollect() {
	if w.cfg.mode == dap.LeaderSelected {
		switch j := w.live(); {
		case j == nil:
			w.ask(w.newJob(dap.Query{Mode: dap.LeaderSelected}))
		case j.state.JobID == "":
			w.ask(j)
		case !j.done:
			w.poll(j)
		default:
			w.delete(j)
		}
		return
	}
	if w.cfg.series && w.rng.IntN(2) == 0 {
		w.opRound()
		return
	}
	if w.cfg.units > 0 && w.rng.IntN(3) == 0 {
		w.opOdd()
		return
	}
	if w.rng.IntN(3) > 0 {
		w.opPoll() // a unit that is collected takes no more reports
		return
	}
	if w.cfg.units > 0 {
		w.opRounds()
		return
	}
	first := must(dap.TimePrecision(precision).At(w.start))
	now := must(dap.TimePrecision(precision).At(time.Now()))
	if w.cfg.series {
		first = min(max(first, w.frontier()), now) // most of what comes before it is too late
	}
	q := dap.Query{Mode: dap.TimeInterval}
	q.Interval.Start = first + dap.Time(w.rng.Uint64N(uint64(now-first)+1))
	q.Interval.Duration = dap.Duration(1 + w.rng.Uint64N(2))
	w.ask(w.newJob(q))
}

// opPoll asks for one of the collections, had or not.
func (w *world) opPoll() {
	if len(w.jobs) == 0 {
		return
	}
	j := w.jobs[w.rng.IntN(len(w.jobs))]
	switch {
	case j.state.JobID != "":
		w.poll(j)
	case !j.done && !j.deleted:
		w.ask(j)
	}
}

// opDelete has the collector lose interest in a result that it has, or, in time-interval
// tasks, in one that it has not.
func (w *world) opDelete() {
	if len(w.jobs) == 0 {
		return
	}
	if j := w.jobs[w.rng.IntN(len(w.jobs))]; j.done || (w.cfg.mode == dap.TimeInterval && w.rng.IntN(3) == 0) {
		w.delete(j)
	}
}

// opForgo gives up a collection before its request has come, and then has that come, where
// the collector chooses its id.
func (w *world) opForgo() {
	if w.cfg.framing != dap.Janus {
		return
	}
	req := dap.CollectionJobReq{Query: dap.Query{Mode: w.cfg.mode}}
	if w.cfg.mode == dap.TimeInterval {
		req.Query.Interval = dap.Interval{Start: must(dap.TimePrecision(precision).At(w.start)), Duration: 1}
	}
	body := must(req.Append(nil))
	id := w.cfg.framing.ChooseID(w.taskID, dap.CollectionJobsResource, body, []byte("given up"))
	u := must(url.Parse(leaderURL + "/" + dap.CreationPathOf(w.taskID, dap.CollectionJobsResource, id)))
	header := http.Header{"Authorization": {"Bearer " + collectorToken}, "Content-Type": {dap.ContentType(dap.MediaCollectionJobReq)}}
	if a, err := w.net.deliver(&message{to: w.leader, method: http.MethodDelete, url: u, header: header}); err != nil || a.status >= 500 {
		return // it may have been lost
	}
	a, err := w.net.deliver(&message{to: w.leader, method: http.MethodPut, url: u, body: body, header: header})
	if err == nil && a.status != http.StatusNotFound {
		w.oracle.violate("a collection that was given up is opened: status %d", a.status)
	}
}

// opResend repeats a message of the past, to whoever serves now.
func (w *world) opResend() {
	if m := w.net.recall(); m != nil {
		_, err := w.net.deliver(m)
		w.logf("net: %s again: %v", m.name(), err)
	}
}

// opDeliver delivers a message that was held.
func (w *world) opDeliver() {
	m := w.net.take()
	if m == nil {
		return
	}
	_, err := w.net.deliver(m)
	w.logf("net: %s at last: %v", m.name(), err)
}

// anyNode draws one.
func (w *world) anyNode() *node {
	all := w.nodes()
	return all[w.rng.IntN(len(all))]
}

// points are the failpoints of a node.
func (w *world) points(n *node) []string {
	switch {
	case n.reach != nil && n.party == w.leader:
		return leaderReplicaPoints
	case n.reach != nil:
		return replicaPoints
	case n == w.leader:
		return failpoints["leader"]
	}
	return failpoints["helper"]
}

// opPower takes the power from a machine.
func (w *world) opPower() {
	if n := w.anyNode(); n.life.Load() != nil {
		n.fall(time.Duration(w.rng.IntN(90)) * time.Second)
	}
}

// opArm arms a fault at some failpoint that is known, or at some call of the disk.
func (w *world) opArm() {
	n := w.anyNode()
	c := &crash{node: n.name, skip: w.rng.IntN(3), soft: w.rng.IntN(4) == 0}
	if w.rng.IntN(3) == 0 {
		c.skip = w.rng.IntN(80)
	} else {
		points := w.points(n)
		if w.cfg.rotate {
			points = slices.Concat(points, keyset.FailpointNames())
		}
		c.point = points[w.rng.IntN(len(points))]
	}
	if w.rng.IntN(4) == 0 && n.life.Load() != nil { // at the next start
		n.fall(0)
	}
	w.arm(c)
}

// opStop restarts a service as an operator does.
func (w *world) opStop() {
	w.bury()
	if n := w.anyNode(); n.life.Load() != nil && n.life.Load().alive.Load() {
		n.stop()
	}
}

// creates says whether a message creates a resource. (Continuations are posted to a job
// of the helper's.)
func (w *world) creates(m *message) bool {
	if w.cfg.framing == dap.Janus {
		return m.method == http.MethodPut
	}
	return m.method == http.MethodPost && len(strings.Split(strings.TrimPrefix(m.url.Path, "/v1/"), "/")) == 3
}

// opForgeShare asks the helper for a share as a leader would that has counted wrong.
func (w *world) opForgeShare() {
	req := dap.AggregateShareReq{ReportCount: uint64(len(w.oracle.reports)) + w.cfg.min}
	req.CollectionJobReq.Query.Mode, req.BatchSelector.Mode = w.cfg.mode, w.cfg.mode
	if w.cfg.mode == dap.TimeInterval {
		req.BatchSelector.Interval = dap.Interval{Start: must(dap.TimePrecision(precision).At(w.start)), Duration: 1}
		req.CollectionJobReq.Query.Interval = req.BatchSelector.Interval
	}
	w.net.mu.Lock()
	for _, m := range w.net.kept {
		if w.cfg.mode == dap.LeaderSelected && w.creates(m) && strings.Contains(m.url.Path, "/"+string(dap.AggregationJobsResource)) {
			job := must(w.task.Dialect().ReadAggregationJobInitReq(m.body))
			req.BatchSelector.BatchID, _ = job.LeaderSelectedBatch()
		}
	}
	w.net.mu.Unlock()
	body := must(req.Append(nil))
	id := w.cfg.framing.ChooseID(w.taskID, dap.AggregateSharesResource, body, nil)
	u := must(url.Parse(helperURL + "/" + dap.CreationPathOf(w.taskID, dap.AggregateSharesResource, id)))
	a, err := w.net.deliver(&message{to: w.helper, method: w.cfg.framing.CreationMethod(), url: u, body: body, header: http.Header{
		"Authorization": {"Bearer " + aggregatortest.PeerToken}, "Content-Type": {dap.ContentType(dap.MediaAggregateShareReq)},
	}})
	if err != nil {
		return
	}
	w.logf("net: a forged request for a share: status %d", a.status)
	if a.status < 300 && len(a.body) > 0 {
		w.oracle.violate("the helper released a share for a count that cannot be")
	}
}

// play runs the world to its end, or to its first violation.
func (w *world) play() {
	for _, n := range w.nodes() {
		n.start()
	}
	if w.failed() {
		return
	}
	w.net.pass.Store(true)
	must(0, w.client.Refresh(context.Background()))
	w.net.pass.Store(false)
	if w.before != nil {
		w.before()
	}
	if w.cfg.tour {
		w.tour()
	} else {
		w.trouble(true)
		for i := range w.cfg.ops {
			if w.cfg.damage && i >= w.cfg.ops/2 {
				w.opDamage()
			}
			if w.do(w.pick().run); w.failed() {
				return
			}
		}
	}
	if !w.failed() {
		w.end()
	}
	if !w.failed() {
		w.endKeys()
	}
}

// trouble begins or ends what goes wrong between machines.
func (w *world) trouble(on bool) {
	w.net.faults.Store(on)
	if w.quiet != nil {
		w.quiet(!on)
	}
}

// do runs one operation and all checks; but none while a tour waits for its crash, for
// until then it is the tour that has been checked without.
func (w *world) do(op func(*world)) {
	for _, n := range w.nodes() {
		n.settle(w.rng)
	}
	op(w)
	w.bury()
	if w.cfg.tour && slices.ContainsFunc(w.crashes, func(c *crash) bool { return !w.struck(c) }) {
		return
	}
	w.oracle.check()
}

// failed says whether the world is over: something was violated, or what a lie has done is
// explained and waits for a person.
func (w *world) failed() bool {
	if w.oracle.explained {
		return true
	}
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	return len(w.oracle.violations) > 0
}

// rest runs both services until nothing waits and every collection is over, or has too
// few reports; at most for patience.
func (w *world) rest() {
	for begin := time.Now(); !w.failed(); {
		if w.cfg.lively {
			time.Sleep(maxBackOff / 4) // the status does not count what is still to be sorted
		}
		for range 3 {
			for _, n := range w.nodes() {
				n.settle(w.rng)
				n.step()
			}
		}
		w.oracle.check()
		open := make(map[string]bool) // two jobs may be one at the leader
		for _, j := range w.jobs {
			if j.state.JobID == "" && !j.done {
				w.ask(j)
			} else if !j.done {
				w.poll(j)
			}
			if !j.done {
				open[j.state.JobID] = true
			}
		}
		if time.Since(begin) > 2*patience {
			w.oracle.violate("the leader does not come back")
		}
		t := w.oracle.status(w.first(w.leader))
		if t == nil || len(w.lives(w.helper)) == 0 {
			time.Sleep(time.Second)
			continue
		}
		small, behind := 0, 0
		why := "no collection"
		for _, c := range t.Collections {
			if why = c.Why; strings.HasPrefix(why, "fewer than") {
				small++
			} else if waitsInOrder(why) {
				behind++
			}
		}
		if small > 0 {
			small += behind
		}
		if t.Counts.Waiting == 0 && len(open) <= small && small == len(t.Collections) {
			return
		}
		if time.Since(begin) > patience {
			w.oracle.violate("after %v without faults: %d reports wait, %d collections are open, the last: %s; %+v; damaged %+v; all %+v",
				patience, t.Counts.Waiting, len(open), why, t.Stuck, t.Damaged, t.Collections)
		}
		time.Sleep(maxBackOff / 4)
	}
}

// revive restarts a service to which something was reported failed: it may have stopped
// by itself, as Run does when the outcome of a transaction is unknown.
func (w *world) revive() {
	for _, n := range w.nodes() {
		if l := n.life.Load(); l != nil && l.shaken.Load() && l.alive.Load() {
			n.stop()
		}
	}
}

// end stops the faults and sees everything to its end: first what was begun, then every
// batch that has reports, filled up to its minimum.
func (w *world) end() {
	w.logf("the faults end")
	w.trouble(false)
	w.crashes = nil
	for _, n := range w.nodes() {
		n.arm = nil
		if l := n.life.Load(); l != nil {
			l.disarm()
		}
	}
	w.revive()
	for range 8 {
		w.opDeliver()
	}
	w.untilDue()
	w.rest()
	if w.failed() {
		return
	}
	w.whole()
	// What was given up may have been taken up again by a message that came late: whoever
	// asks again gets it.
	if w.cfg.mode == dap.TimeInterval {
		asked := make(map[dap.Interval]bool)
		for _, j := range w.jobs {
			asked[j.query.Interval] = true
		}
		for _, j := range w.jobs {
			if asked[j.query.Interval] {
				delete(asked, j.query.Interval)
				w.ask(w.newJob(j.query))
			}
		}
		w.rest()
		for _, j := range w.jobs {
			if !j.done {
				w.delete(j) // too few reports
			}
		}
	}
	for round := 0; !w.failed(); round++ {
		if !w.fill() {
			break
		}
		if round == length {
			w.oracle.violate("some batch is never full")
		}
	}
	if !w.failed() {
		w.oracle.check()
		w.oracle.checkEnd()
	}
	if w.cfg.window && !w.failed() {
		w.retire()
	}
}

// fill brings every batch to its minimum and collects it. It says whether there was any.
func (w *world) fill() bool {
	t := w.oracle.status(w.first(w.leader))
	if t == nil {
		return false
	}
	any := false
	for _, b := range t.Batches {
		if b.State == "closed" || b.Verified == 0 || w.passed(t.Batches, b.Start) {
			continue
		}
		any = true
		var reports []*report
		age := time.Duration(0)
		if w.cfg.mode == dap.TimeInterval {
			age = time.Since(w.unit(dap.Time(b.Start)))
		}
		for n := b.Verified; n < w.cfg.min; n++ {
			if r := w.make(good, age); r != nil {
				reports = append(reports, r)
			} else {
				w.oracle.violate("no bucket is left")
			}
		}
		w.upload(reports)
		if w.cfg.mode == dap.TimeInterval {
			w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: dap.Time(b.Start), Duration: dap.Duration(max(1, w.cfg.units))}}))
		}
	}
	if w.cfg.mode == dap.LeaderSelected {
		j := w.live()
		if j != nil && j.done {
			w.delete(j)
			j = nil
		}
		if j == nil && any {
			w.ask(w.newJob(dap.Query{Mode: dap.LeaderSelected}))
		}
	}
	w.rest()
	return any
}
