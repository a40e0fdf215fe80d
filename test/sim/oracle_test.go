package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
)

// A report as the oracle knows it. Its index in oracle.reports is its bucket of the
// histogram.
type report struct {
	dap.Report
	valid  bool
	acked  int // entries of uploads that the leader acknowledged
	maybe  int // entries of uploads that reached the leader and got no answer
	made   time.Time
	result string
	in     map[dap.Duration]bool // views in which it is counted, by their spans
}

// oracle knows what must not happen.
type oracle struct {
	w          *world
	mu         sync.Mutex // guards what follows
	violations []string
	late       atomic.Int64        // duplicates of jobs that were deleted
	retired    bool                // the task, at both
	answers    map[string][32]byte // what a request got first, by its kind and resource
	// aggregation jobs that the helper was told to delete, by id
	dropped map[string]drop
	// the turns in which resources were deleted, or may have been, where peers choose the
	// names; by their kind and id
	cleared map[string]int
	turn    int // requests that began and answers that came, so far
	// the id of the job that a request made first, by the kind and the digest of its body
	jobOf    map[string]string
	asked    map[string]dap.Interval // of collections and shares, by their kind and id
	released map[*node][]released

	// The rest is known to the goroutine of the operations alone.
	reports []*report
	byID    map[dap.ReportID]*report
	acked   uint64 // entries
	maybe   uint64
	results map[string]*outcome // by the name of the collection job
	looks   int                 // at replicas on a database

	insideSeen   int // reports refused because of a unit within their round
	outdatedSeen int // reports refused because of their key
	// collections that wait for the end of their round, and those of no whole rounds that
	// were refused
	ahead, odd int
	crossed    int // pairs of results of two views that have a round in common
	// a job was sent before its reports were moved to where object storage lost them: it can
	// neither be finished nor repeated, and its batch waits for a person
	explained bool
	agreed    int // times that a server said that it agrees with the other
	leaning   int // releases whose noise leans on others, at either server
}

// A drop is a job that was deleted, or may have been.
type drop struct {
	sure bool
	turn int // the first in which it surely was
}

// next counts a request that begins, or an answer.
func (o *oracle) next() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turn++
	return o.turn
}

// outcome is a result that the collector opened.
type outcome struct {
	interval dap.Interval // asked for, in time-interval tasks
	count    uint64
	reports  map[int]bool
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, byID: make(map[dap.ReportID]*report), answers: make(map[string][32]byte),
		dropped: make(map[string]drop), cleared: make(map[string]int), jobOf: make(map[string]string), results: make(map[string]*outcome),
		asked: make(map[string]dap.Interval), released: make(map[*node][]released),
	}
}

func (o *oracle) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	o.w.logf("VIOLATION: %s", v)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violations = append(o.violations, v)
}

func (o *oracle) add(r dap.Report, valid bool) *report {
	rep := &report{Report: r, valid: valid, made: time.Now()}
	o.reports = append(o.reports, rep)
	o.byID[r.Metadata.ID] = rep
	return rep
}

// unanswered notes a message whose server lost power before it could answer.
func (o *oracle) unanswered(m *message) {
	o.sawDrop(m, false)
	if m.to == o.w.leader && strings.HasSuffix(m.url.Path, "/"+string(dap.ReportsResource)) {
		o.eachUploaded(m, func(r *report) { r.maybe++; o.maybe++ })
	}
}

func (o *oracle) eachUploaded(m *message, f func(*report)) {
	reports, err := dap.Collect(dap.Reports(m.body, nil))
	if err != nil {
		o.violate("upload without reports: %v", err)
	}
	for i := range reports {
		f(o.byID[reports[i].Metadata.ID])
	}
}

