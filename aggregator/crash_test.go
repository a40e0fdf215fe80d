package aggregator_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
)

// TestCrashAtEveryFailpoint loses power once at each named place of leader and helper,
// brings the service back on what the disk then holds, and demands that every
// acknowledged report is counted exactly once, at both.
func TestCrashAtEveryFailpoint(t *testing.T) {
	errPower := errors.New("power lost")
	for _, side := range []struct {
		name   string
		points []string
	}{{"leader", leader.FailpointNames()}, {"helper", helper.FailpointNames()}} {
		for i, point := range side.points {
			for j, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
				if i%2 != j && !patient { // each point in one mode
					continue
				}
				t.Run(point+"/"+mode.String(), func(t *testing.T) {
					fp := new(disk.Failpoints)
					p := newPair(t, setup{
						mode: mode, noise: must(noise.NewDiscreteGaussian(100, 1)),
						leader: func(o *leader.Options) {
							if side.name == "leader" {
								o.Failpoints = fp
							}
						},
						helper: func(o *helper.Options) {
							if side.name == "helper" {
								o.Failpoints = fp
							}
						},
					})
					mem := &p.leaderFS
					if side.name == "helper" {
						mem = &p.helperFS
					}
					crashed := false
					fp.Arm(point, 0, func() error {
						crashed = true
						(*mem).Cut()
						return errPower
					})
					restart := func() {
						fp.Disarm(point)
						*mem = (*mem).Crash()
						if side.name == "leader" {
							p.leader.Close()
							p.leaderOpt.FS = *mem
							p.startLeader()
						} else {
							p.helper.Close()
							p.helperOpt.FS = *mem
							p.startHelper()
						}
					}
					restarted := false
					rs := p.reports(14)
					if a := p.upload(rs...); crashed { // before the acknowledgement
						if a.status/100 == 2 {
							t.Fatalf("acknowledged with status %d what no disk has", a.status)
						}
						restart()
						restarted = true
						p.accept(rs...)
					}
					q := p.query()
					loc := p.ask(q).header.Get("Location")
					var body []byte
					for range 10 {
						p.leader.Step(context.Background()) // errors are what this test makes
						p.helper.Step(context.Background())
						if crashed && !restarted {
							restart()
							restarted = true
						}
						p.clock.advance(10 * time.Minute)
						a := p.poll(loc)
						if a.status == http.StatusOK && len(a.body) > 0 {
							if body != nil && !slices.Equal(body, a.body) {
								t.Fatal("the result changed")
							}
							body = a.body
						}
					}
					if !crashed {
						t.Fatal("the failpoint was never passed")
					}
					if body == nil {
						t.Fatalf("no result; leader %+v", p.leaderTask())
					}
					resp, _ := p.open(q, body)
					if resp.ReportCount != 14 {
						t.Errorf("%d reports, want 14", resp.ReportCount)
					}
					for name, c := range map[string]uint64{"leader": p.counts().Aggregated, "helper": p.helperCounts().Aggregated} {
						if c != 14 {
							t.Errorf("%s aggregated %d", name, c)
						}
					}
				})
			}
		}
	}
}
