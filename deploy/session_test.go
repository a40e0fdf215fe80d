package deploy

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/collector/collectortest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A job whose answer cannot be had at the moment must stay: to delete it would lose a
// batch that the leader may have ready, and that it never releases again.
func TestSessionDeletesOnlyWhatHasFailed(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer addresses.Close()
	r, err := account.New(account.Options{
		Name: "a test", Query: recipe.Histogram{Length: 4}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(),
		BatchMode: dap.TimeInterval, MinBatch: 10, TimePrecision: 10, Kind: account.GaussianNoise,
		Window: recipe.Between{Start: 100, End: 200}, Epsilon: decimal(t, "1"), Delta: decimal(t, "0.000001"),
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		problem dap.Problem
		over    bool
	}{
		{dap.Problem{Status: 500}, false},
		{dap.Problem{Status: 503}, false},
		{dap.Problem{Status: 429}, false},
		{dap.Problem{Status: 401, Detail: "a valid bearer token is needed"}, false},
		{dap.Problem{Status: 403, Type: "https://proxy.example/blocked"}, false},
		{dap.Problem{Status: 404, Type: dap.ProblemUnrecognizedTask}, false},
		{dap.Problem{Status: 404}, true}, // the leader has no such job
		{dap.Problem{Status: 400, Type: dap.ProblemBatchMismatch}, true},
		{dap.Problem{Status: 400, Type: dap.ProblemInvalidBatchSize}, true},
	} {
		config, err := LoadCollector(filepath.Join(dir, CollectorFile))
		if err != nil {
			t.Fatal(err)
		}
		config.State = service.Path(filepath.Join(t.TempDir(), "state"))
		leader := &collectortest.Leader{Problem: &c.problem}
		s, err := config.Open(collector.Options{HTTP: leader, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		leader.Task, _ = s.collector.Task()
		_, err = s.Collect(t.Context(), time.Unix(1000, 0), time.Unix(1100, 0))
		if !errors.Is(err, &c.problem) || leader.Polled != 1 {
			t.Errorf("%v: error %v after %d polls", &c.problem, err, leader.Polled)
		}
		if got := leader.Deleted == 1; got != c.over {
			t.Errorf("%v: the job was deleted %d times", &c.problem, leader.Deleted)
		}
		// What the file says is what the next run of the command goes by.
		if s, err = config.Open(collector.Options{HTTP: leader, Attempts: 1}); err != nil {
			t.Fatal(err)
		}
		if s.Pending() == c.over {
			t.Errorf("%v: pending is %v", &c.problem, s.Pending())
		}
		if err := s.PendingFor(time.Unix(1000, 0), time.Unix(1100, 0)); err != nil {
			t.Errorf("%v: the same question: %v", &c.problem, err)
		}
		if err := s.PendingFor(time.Unix(1000, 0), time.Unix(1110, 0)); errors.Is(err, ErrPending) == c.over {
			t.Errorf("%v: another question: %v", &c.problem, err)
		}
		if err := s.Drop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSkip: a question that is skipped is given up at the leader too, and the next one
// begins where it ended, also for the next run of the command.
func TestSkip(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	addresses.Close()
	r, err := account.New(account.Options{
		Name: "skip", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(), MinBatch: 20, TimePrecision: 10,
		Window: recipe.Between{Start: 100, End: 200}, Epsilon: decimal(t, "1"), Delta: decimal(t, "0.000001"), Rounds: 2,
		Grace: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	config, err := LoadCollector(filepath.Join(dir, CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	leader := &collectortest.Leader{Problem: &dap.Problem{Status: 503}} // it does not get ready
	open := func() *Session {
		s, err := config.Open(collector.Options{HTTP: leader, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		leader.Task, _ = s.collector.Task()
		return s
	}
	s := open()
	if _, err := s.Collect(t.Context(), time.Unix(1000, 0), time.Unix(1010, 0)); err == nil || !s.Asked().Equal(time.Unix(1010, 0)) {
		t.Fatalf("asked up to %v, error %v", s.Asked(), err)
	}
	s = open()
	leader.Kept = true // it has its answer
	if gone, err := s.Skip(t.Context()); gone || err != nil || !s.Pending() || leader.Deleted != 0 {
		t.Fatalf("an answer was skipped: %v, %v, pending %v, %d deleted", gone, err, s.Pending(), leader.Deleted)
	}
	s = open()
	if from, _, err := s.Interval(time.Unix(1045, 0), 0); err != nil || !from.Equal(time.Unix(1000, 0)) {
		t.Errorf("what was not skipped is passed over: from %v, %v", from, err)
	}
	leader.Kept = false
	if gone, err := s.Skip(t.Context()); !gone || err != nil || s.Pending() || leader.Deleted != 1 || !s.Asked().IsZero() {
		t.Fatalf("skipped: %v, pending %v, %d deleted", err, s.Pending(), leader.Deleted)
	}
	s = open()
	if from, to, err := s.Interval(time.Unix(1045, 0), 0); err != nil || !from.Equal(time.Unix(1010, 0)) || !to.Equal(time.Unix(1040, 0)) {
		t.Errorf("the next is from %v to %v: %v", from, to, err)
	}
	if s.Over(time.Unix(1010, 0), time.Unix(1012, 0)) || !s.Over(time.Unix(1010, 0), time.Unix(1013, 0)) {
		t.Error("over before its end and grace, or not then")
	}
}

func decimal(t *testing.T, s string) recipe.Decimal {
	d, err := recipe.ParseDecimal(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
