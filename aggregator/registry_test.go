package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// cold is a pair of which no task is opened at a start, but the one that its options name.
func cold(s setup) setup {
	s.leader = func(o *leader.Options) { o.Limits.HotTasks = -1 }
	s.helper = func(o *helper.Options) { o.Limits.HotTasks = -1 }
	return s
}

// openings counts how often tasks are made again, and fails where it is told to.
type openings struct {
	n      atomic.Int64
	broken atomic.Bool
	p      *pair
}

var errNoFile = errors.New("secrets/peer.token: no such file")

func (o *openings) provide(ctx context.Context, form aggregator.Form, made, terms []byte) (t aggregator.Task, err error) {
	o.n.Add(1)
	if o.broken.Load() {
		return t, errNoFile
	}
	return o.p.provider(ctx, form, made, terms)
}

// TestTaskIsOpenedWhenTouched: a start opens no task that nothing is asked of; the first
// request opens it at the leader, whose questions open it at the helper, and it counts
// like any. One that cannot be opened waits, and nothing else does.
func TestTaskIsOpenedWhenTouched(t *testing.T) {
	p := newPair(t, cold(setup{}))
	first := *p.kit
	o := &openings{p: p}
	p.leaderOpt.Provide, p.helperOpt.Provide = o.provide, o.provide
	in := p.another(nil)
	p.add(in, true)
	p.accept(p.reports(7)...)
	p.step()
	restart := func() {
		p.leader.Close()
		p.startLeader()
		p.helper.Close()
		p.startHelper()
	}
	restart()
	for name, s := range map[string]func(context.Context) (int, error){
		"leader": func(ctx context.Context) (int, error) { s, err := p.leader.Status(ctx); return s.UnopenedTasks, err },
		"helper": func(ctx context.Context) (int, error) { s, err := p.helper.Status(ctx); return s.UnopenedTasks, err },
	} {
		if n, err := s(t.Context()); n != 1 || err != nil {
			t.Errorf("%s: %d tasks are not opened, %v", name, n, err)
		}
	}
	if n := o.n.Load(); n != 0 {
		t.Fatalf("%d tasks were opened by a start", n)
	}
	p.clock.advance(time.Minute)
	p.accept(p.reports(5)...)
	p.step()
	if n := o.n.Load(); n != 2 {
		t.Errorf("opened %d times, want once at each", n)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports, want 12", resp.ReportCount)
	}

	o.broken.Store(true)
	restart()
	for range 2 {
		if a := p.upload(p.reports(1)...); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("an upload to a task that cannot be opened: status %d", a.status)
		}
	}
	if strings.Count(p.log.String(), "a task cannot be opened") != 1 {
		t.Error("strangers have the same failure tried and told again and again")
	}
	second := *p.kit
	p.kit, p.cfg, p.id = &first, first.Config, first.ID
	p.accept(p.reports(3)...) // the other task
	p.step()
	p.kit, p.cfg, p.id = &second, second.Config, second.ID
	o.broken.Store(false)
	p.clock.advance(24 * time.Hour)
	p.accept(p.reports(10)...)
	p.step()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 10 {
		t.Errorf("%d reports after it was mended, want 10", resp.ReportCount)
	}
}

// TestWorkOpensTasks: what was begun in an earlier life is finished, though nobody asks of
// its task.
func TestWorkOpensTasks(t *testing.T) {
	p := newPair(t, cold(setup{}))
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	p.add(p.another(nil), true)
	p.accept(p.reports(12)...)
	p.leader.Close()
	p.startLeader()
	p.helper.Close()
	p.startHelper()
	p.clock.advance(time.Minute)
	p.step()
	p.step()
	if c := p.counts(); c.Aggregated != 12 {
		t.Errorf("counts %+v", c)
	}
}