// saw judges an answer.
func (o *oracle) saw(m *message, a *answer) {
	if a.status < 300 {
		o.sawDrop(m, true)
	} else if a.status >= 500 { // it may have been done
		o.sawDrop(m, false)
	}
	parts := strings.Split(strings.TrimPrefix(m.url.Path, "/v1/"), "/")
	// A batch that is being released is not given up; the collector asks again.
	wait := a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" &&
		(m.method == http.MethodDelete || o.early(m) || a.by.reach != nil && (o.w.net.faults.Load() || o.w.cfg.rotate))
	// Who has no database at present says so, and when to come again: 500 is a fault.
	excused := a.by.shaken.Load() || a.by.away() && a.status == http.StatusServiceUnavailable
	if a.status >= 500 && !wait && a.by.alive.Load() && !excused && o.w.hurt == nil {
		o.violate("%s: status %d", m.name(), a.status)
	}
	if len(parts) < 3 || compares(m) {
		return
	}
	if o.w.cfg.mode == dap.TimeInterval && a.status < 300 && !o.w.net.pass.Load() {
		o.sawRelease(dap.Collection(parts[2]), m, a)
	}
	switch kind := dap.Collection(parts[2]); {
	case kind == dap.ReportsResource:
		o.sawUpload(m, a)
	case a.status >= 300 || len(a.body) == 0 || o.w.net.pass.Load():
	case !o.w.creates(m):
		o.same(string(kind)+" "+parts[3]+stepOf(a), m, a)
	default:
		id, err := dap.LocationID(a.header.Get("Location"), o.w.taskID, kind)
		if err != nil || len(parts) == 4 && id != parts[3] {
			o.violate("%s: location %q: %v", m.name(), a.header.Get("Location"), err)
			return
		}
		o.same(string(kind)+" "+id+stepOf(a), m, a)
		switch kind {
		case dap.AggregationJobsResource:
			request := fmt.Sprintf("%s %x", kind, sha256.Sum256(m.body))
			if len(parts) == 4 { // the same bytes may come under two names
				request = id
			}
			o.sameJob(request, id, m, a)
		case dap.CollectionJobsResource: // may be deleted, and asked for anew
		default:
			o.same(fmt.Sprintf("%s %x", kind, sha256.Sum256(m.body)), m, a)
		}
		if kind == dap.AggregateSharesResource {
			o.sawShare(m)
		}
	}
}

// stepOf is the step of an aggregation job whose answer a is: each step has one of its own.
func stepOf(a *answer) string {
	_, step, _ := strings.Cut(a.header.Get("Location"), "?")
	return step
}

// same demands that a resource that has a result keeps it.
func (o *oracle) same(resource string, m *message, a *answer) {
	sum := sha256.Sum256(a.body)
	o.mu.Lock()
	for name, turn := range o.cleared {
		if strings.HasPrefix(resource, name) && a.began < turn { // it may be of the one before
			o.mu.Unlock()
			return
		}
	}
	first, ok := o.answers[resource]
	o.answers[resource] = sum
	o.mu.Unlock()
	if ok && first != sum {
		o.violate("%s: two answers from %s", m.name(), m.to.name)
	}
}

// sawDrop notes that the helper was told to delete a job. What comes under a name that
// was deleted is another resource, where peers choose the names. Where no answer came it
// may not have been deleted.
func (o *oracle) sawDrop(m *message, sure bool) {
	kind, id := path.Split(m.url.Path)
	if m.method == http.MethodDelete && o.w.cfg.framing == dap.Janus {
		turn, name := o.next(), path.Base(kind)+" "+id
		o.mu.Lock()
		o.cleared[name] = turn
		for resource := range o.answers {
			if strings.HasPrefix(resource, name) {
				delete(o.answers, resource)
			}
		}
		o.mu.Unlock()
	}
	if m.method == http.MethodDelete && strings.HasSuffix(kind, "/"+string(dap.AggregationJobsResource)+"/") {
		turn := o.next()
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.dropped[id].sure {
			o.dropped[id] = drop{sure, turn}
		}
	}
}

