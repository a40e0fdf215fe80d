package aggregator_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestOneIDAtTwoTimes: a client draws one report id for reports of several times. The id
// counts once in its task (DAP-18 section 4.5.3.4), at both aggregators, uploaded
// together or one after the other, and after a restart.
func TestOneIDAtTwoTimes(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPair(t, setup{mode: mode})
			first := p.report(2, spoil{})
			at := func(back dap.Time) dap.Report {
				then := p.now() - back
				return p.report(4, spoil{ID: &first.Metadata.ID, Time: &then})
			}
			p.accept(first, at(1), at(2)) // three buckets, so three jobs
			p.settled(1, map[string]uint64{"report_replayed": 2})
			p.accept(at(3), p.report(1, spoil{}))
			p.settled(2, map[string]uint64{"report_replayed": 3})
			if err := errors.Join(p.leader.Close(), p.helper.Close()); err != nil {
				t.Fatal(err)
			}
			p.startHelper()
			p.startLeader()
			p.accept(at(4))
			p.settled(2, map[string]uint64{"report_replayed": 4})
			if c := p.helperCounts(); c.Aggregated != 2 {
				t.Errorf("the helper has aggregated %d reports, want 2", c.Aggregated)
			}
			p.audit()
		})
	}
}

// TestOneIDInRacingJobs: one report id in jobs that a leader sends at once counts once,
// whether it is one report in all of them or a report of another time in each.
func TestOneIDInRacingJobs(t *testing.T) {
	for times, at := range map[string]func(now dap.Time, i int) dap.Time{
		"one time":      func(now dap.Time, _ int) dap.Time { return now },
		"several times": func(now dap.Time, i int) dap.Time { return now - dap.Time(i) },
	} {
		t.Run(times, func(t *testing.T) {
			p := newPair(t, setup{})
			shared := p.report(4, spoil{})
			var wg sync.WaitGroup
			answers := make([]answer, 4)
			for i := range answers {
				report := shared
				if then := at(p.now(), i); then != p.now() {
					report = p.report(4, spoil{ID: &shared.Metadata.ID, Time: &then})
				}
				body := p.initReq(p.kit.Inits(p.report(0, spoil{}), report), nil)
				wg.Go(func() { answers[i] = p.postInit(body) })
			}
			wg.Wait()
			kept := 0
			for _, a := range answers {
				switch resp := p.resps(a)[1]; {
				case resp.Type == dap.Continue:
					kept++
				case resp.Error != dap.ReportReplayed:
					t.Errorf("%v %v", resp.Type, resp.Error)
				}
			}
			if c := p.helperCounts(); kept != 1 || c.Aggregated != 5 {
				t.Errorf("the id was kept by %d jobs, %d reports in all", kept, c.Aggregated)
			}
		})
	}
}