// TestAddedTwiceAtOnce: of adds of one task at one time one makes it and the others find it;
// one of other bytes under its id, or of other terms, is refused whenever it comes.
func TestAddedTwiceAtOnce(t *testing.T) {
	p := newPair(t, setup{})
	in := p.another(nil)
	var made, different atomic.Int64
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			mine := *in
			switch n % 4 {
			case 2:
				mine.Terms = []byte(`{"test":2}`)
			case 3:
				mine.Form, mine.Made = aggregator.RecipeFile, []byte("another body")
			}
			is, err := p.leader.Add(context.Background(), &mine)
			var refused *aggregator.TaskError
			switch {
			case err == nil && is:
				made.Add(1)
			case errors.As(err, &refused) && refused.Fault == aggregator.TaskDiffers:
				different.Add(1)
			case err != nil:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if m, d := made.Load(), different.Load(); m != 1 || d < 4 || d > 6 {
		t.Errorf("%d were made and %d refused, of two of each kind and two kinds", m, d)
	}
	if tasks, err := p.leader.Registered(t.Context()); len(tasks) != 1 || err != nil {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
}

// TestAddAtACrash: a task whose add ended with the power is there or not, whole, and the
// same add again makes it so.
func TestAddAtACrash(t *testing.T) {
	for _, point := range []string{"store.register.before-commit", "store.register.after-commit"} {
		t.Run(point, func(t *testing.T) {
			fp := new(disk.Failpoints)
			p := newPair(t, setup{leader: func(o *leader.Options) { o.Failpoints = fp }})
			p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
			in := p.another(nil)
			fp.Arm(point, 0, func() error {
				p.leaderFS.Cut()
				return errors.New("power lost")
			})
			if _, err := p.leader.Add(t.Context(), in); err == nil {
				t.Fatal("added without power")
			}
			fp.Disarm(point)
			p.leader.Close()
			p.leaderFS = p.leaderFS.Crash()
			p.leaderOpt.FS = p.leaderFS
			p.startLeader()
			tasks, err := p.leader.Registered(t.Context())
			if after := strings.HasSuffix(point, "after-commit"); err != nil || len(tasks) == 1 != after {
				t.Errorf("%d tasks, %v", len(tasks), err)
			}
			made, err := p.leader.Add(t.Context(), in)
			if made == (len(tasks) == 1) || err != nil {
				t.Errorf("again: made %v, %v", made, err)
			}
			if _, err := p.helper.Add(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			p.accept(p.reports(12)...)
			p.step()
			if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
				t.Errorf("%d reports", resp.ReportCount)
			}
		})
	}
}

// TestRegistryPutBack: a store that was put back to before a task was added, or closed, is
// found out: it would take the task as new, or open.
func TestRegistryPutBack(t *testing.T) {
	for name, change := range map[string]func(p *keptPair, in *aggregator.Provision) error{
		"added": func(p *keptPair, in *aggregator.Provision) error {
			_, err := p.leader.Add(t.Context(), in)
			return err
		},
		"closed": func(p *keptPair, in *aggregator.Provision) error {
			_, err := p.leader.CloseTask(t.Context(), p.id, "bob", "over")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newKeptPair(t, setup{})
			p.leaderOpt.Provide = p.provider
			in := p.another(nil)
			if name == "closed" {
				if _, err := p.leader.Add(t.Context(), in); err != nil {
					t.Fatal(err)
				}
			}
			p.leader.Close()
			before := copied(t, p.leaderFS)
			p.startLeader()
			if err := change(p, in); err != nil {
				t.Fatal(err)
			}
			p.leader.Close()
			back := p.leaderOpt
			back.FS = before
			_, err := leader.New(t.Context(), back)
			var unfit *aggregator.StoreError
			if !errors.As(err, &unfit) || unfit.Fault != aggregator.OlderStore {
				t.Errorf("put back: %v", err)
			}
			p.startLeader()
		})
	}
}

// TestClosedTaskIsRetired: a task without an end is kept for the retention after its
// closing and no longer, over restarts.
func TestClosedTaskIsRetired(t *testing.T) {
	const retention = 48 * time.Hour
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Retention = retention }})
	p.leaderOpt.Provide = p.provider
	in := p.another(nil)
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	p.accept(p.reports(2)...)
	p.step()
	if _, err := p.leader.CloseTask(t.Context(), p.id, "bob", "over"); err != nil {
		t.Fatal(err)
	}
	if at := p.leaderTask().RetiresAt; at.Sub(p.clock.Now().Add(retention)).Abs() > time.Minute {
		t.Errorf("it is kept until %v", at)
	}
	p.clock.advance(retention - time.Minute)
	p.step()
	if phase := p.leaderTask().Phase; phase == "retired" {
		t.Error("retired too early")
	}
	p.clock.advance(2 * time.Minute)
	p.step()
	if phase := p.leaderTask().Phase; phase != "retired" {
		t.Errorf("phase %q", phase)
	}
	p.leader.Close()
	p.startLeader()
	if a := p.upload(p.reports(1)...); a.status != http.StatusNotFound {
		t.Errorf("an upload after it: status %d", a.status)
	}
	if _, err := p.leader.Add(t.Context(), in); err == nil || !strings.Contains(err.Error(), "by bob") {
		t.Errorf("added again: %v", err)
	}
}

