package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/disk"
)

func TestBackoff(t *testing.T) {
	different := false
	for attempts := range 70 {
		want := min(time.Second<<min(max(attempts-1, 0), 20), time.Minute)
		first := Backoff(attempts, time.Second, time.Minute)
		for range 20 {
			d := Backoff(attempts, time.Second, time.Minute)
			if d < want/2 || d > want {
				t.Fatalf("attempt %d: %v, want %v to %v", attempts, d, want/2, want)
			}
			different = different || d != first
		}
	}
	if !different {
		t.Error("no jitter")
	}
}

func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(disk.SystemClock, slog.New(slog.DiscardHandler))
		wake, signal := Signal()
		var calls []time.Duration
		start := time.Now()
		r.Go("test", time.Minute, wake, func(context.Context) (bool, error) {
			calls = append(calls, time.Since(start))
			switch len(calls) {
			case 1:
				return true, nil // again at once
			case 3:
				return true, errors.New("failed") // an error waits, whatever else
			}
			return false, nil
		})
		time.Sleep(90 * time.Second)
		signal()
		time.Sleep(time.Second)
		r.Stop()
		want := []time.Duration{0, 0, time.Minute, 90 * time.Second}
		if fmt.Sprint(calls) != fmt.Sprint(want) {
			t.Errorf("passes at %v, want %v", calls, want)
		}
		if r.Err() != nil {
			t.Error(r.Err())
		}
	})
}

func TestSignalsBeforeAPassAreOne(t *testing.T) {
	wake, signal := Signal()
	signal()
	signal() // does not block
	<-wake
	select {
	case <-wake:
		t.Error("two")
	default:
	}
}

// TestRunnerStopsAtUnknown: after an unknown outcome no loop touches the store again.
func TestRunnerStopsAtUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(disk.SystemClock, slog.New(slog.DiscardHandler))
		other := 0
		r.Go("other", time.Second, nil, func(context.Context) (bool, error) { other++; return false, nil })
		r.Go("bad", time.Second, nil, func(context.Context) (bool, error) { return true, fmt.Errorf("x: %w", store.ErrUnknown) })
		<-r.Done()
		r.Stop()
		if other > 1 || !errors.Is(r.Err(), store.ErrUnknown) {
			t.Errorf("%d passes, %v", other, r.Err())
		}
	})
}