// sameJob demands that the same bytes make the same job, until that was deleted. A
// duplicate that comes later makes another, in which every report is a replay: any other
// answer could count one twice, or on one side alone. One that was under way when the job was
// deleted may have come before that.
func (o *oracle) sameJob(request, id string, m *message, a *answer) {
	o.mu.Lock()
	first, known := o.jobOf[request]
	if !known {
		o.jobOf[request] = id
	}
	dropped, told := o.dropped[first]
	o.mu.Unlock()
	switch {
	case told && (!dropped.sure || a.began < dropped.turn): // by its id, if it is there
	case !known || first == id && !(dropped.sure && request == id): // judged by its id
	case !dropped.sure:
		o.violate("%s: the same bytes made two jobs", m.name())
	default:
		resps, err := dap.Collect(o.w.task.Dialect().VerifyResps(a.body, nil))
		if err != nil || len(resps) == 0 {
			o.violate("%s: unreadable answer to a late duplicate: %v", m.name(), err)
		}
		for _, r := range resps {
			if r.Type != dap.Reject || r.Error != dap.ReportReplayed {
				o.violate("%s: a late duplicate was verified again: %v %v", m.name(), r.Type, r.Error)
			}
		}
		o.late.Add(1)
	}
}

// sawShare judges a share that the helper gave out.
func (o *oracle) sawShare(m *message) {
	req, err := dap.ReadAggregateShareReq(m.body)
	if err != nil {
		o.violate("the helper answered an unreadable request: %v", err)
		return
	}
	if req.ReportCount < o.w.cfg.min {
		o.violate("the helper released %d reports, the minimum is %d", req.ReportCount, o.w.cfg.min)
	}
}

func (o *oracle) sawUpload(m *message, a *answer) {
	if a.status != http.StatusOK {
		o.eachUploaded(m, func(r *report) { r.maybe++; o.maybe++ })
		return
	}
	refused, err := dap.Collect(o.w.task.Dialect().UploadErrors(a.body, nil))
	if err != nil {
		o.violate("upload: unreadable answer: %v", err)
		return
	}
	next := 0
	o.eachUploaded(m, func(r *report) {
		if next < len(refused) && refused[next].ID == r.Metadata.ID {
			o.sawRefusal(r, refused[next].Error)
			next++
			return
		}
		if o.retired {
			o.violate("a report was acknowledged for a retired task")
		}
		if o.w.inside(r.Metadata.Time) {
			o.violate("a report was acknowledged that says when in its round it was made")
		}
		r.acked++
		o.acked++
	})
	if next < len(refused) {
		o.violate("upload: the answer names reports that were not sent, or out of order")
	}
}

func (o *oracle) sawRefusal(r *report, code dap.ReportError) {
	switch code {
	case dap.ReportTooEarly:
		if !o.w.unit(r.Metadata.Time).After(time.Now()) {
			o.violate("a report of the past was refused as too early")
		}
	case dap.ReportDropped:
		if !o.retired {
			o.violate("a report was refused as dropped while its task is kept")
		}
	case dap.InvalidMessage:
		if !o.w.inside(r.Metadata.Time) {
			o.violate("a report with the first unit of its round was refused as invalid")
		}
		o.insideSeen++
	case dap.BatchCollected:
		if !o.w.asked(r.Metadata.Time) {
			o.violate("a report was refused as collected, and nobody asked for its batch")
		}
	case dap.OutdatedConfig, dap.HpkeUnknownConfigID:
		if code != o.w.task.Dialect().Said(dap.OutdatedConfig) {
			o.violate("a report was refused as %v in %v", code, o.w.task.Version)
		}
		o.outdated(r)
	default:
		o.violate("a report was refused: %v", code)
	}
}

