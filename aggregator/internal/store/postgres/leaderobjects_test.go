//go:build postgres

package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// TestObjectsFail: an object store that refuses, does not answer, is full or denies access
// costs time: clients come again, jobs are tried again, and each report counts once. Where it
// says that it keeps what it does not, reports that were acknowledged are lost, and nothing
// can be done about that: they are counted as dropped, and all others get on.
func TestObjectsFail(t *testing.T) {
	for name, c := range map[string]struct {
		rates map[payloadtest.Fault]float64
		loses bool
	}{
		"refuses":          {map[payloadtest.Fault]float64{payloadtest.Refused: 0.3}, false},
		"answers get lost": {map[payloadtest.Fault]float64{payloadtest.Silent: 0.2, payloadtest.Late: 0.2}, false},
		"is full":          {map[payloadtest.Fault]float64{payloadtest.Full: 0.3, payloadtest.Denied: 0.1}, false},
		"lies":             {map[payloadtest.Fault]float64{payloadtest.Lying: 0.2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := storetest.Task(t, dap.TimeInterval, 1)
			l := newLeader(t, task)
			l.faults.Rates(c.rates)
			const uploads, each = 40, 3
			tries := 0
			for n := range uploads {
				for acknowledged := false; !acknowledged; {
					l.turn++
					_, err := l.intakes[l.turn%2].Put(t.Context(), entries(task, 10, n*each, (n+1)*each-1, 1000))
					if err != nil && !errors.Is(err, segment.ErrBusy) {
						t.Fatal(err)
					}
					acknowledged = err == nil
					if tries++; tries > 20*uploads {
						t.Fatal("nothing is acknowledged any more")
					}
				}
				l.attempt(task)
				_ = l.next().Bury(t.Context()) // it may be tried again
			}
			if !c.loses && tries < uploads*5/4 {
				t.Errorf("%d uploads were acknowledged in %d attempts", uploads, tries)
			}
			l.faults.Calm()
			for l.attempt(task) {
			}
			is(t, l.next().Bury(t.Context()), nil)
			l.audit("")
			got, err := l.next().Counts(t.Context(), task.ID)
			is(t, err, nil)
			lost := got.Rejected[dap.ReportDropped]
			if got.Waiting != 0 || got.Aggregated+lost != uploads*each || got.Acknowledged != got.Aggregated+lost+got.Rejected[dap.ReportReplayed] || (lost > 0) != c.loses {
				t.Fatalf("counts are %+v", *got)
			}
			if counted := l.collect(task); counted != got.Aggregated {
				t.Errorf("%d reports are in the result, %d were aggregated", counted, got.Aggregated)
			}
		})
	}
}

// attempt works on one job as a leader does, through faults: what cannot be read is tried
// again, and set aside where it never will be. It says whether there was one.
func (l *leader) attempt(task *store.Task) bool {
	l.t.Helper()
	ctx := l.t.Context()
	jobs := l.claim(1)
	if len(jobs) == 0 {
		return false
	}
	for j := jobs[0]; j != nil; {
		reports, err := segment.OpenSlices(ctx, l.next().Payload(), j.Slices)
		if err == nil {
			var numbers []int
			for i := range reports.Len() {
				numbers = append(numbers, numberOf(dap.ReportID(reports.ReportID(i))))
			}
			reports.Close()
			c := storetest.Commit(l.t, task, []store.Batch{j.Batch}, []dap.Time{10}, [][]int{numbers})
			c.Candidates = slices.DeleteFunc(c.Candidates, func(x store.Candidate) bool {
				return slices.Index(numbers, numbers[x.Report]) < int(x.Report)
			})
			if twice := uint64(len(numbers) - len(c.Candidates)); twice > 0 {
				c.Rejected = map[dap.ReportError]uint64{dap.ReportReplayed: twice}
			}
			is(l.t, l.next().FinishJob(ctx, j, c), nil)
			return true
		}
		var gone []int
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			var s *segment.SliceError
			if errors.As(err, &s) && s.Gone() {
				gone = append(gone, s.Index)
			}
		}
		if len(gone) == 0 {
			is(l.t, l.next().RetryJob(ctx, j, l.now, "the store does not answer"), nil)
			return true
		}
		j, err = l.next().SetAside(ctx, j, gone, dap.ReportDropped, "it is gone")
		is(l.t, err, nil)
	}
	return true
}

// collect releases all of bucket 10, and says how many reports it has, each of them once.
func (l *leader) collect(task *store.Task) (counted uint64) {
	l.t.Helper()
	r := l.ask(task, "all", storetest.Interval(10, 1))
	f := l.hold(r)
	_, err := l.next().Release(l.t.Context(), &store.Release{
		Resource: r.ID, Task: task.ID, Kind: r.Kind, Selection: f.Selection, Count: f.Count, Checksum: f.Checksum, Debit: "none",
		Build: func(sum *vdaf.AggShare, _ store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
			for n, v := range values {
				if v < 0 || v > 1 {
					l.t.Errorf("report %d counted %d times", n, v)
				}
				counted += uint64(v)
			}
			return []byte("the response"), nil, err
		},
	})
	is(l.t, err, nil)
	return counted
}
