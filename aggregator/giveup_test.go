package aggregator_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// gaveUp closes the task at the leader, and gives up what waits, which is so many reports.
func (p *pair) gaveUp(dropped uint64) status.Closed {
	p.t.Helper()
	c, err := p.leader.GiveUp(p.t.Context(), p.id, "bob", "asked by mistake")
	if err != nil || c.Dropped != dropped {
		p.t.Fatalf("given up: %+v, %v; want %d", c, err, dropped)
	}
	return c
}

// TestGivenUp: of a task that is closed in this way, reports that the helper was not asked
// about are never verified, and count as dropped; the batch of those that it was asked about
// is the same at both, and can be collected. The helper takes no new job once none waits.
func TestGivenUp(t *testing.T) {
	p := closable(t, setup{})
	q := p.query()
	p.accept(p.reports(12)...)
	p.step()
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	p.accept(p.reports(5)...)
	p.step() // the helper was asked, as far as the leader knows
	p.accept(p.reports(4)...)
	if c := p.gaveUp(4); c.By != "bob" || c.Why != "asked by mistake" || c.Waiting != 5 || c.Ready != 12 || c.Short != 0 {
		t.Errorf("closed: %+v", c)
	}
	for range 2 { // the second time after a start
		if c := p.gaveUp(0); c.Waiting != 5 {
			t.Errorf("closed again: %+v", c)
		}
		if e := p.uploadErrors(p.upload(p.reports(1)...)); len(e) != 1 || e[0].Error != p.dialect.Said(dap.ReportDropped) {
			t.Errorf("an upload: %v", e)
		}
		p.leader.Close()
		p.startLeader()
		p.leader.Step(t.Context()) // the helper is away
	}
	p.between(nil)
	for range 4 {
		p.clock.advance(time.Hour)
		p.step()
	}
	p.closedBoth(dap.RoleLeader, "asked by mistake")
	p.refused(p.newJob(), problemOfClosed, http.StatusBadRequest)
	s := p.taskOf(dap.RoleLeader)
	if c := s.Counts; c.Acknowledged != 21 || c.Aggregated != 17 || c.Waiting != 0 || c.Rejected["report_dropped"] != 4 {
		t.Errorf("counts %+v", c)
	}
	if c := p.taskOf(dap.RoleHelper).Counts; c.Aggregated != 17 {
		t.Errorf("the helper's counts %+v", c)
	}
	if len(s.Stuck) > 0 {
		t.Errorf("a decision is held a fault: %+v", s.Stuck)
	}
	if resp, _ := p.collect(q); resp.ReportCount != 17 {
		t.Errorf("%d reports, want 17", resp.ReportCount)
	}
	if _, err := p.leader.GiveUp(t.Context(), dap.TaskID{1}, "bob", "over"); !errors.Is(err, leader.ErrNoTask) {
		t.Errorf("a task that is not there: %v", err)
	}
	p.clock.advance(p.leaderOpt.Retention + 1000*time.Hour)
	p.step()
	if c := p.gaveUp(0); c.By != "bob" {
		t.Errorf("a retired task: %+v", c)
	}
}

// TestGivenUpCollection: a collection that waits for reports which were given up ends, and
// says to the collector that some were dropped, and not how many.
func TestGivenUpCollection(t *testing.T) {
	p := closable(t, setup{})
	p.accept(p.reports(3)...)
	p.step()
	p.accept(p.reports(39)...)
	loc := p.ask(p.query()).header.Get("Location")
	if c := p.gaveUp(39); c.Waiting != 0 || c.Ready != 0 || c.Short != 3 {
		t.Errorf("closed: %+v", c)
	}
	p.minute()
	a := p.poll(loc)
	p.refused(a, dap.ProblemInvalidBatchSize, http.StatusBadRequest)
	if said := p.problem(a).Detail; !strings.Contains(said, "reports of the task were dropped") || strings.Contains(said, "39") {
		t.Errorf("the collector hears %s", said)
	}
}