// collected judges a result.
func (o *oracle) collected(job string, q dap.Query, res *collector.Result) {
	if known := o.results[job]; known != nil {
		if known.count != res.ReportCount {
			o.violate("collection %s: first %d reports, now %d", job, known.count, res.ReportCount)
		}
		return
	}
	found := &outcome{q.Interval, res.ReportCount, make(map[int]bool)}
	o.results[job] = found
	if res.ReportCount < o.w.cfg.min {
		o.violate("collection %s: %d reports were released, the minimum is %d", job, res.ReportCount, o.w.cfg.min)
	}
	var ones uint64
	for i, n := range o.denoise(job, q, res.Raw) {
		if n == 0 {
			continue
		}
		if n != 1 {
			o.violate("collection %s: report %d counts %d times", job, i, n)
		}
		ones++
		if i >= len(o.reports) {
			o.violate("collection %s: report %d was never made", job, i)
			continue
		}
		r := o.reports[i]
		switch {
		case !r.valid:
			o.violate("collection %s: report %d is not valid", job, i)
		case r.acked+r.maybe == 0:
			o.violate("collection %s: report %d never reached the leader", job, i)
		case r.result != "" && (!o.w.cfg.views || r.in[q.Interval.Duration]):
			o.violate("collection %s: report %d was counted before", job, i)
		case !res.Interval.Contains(r.Metadata.Time):
			o.violate("collection %s: report %d lies outside of the span", job, i)
		case o.w.cfg.mode == dap.TimeInterval && !q.Interval.Contains(r.Metadata.Time):
			o.violate("collection %s: report %d lies outside of what was asked for", job, i)
		}
		if r.in == nil {
			r.in = make(map[dap.Duration]bool)
		}
		r.result, r.in[q.Interval.Duration], found.reports[i] = job, true, true
	}
	if o.w.cfg.views {
		o.sameReports(job, found)
	}
	if ones != res.ReportCount {
		o.violate("collection %s: %d reports, and %d ones", job, res.ReportCount, ones)
	}
}

// sameReports demands that two views of one round have the same reports of it, whichever was
// released first: no report comes between the two.
func (o *oracle) sameReports(job string, found *outcome) {
	for other, with := range o.results {
		wide, narrow := found, with
		if wide.interval.Duration < narrow.interval.Duration {
			wide, narrow = narrow, wide
		}
		if wide.interval.Duration == narrow.interval.Duration || !wide.interval.Covers(narrow.interval) {
			continue
		}
		o.crossed++
		for i, r := range o.reports {
			if narrow.interval.Contains(r.Metadata.Time) && wide.reports[i] != narrow.reports[i] {
				o.violate("collections %s and %s: report %d is in one view of its round and not in the other", job, other, i)
			}
		}
	}
}

// check asks the services what they think, after each operation.
func (o *oracle) check() {
	o.looks++
	for _, n := range []*node{o.w.leader, o.w.helper} {
		if all := o.w.lives(n); len(all) > 0 { // what one replica says all have to
			o.checkLife(all[o.looks%len(all)])
		}
	}
}

func (o *oracle) checkLife(l *life) {
	writes := l.disk.Writes()
	if l.cut != nil { // others write too
		writes = o.looks / 4
	}
	if writes != l.audited && l.node != o.w.hurt {
		l.audited = writes // an audit reads the disk alone
		found, err := l.Audit(context.Background())
		lied := l.party == o.w.leader && o.w.lies != nil && len(o.w.lies()) > 0
		for _, f := range found {
			if !lied || !strings.HasSuffix(f, "is not there, and reports wait in it") {
				o.violate("%s: audit: %s", l.name, f)
			}
		}
		if err != nil && l.alive.Load() && !l.excused() {
			o.violate("%s: audit: %v", l.name, err)
		}
	}
	t := o.status(l)
	if t == nil {
		return
	}
	c := t.Counts
	if known := c.Aggregated + c.Waiting + rejected(t); l.party == o.w.leader && c.Acknowledged != known {
		o.violate("%s: %d reports acknowledged, %d accounted for", l.name, c.Acknowledged, known)
	}
	if l.party == o.w.leader && c.Acknowledged > o.acked+o.maybe {
		o.violate("%s: %d reports acknowledged, the clients know of %d", l.name, c.Acknowledged, o.acked+o.maybe)
	}
	// Nothing was put back and nobody changed a thing: whatever is under way, the two
	// agree.
	switch a := t.Agreement; {
	case a.State == status.Agreed:
		o.agreed++
	case a.State != status.NotCompared && !o.w.net.apart:
		o.violate("%s: a false alarm: %+v", l.name, *a)
	}
	for _, s := range t.Stuck {
		if s.Quarantined && strings.HasSuffix(s.Why, "damaged or gone") && len(o.lies().about) > 0 {
			o.explained = true
		} else if s.Quarantined || s.Parked {
			o.violate("%s: %d reports set aside: %s", l.name, s.Reports, s.Why)
		}
	}
}

