package service

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// journal notes what happens in which order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) part(name string, after error) Part {
	return Part{name, func(ctx context.Context, ready func()) error {
		j.add("start " + name)
		ready()
		<-ctx.Done()
		j.add("stop " + name)
		return after
	}}
}

func TestRunOrder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var j journal
	err := Run(ctx, 0, func() { j.add("up"); cancel() }, j.part("store", nil), j.part("worker", nil), j.part("http", nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"start store", "start worker", "start http", "up", "stop http", "stop worker", "stop store"}
	if !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
}

func TestRunFailure(t *testing.T) {
	cause := errors.New("disk on fire")
	for name, bad := range map[string]Part{
		"before ready": {"bad", func(context.Context, func()) error { return cause }},
		"after ready": {"bad", func(_ context.Context, ready func()) error {
			ready()
			return cause
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			err := Run(t.Context(), 0, nil, j.part("store", errors.New("no time to sync")), bad, j.part("http", nil))
			if !errors.Is(err, cause) || !strings.Contains(err.Error(), "bad: disk on fire") {
				t.Errorf("got %v", err)
			}
			if !strings.Contains(err.Error(), "store: no time to sync") {
				t.Errorf("the error while stopping is lost: %v", err)
			}
			if !slices.Contains(j.lines, "stop store") {
				t.Errorf("the parts before were not stopped: %q", j.lines)
			}
		})
	}
	err := Run(t.Context(), 0, nil, Part{"lazy", func(_ context.Context, ready func()) error { ready(); return nil }})
	if !errors.Is(err, errEarly) {
		t.Errorf("a part that ends by itself gave %v", err)
	}
}

func TestRunDrainLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		stuck := Part{"stuck", func(_ context.Context, ready func()) error {
			ready()
			<-release
			return nil
		}}
		var j journal
		begin := time.Now()
		err := Run(ctx, time.Minute, cancel, j.part("store", nil), stuck)
		if !errors.Is(err, ErrDrain) || time.Since(begin) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(begin))
		}
		if !slices.Contains(j.lines, "stop store") {
			t.Error("a stuck part kept the others from stopping")
		}
		close(release)
	})
}

func TestStopSignals(t *testing.T) {
	ctx, cancel := stopSignals(t.Context())
	defer cancel()
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

// TestErrorsNameThePartOnce: an error says which part it is of, and not twice.
func TestErrorsNameThePartOnce(t *testing.T) {
	for text, want := range map[string]string{
		"state: gone": "gateway: state: gone", "gateway: state: gone": "gateway: state: gone", "gateways: many": "gateway: gateways: many",
	} {
		cause := errors.New(text)
		err := Run(t.Context(), 0, nil, Part{"gateway", func(context.Context, func()) error { return cause }})
		if !errors.Is(err, cause) || err.Error() != want {
			t.Errorf("%q is told as %q, want %q", text, err, want)
		}
	}
}