// TestGivenUpBesideUploads: reports that are acknowledged while their task is given up are
// given up too: none that was acknowledged is ever verified afterwards.
func TestGivenUpBesideUploads(t *testing.T) {
	fp := new(disk.Failpoints)
	p := closable(t, setup{leader: func(o *leader.Options) { o.Failpoints = fp }})
	first, second := p.reports(5), p.reports(7)
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fp.Arm(leader.FailBeforeLog, 0, func() error {
		once.Do(func() { close(reached) })
		<-goOn
		return nil
	})
	var wait sync.WaitGroup
	wait.Go(func() { p.upload(first...) })
	<-reached // judged while the task was live
	closed := make(chan status.Closed)
	go func() {
		c, err := p.leader.GiveUp(context.Background(), p.id, "bob", "over")
		if err != nil {
			t.Error(err)
		}
		closed <- c
	}()
	for { // until it is closed, durably: from then on the upload alone is waited for
		tasks, err := p.leader.Registered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tasks[len(tasks)-1].Closed != nil {
			break
		}
	}
	taken := uint64(5)
	wait.Go(func() { // is refused, unless it is judged before all of the leader knows
		if e := p.uploadErrors(p.upload(second...)); len(e) != 7 {
			taken += 7 - uint64(len(e))
		}
	})
	close(goOn)
	c := <-closed
	wait.Wait()
	if uint64(c.Dropped) != taken {
		t.Errorf("%d were acknowledged; closed: %+v", taken, c)
	}
	p.minute()
	if c := p.taskOf(dap.RoleLeader).Counts; c.Acknowledged != taken || c.Aggregated != 0 || c.Waiting != 0 || c.Rejected["report_dropped"] != taken {
		t.Errorf("counts %+v", c)
	}
}

// TestGivenUpCrash: a leader that loses power at any step of it has closed the task or not,
// and given up all that waits or nothing; the same command again does the rest, and every
// report is counted once, as dropped or as verified.
func TestGivenUpCrash(t *testing.T) {
	for _, point := range []string{
		"store.close-task.before-commit", "store.close-task.after-commit", "segment.before-commit", "segment.after-commit",
		"store.commit-log.before-commit", "store.commit-log.after-commit", "store.give-up-task.before-commit", "store.give-up-task.after-commit",
		"store.drop-tombstones.before-commit",
	} {
		t.Run(point, func(t *testing.T) {
			fp := new(disk.Failpoints)
			p := closable(t, setup{leader: func(o *leader.Options) { o.Failpoints = fp }})
			p.accept(p.reports(12)...)
			p.step()
			p.accept(p.reports(6)...)
			crashed := false
			fp.Arm(point, 0, func() error {
				crashed = true
				p.leaderFS.Cut()
				return errors.New("power lost")
			})
			first, err := p.leader.GiveUp(t.Context(), p.id, "bob", "over")
			if !crashed {
				t.Fatal("the failpoint was never passed")
			}
			if err == nil && first.Dropped != 6 {
				t.Fatalf("closed: %+v", first)
			}
			fp.Disarm(point)
			p.leader.Close()
			p.leaderFS = p.leaderFS.Crash()
			p.leaderOpt.FS = p.leaderFS
			p.startLeader()
			n := p.taskOf(dap.RoleLeader).Counts.Rejected["report_dropped"]
			if n != 0 && n != 6 || err == nil && n != 6 {
				t.Fatalf("after the crash %d reports were given up", n)
			}
			p.gaveUp(6 - n)
			p.step()
			p.minute()
			if c := p.taskOf(dap.RoleLeader).Counts; c.Aggregated != 12 || c.Waiting != 0 || c.Rejected["report_dropped"] != 6 {
				t.Errorf("counts %+v", c)
			}
			if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
				t.Errorf("%d reports, want 12", resp.ReportCount)
			}
		})
	}
}