// TestKeysOfAddedTasks: a task of a KEM that no task had gets a key when it is added, which
// later starts have too; an aggregator of fixed keys, or without the right signing key,
// refuses what it could not serve.
func TestKeysOfAddedTasks(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Keys, o.KeySchedule = nil, &keyset.Schedule{} }})
	p.leaderOpt.Provide = func(ctx context.Context, form aggregator.Form, made, terms []byte) (aggregator.Task, error) {
		task, err := p.provider(ctx, form, made, terms)
		task.Suite = sealed.SuiteXWing
		return task, err
	}
	in := p.another(nil)
	in.Task.Suite = sealed.SuiteXWing
	kems := func() (list []uint16) {
		for _, c := range must(dap.ReadHpkeConfigList(p.leader.Offered())) {
			list = append(list, c.KEM)
		}
		return list
	}
	if got := kems(); len(got) != 1 {
		t.Fatalf("KEMs %x", got)
	}
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := kems(); len(got) != 2 || got[0] != sealed.KEMX25519 || got[1] != sealed.KEMXWing {
			t.Errorf("KEMs %x", got)
		}
		p.leader.Close()
		p.startLeader()
	}
	refused := func(name string, fault aggregator.TaskFault, add func(context.Context, *aggregator.Provision) (bool, error)) {
		t.Helper()
		var e *aggregator.TaskError
		if _, err := add(t.Context(), in); !errors.As(err, &e) || e.Fault != fault {
			t.Errorf("%s: %v, want %q", name, err, fault)
		}
	}
	refused("a helper of fixed keys", aggregator.TaskUnsealed, p.helper.Add)
	in = p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("signed") })
	in.Task.Deployment = &keyset.Deployment{ID: [32]byte{1}, Epoch: time.Hour, Leader: p.leaderURL, Helper: p.helperURL, Roots: ohttp.Roots{Leader: signed.Generate().Public()}}
	refused("no signing key", aggregator.TaskUnsigned, p.leader.Add)
	root, online := signed.Generate(), signed.Generate()
	from := today().UTC().Truncate(time.Second).Add(-time.Hour)
	word := must(signed.Delegate(root, online.Public(), from, from.Add(24*time.Hour)))
	p.leader.Close()
	p.leaderOpt.Signing = &keyset.Signing{Signer: must(signed.NewSigner(online, word)), Role: signed.Leader}
	p.startLeader()
	refused("another root", aggregator.TaskUnsigned, p.leader.Add)
	in.Task.Deployment.Roots.Leader = root.Public()
	if _, err := p.leader.Notary().ListFor(t.Context(), [32]byte{1}, p.clock.Now(), p.clock.Now().Add(time.Minute)); !errors.Is(err, keyset.ErrDeployment) {
		t.Errorf("a list for a deployment that is not there: %v", err)
	}
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	now := p.clock.Now().UTC().Truncate(time.Second)
	if _, err := p.leader.Notary().ListFor(t.Context(), [32]byte{1}, now, now.Add(time.Minute)); err != nil {
		t.Errorf("a list for the deployment of the task: %v", err)
	}
}

