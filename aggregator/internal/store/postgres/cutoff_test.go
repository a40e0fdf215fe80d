//go:build postgres

package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// TestCutOff: a replica that the others held dead commits nothing that it began before, and
// what it begins then; whoever holds it dead waits for what it is about to commit.
func TestCutOff(t *testing.T) {
	ctx := t.Context()
	v := newVaults(t)
	task := storetest.Task(t, dap.TimeInterval, 1)
	fail := new(disk.Failpoints)
	e := openWith(t, v.Schema, func(o *postgres.Options) { o.Database.Failpoints, o.Database.Prefix = fail, "store" })
	is(t, e.PutTask(ctx, task), nil)
	h := &helper{t: t, task: task}
	a, b := v.with(t, v.files), v.with(t, v.files)
	beat := func(at vault.Vault) string {
		t.Helper()
		turn, err := at.Beat(ctx, vault.Report{})
		is(t, err, nil)
		return turn.Life
	}
	beat(a)
	life := beat(b)
	jobs := 0
	commit := func(life string, numbers ...int) error {
		t.Helper()
		c := h.commit(numbers...)
		c.Life = life
		jobs++
		_, err := h.answer(e, fmt.Sprint("job ", jobs), c)
		return err
	}
	upload := func(life string, numbers ...int) error {
		t.Helper()
		in, err := segment.NewIntake(e, segment.IntakeOptions{})
		is(t, err, nil)
		defer in.Close()
		all := entries(task, 10, numbers[0], numbers[len(numbers)-1], 100)
		for i := range all {
			all[i].Life = life
		}
		_, err = in.Put(ctx, all)
		return err
	}
	is(t, commit(life, 1, 2), nil)
	is(t, upload(life, 3, 4), nil)

	v.Advance(vault.Lease + time.Second)
	is(t, commit(life, 5), nil) // nobody has held it dead
	// It is about to commit, and whoever holds it dead waits for that.
	commits, goes, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	goOn := sync.OnceFunc(func() { close(goes) })
	defer goOn()
	fail.Arm("store.commit-job.before-commit", 0, func() error {
		fail.Disarm("store.commit-job.before-commit")
		close(commits)
		<-goes
		return nil
	})
	go func() { done <- commit(life, 6) }()
	<-commits
	dead := make(chan string, 1)
	go func() {
		turn, err := a.Beat(context.Background(), vault.Report{})
		dead <- fmt.Sprint(len(turn.Peers), err)
	}()
	y := connect(t, v.Schema, v.Service)
	for waits := false; !waits; {
		err := y.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%DELETE FROM replica%')").Scan(&waits)
		is(t, err, nil)
		select {
		case got := <-dead:
			t.Fatalf("it did not wait: %s", got)
		default:
		}
	}
	goOn()
	is(t, <-done, nil)
	if got := <-dead; got != "0 <nil>" {
		t.Fatalf("peers, error: %s", got)
	}

	is(t, e.Lives(ctx, life), store.ErrCutOff)
	is(t, commit(life, 9), store.ErrCutOff)
	is(t, upload(life, 7, 8), segment.ErrBusy)
	is(t, upload(life, 7, 8), store.ErrCutOff)
	again := beat(b)
	is(t, e.Lives(ctx, life), store.ErrCutOff)
	is(t, e.Lives(ctx, again), nil)
	is(t, e.Lives(ctx, ""), nil) // of keys that are one process's
	is(t, commit(life, 9), store.ErrCutOff)
	is(t, upload(life, 7, 8), store.ErrCutOff)
	is(t, commit(again, 9), nil)
	is(t, upload(again, 7, 8), nil)
	c, err := e.Counts(ctx, task.ID)
	if is(t, err, nil); c.Aggregated != 5 {
		t.Errorf("%+v, want 5 aggregated", c)
	}
}