// status is what the service says of the task; nil if it is in no state to say it.
func (o *oracle) status(l *life) *status.Task {
	if l == nil || !l.alive.Load() {
		return nil
	}
	o.w.net.pass.Store(true)
	defer o.w.net.pass.Store(false)
	s, err := l.Status(context.Background())
	if err != nil {
		if l.alive.Load() && !l.excused() {
			o.violate("%s: status: %v", l.name, err)
		}
		return nil
	}
	if s.Lost != nil && s.Lost.Reports() { // no damage is done here, and a crash loses no row
		o.violate("%s: %s", l.name, s.Lost.Why())
	}
	return &s.Tasks[0]
}

func rejected(t *status.Task) (n uint64) {
	for _, c := range t.Counts.Rejected {
		n += c
	}
	return n
}

// checkEnd is the account at rest, when every batch that could be collected has been.
func (o *oracle) checkEnd() {
	leader, helper := o.status(o.w.first(o.w.leader)), o.status(o.w.first(o.w.helper))
	if leader == nil || helper == nil {
		o.violate("no status at the end")
		return
	}
	c := leader.Counts
	if c.Waiting > 0 {
		o.violate("%d reports wait at the end", c.Waiting)
	}
	if c.Acknowledged < o.acked {
		o.violate("%d reports were acknowledged, the leader knows of %d", o.acked, c.Acknowledged)
	}
	lies := o.lies()
	if n := c.Rejected[dap.ReportDropped.String()]; n > lies.entries {
		o.violate("%d reports were dropped, object storage lied about %d", n, lies.entries)
	}
	if c.Aggregated != helper.Counts.Aggregated {
		o.violate("the leader aggregated %d reports, the helper %d", c.Aggregated, helper.Counts.Aggregated)
	}
	var left uint64 // verified, in units that a later release has passed
	for _, b := range leader.Batches {
		if b.State != "closed" && o.w.passed(leader.Batches, b.Start) {
			left += b.Verified
		}
	}
	var counted, late, wasted, lost uint64
	for i, r := range o.reports {
		if r.result != "" {
			counted++
		} else if r.valid && r.acked > 0 {
			if o.w.wasted(r.Metadata.Time) {
				wasted++
				continue
			}
			if left > 0 && o.w.passed(leader.Batches, uint64(r.Metadata.Time)) && !o.w.released(r.Metadata.Time) {
				continue // held to left below
			}
			if lies.about[r] {
				lost++
				continue
			}
			late++
			if !o.w.released(r.Metadata.Time) {
				o.violate("report %d of unit %d was acknowledged and is in no result", i, r.Metadata.Time)
			}
		}
	}
	if n := c.Rejected[dap.ReportDropped.String()] + c.Rejected[dap.BatchCollected.String()]; late+lost > n {
		o.violate("%d acknowledged reports are in no result, %d of them since object storage lied; %d were counted as dropped or too late", late+lost, lost, n)
	}
	if n := c.Rejected[dap.BatchCollected.String()]; late > n {
		o.violate("%d acknowledged reports are in no result, %d were counted as too late", late, n)
	}
	if c.Aggregated != c.Collected+left || c.Collected < counted || c.Collected > counted+wasted {
		o.violate("the results hold %d reports, the leader aggregated %d, released %d and was too late for %d", counted, c.Aggregated,
			c.Collected, left)
	}
	o.checkSeries()
}

// lies are what object storage said that it keeps, and does not.
type lies struct {
	entries uint64
	about   map[*report]bool
}

func (o *oracle) lies() lies {
	l := lies{about: make(map[*report]bool)}
	if o.w.lies == nil {
		return l
	}
	for _, content := range o.w.lies() {
		for _, r := range o.reports {
			if n := bytes.Count(content, r.Metadata.ID[:]); n > 0 {
				l.entries += uint64(n)
				l.about[r] = true
			}
		}
	}
	return l
}