// TestRestoreKnowsTasksThatCame: a restore closes the tasks of the backup, and none begins
// that came after it, of which nobody knows what was released; new ones come as ever.
func TestRestoreKnowsTasksThatCame(t *testing.T) {
	p := newScheduledPair(t, setup{})
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	add := func(in *aggregator.Provision) {
		t.Helper()
		if made, err := p.leader.Add(t.Context(), in); err != nil || !made {
			t.Fatalf("made %v, %v", made, err)
		}
	}
	called := func(name string) *aggregator.Provision {
		return p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte(name) })
	}
	before, after, next := called("before"), called("after"), called("next")
	add(before)
	to := disktest.NewMem(8)
	l, h := p.stopped()
	must(backup.Make(t.Context(), p.backupOf(dap.RoleLeader, l), to))
	p.onDisks(l, h)
	add(after)
	l, h = p.stopped()
	l = diskOf(t, recordOf(t, l))
	restore(t, p.backupOf(dap.RoleLeader, l), to)
	p.onDisks(l, h)
	for range 2 {
		for name, in := range map[string]*aggregator.Provision{"before": before, "after": after} {
			var refused *aggregator.TaskError
			if _, err := p.leader.Add(t.Context(), in); !errors.As(err, &refused) || refused.Fault != aggregator.TaskClosed {
				t.Errorf("the task that came %s the backup: %v", name, err)
			}
		}
		p.leader.Close()
		p.startLeader()
	}
	add(next)
}

// TestIdleTasksAreGivenUp: of tasks that were opened no more stay open than a start may open,
// those that were used last; the others are opened again by what comes for them, and count
// as if they had stayed. Reading a status uses none.
func TestIdleTasksAreGivenUp(t *testing.T) {
	const hot, tasks = 3, 12
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.HotTasks = hot }, helper: func(o *helper.Options) { o.Limits.HotTasks = hot }})
	o := &openings{p: p}
	p.leaderOpt.Provide, p.helperOpt.Provide = o.provide, o.provide
	p.leader.Close()
	p.startLeader()
	p.helper.Close()
	p.startHelper()
	home := *p.kit
	var kits []aggregatortest.Task
	for i := range tasks {
		p.kit, p.cfg, p.id = &home, home.Config, home.ID
		in := p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = fmt.Appendf(nil, "task %d", i) })
		p.add(in, true)
		p.accept(p.reports(6)...)
		p.step()
		kits = append(kits, *p.kit)
	}
	unopened := func() (left [2]int) {
		t.Helper()
		left[0] = must(p.leader.Status(t.Context())).UnopenedTasks
		left[1] = must(p.helper.Status(t.Context())).UnopenedTasks
		return left
	}
	if left := unopened(); left != [2]int{} {
		t.Fatalf("%v are not open after all were used", left)
	}
	for range 3 {
		p.clock.advance(time.Minute)
		p.accept() // the last is used
		p.step()
		unopened()
	}
	want := tasks + 1 - hot // and the options' own, which stays
	if left := unopened(); left != [2]int{want, want} {
		t.Fatalf("%v are not open, want %d at each", left, want)
	}
	if n := o.n.Load(); n != 0 {
		t.Errorf("%d were opened again, and nobody asked", n)
	}
	for i := range kits {
		p.kit, p.cfg, p.id = &kits[i], kits[i].Config, kits[i].ID
		p.accept(p.reports(6)...)
		if s := p.taskOf(dap.RoleLeader).Agreement; i == 0 && s.State != status.NotCompared {
			t.Errorf("of a task that was given up is known: %+v", s)
		}
	}
	p.clock.advance(time.Minute)
	p.step()
	if n := o.n.Load(); n < 2*(tasks-hot) {
		t.Errorf("%d were opened again", n)
	}
	for i := range kits {
		p.kit, p.cfg, p.id = &kits[i], kits[i].Config, kits[i].ID
		if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
			t.Errorf("task %d: %d reports, want 12", i, resp.ReportCount)
		}
	}
	for range 4 { // what the leader lists the helper uses
		p.minute()
	}
	if left := unopened(); left != [2]int{want, want} {
		t.Errorf("%v are not open in the end, want %d at each", left, want)
	}
}

// TestTaskThatDiffersStaysOpen: a task in which leader and helper differ is not given up, for
// its operator reads of it in the status.
func TestTaskThatDiffersStaysOpen(t *testing.T) {
	p := newPair(t, cold(setup{}))
	p.leaderOpt.Provide = p.provider
	p.leader.Close()
	p.startLeader()
	if _, err := p.leader.Add(t.Context(), p.another(nil)); err != nil { // at one alone
		t.Fatal(err)
	}
	for range 4 {
		p.minute()
	}
	if s := p.taskOf(dap.RoleLeader); s.Agreement.State != status.Differs {
		t.Errorf("agreement %+v", s.Agreement)
	}
}
