//go:build postgres

package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// replicaEnv has what a process of this binary needs to be a replica that is killed.
const replicaEnv = "STARLING_TEST_REPLICA"

// A doomed replica is a leader in a process of its own.
type doomed struct {
	Schema, Service, Keys string
	First, Last           int // the reports that it takes
}

// leaseOfReplica is how long a replica has a job, by the clock of the machine.
const leaseOfReplica = 300 * time.Millisecond

// keysIn are the data keys in a directory, which all processes share.
func keysIn(dir string) func(ctx context.Context, book datakey.Book) (postgres.Keys, error) {
	return func(ctx context.Context, book datakey.Book) (postgres.Keys, error) {
		fsys, err := disk.OS(dir)
		if err != nil {
			return nil, err
		}
		return datakey.Open(ctx, datakey.Options{FS: fsys, Book: book, Keep: -1})
	}
}

// run takes uploads and finishes jobs until it is killed, and says each step on stdout.
func (r *doomed) run(ctx context.Context, task *store.Task) error {
	opt := postgres.Options{Role: dap.RoleLeader, Party: "https://leader.example/", Keys: keysIn(r.Keys), Wrapper: wrapped(fixed{})}
	opt.Database.Connection, opt.Database.Schema, opt.Database.Volatile = r.Service, r.Schema, true
	s, err := postgres.Open(ctx, opt)
	if err != nil {
		return err
	}
	if err := s.PutTask(ctx, task); err != nil {
		return err
	}
	in, err := segment.NewIntake(s, segment.IntakeOptions{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		for n := r.First; n <= r.Last; n += 2 {
			say("try %d", n)
			if _, err := in.Put(ctx, entries(task, 10, n, min(n+1, r.Last), 20)); err != nil {
				say("error %v", err)
				continue
			}
			say("ack %d", n)
		}
	}()
	for {
		if err := work(ctx, dumb{}, s, task, say); err != nil {
			say("error %v", err)
		}
		select {
		case <-taken:
			say("took all")
		default:
		}
	}
}

// work claims a few jobs and finishes them, step by step.
func work(ctx context.Context, t testing.TB, s *postgres.Store, task *store.Task, say func(format string, args ...any)) error {
	jobs, err := s.ClaimJobs(ctx, time.Now(), leaseOfReplica, 2, store.Most{Bytes: 1 << 20, Reports: 6})
	for _, j := range jobs {
		say("claimed %d", j.ID)
		reports, err := segment.OpenSlices(ctx, s.Payload(), j.Slices)
		if err != nil {
			return err
		}
		var numbers []int
		for i := range reports.Len() {
			id := dap.ReportID(reports.ReportID(i))
			numbers = append(numbers, numberOf(id))
		}
		reports.Close()
		if err := s.SaveSent(ctx, j, &store.Sent{Accepted: make([]byte, (j.Reports()+7)/8)}, time.Now().Add(leaseOfReplica)); err != nil {
			return err
		}
		say("sent %d", j.ID)
		c := storetest.Commit(t, task, []store.Batch{j.Batch}, []dap.Time{10}, [][]int{numbers})
		if err := s.FinishJob(ctx, j, c); err != nil {
			return err
		}
		say("finished %d", j.ID)
	}
	return err
}

// TestReplicasAreKilled: replicas are killed at any of their steps, one after the other,
// while another one goes on. Clients of a killed one come again. Each report counts once,
// and leases are taken over when they end.
func TestReplicasAreKilled(t *testing.T) {
	ctx := t.Context()
	task := storetest.Task(t, dap.TimeInterval, 1)
	l := newLeader(t)
	dir := t.TempDir()
	l.tasks, l.keys = []*store.Task{task}, keysIn(dir)
	l.open(0, time.Nanosecond)
	l.open(1, time.Nanosecond)
	rng := rand.New(rand.NewPCG(1, 1))
	const rounds, each = 8, 30
	acknowledged := 0
	for round := range rounds {
		r := doomed{Schema: l.schema.Name, Service: l.schema.Service, Keys: dir, First: round * each, Last: (round+1)*each - 1}
		env, err := json.Marshal(r)
		is(t, err, nil)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), replicaEnv+"="+string(env))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		is(t, err, nil)
		is(t, cmd.Start(), nil)
		tried := make(map[int]bool)
		kill := 1 + rng.IntN(2*each)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ { // what it says at the end it says over and over
			var i int
			switch what, rest, _ := strings.Cut(lines.Text(), " "); what {
			case "error":
				t.Errorf("round %d: %s", round, rest)
			case "try", "ack":
				_, err := fmt.Sscan(rest, &i)
				is(t, err, nil)
				if tried[i] = what == "try"; !tried[i] {
					acknowledged++
				}
			}
			if n == kill {
				is(t, cmd.Process.Kill(), nil)
			}
		}
		_ = cmd.Wait() // it was killed
		for n := r.First; n <= r.Last; n += 2 {
			if again, heard := tried[n]; again || !heard { // the client comes again
				l.upload(task, 10, n, min(n+1, r.Last))
			}
		}
		is(t, work(ctx, t, l.next(), task, func(string, ...any) {}), nil)
	}
	if acknowledged == 0 {
		t.Fatal("no replica acknowledged anything")
	}
	for { // until the leases of the last one have ended, and no longer than the test may take
		is(t, work(ctx, t, l.next(), task, func(string, ...any) {}), nil)
		c, err := l.next().Counts(ctx, task.ID)
		if is(t, err, nil); c.Waiting == 0 {
			break
		}
	}
	l.audit("")
	r := l.ask(task, "ask", storetest.Interval(10, 1))
	l.release(task, r, l.hold(r), 0, rounds*each-1)
	l.left(0, 0)
	l.audit("")
	if inFlight, err := l.next().Sent(ctx, task.ID); err != nil || len(inFlight) != 0 {
		t.Fatalf("in flight are %+v, %v", inFlight, err)
	}
}

// asReplica runs the process as a replica, if it is to be one.
func asReplica() bool {
	text := os.Getenv(replicaEnv)
	if text == "" {
		return false
	}
	var r doomed
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.run(context.Background(), storetest.Task(dumb{}, dap.TimeInterval, 1))
	}
	fmt.Println("error", err)
	return true
}

// dumb is a test that has nobody to tell.
type dumb struct{ testing.TB }

func (dumb) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
