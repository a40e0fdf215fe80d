package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// phases is how many steps a lab has, but for one whose recipe counts devices: that has
// two more ([rehearsing], [enrolling]).
const phases = 5

// every is the time between two reports of progress.
const every = 200 * time.Millisecond

// Progress is how far long work is.
type Progress struct {
	Phase, Phases int
	Name          string // of the phase: rehearse and enrol where devices are counted, start, upload, verify, collect, draw
	// Over: the phase has ended, and Took is how long it lasted.
	Over bool
	Took time.Duration
	// Counts are what is done of what, one for each party at work; empty where nothing is
	// counted.
	Counts []Count
	// Rate is how many are done a second, 0 where unknown, and Left the time that the
	// rest takes at that rate.
	Rate float64
	Left time.Duration
}

// A Count is one party's share of the work.
type Count struct {
	Party       string
	Done, Total uint64
}

// statusReader reads an aggregator's status from its local listener, as an operator does.
type statusReader struct {
	http *http.Client
	base string
}

// maxStatus bounds a status in bytes.
const maxStatus = 4 << 20

func (s statusReader) read(ctx context.Context) (*status.Status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/statusz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read status: HTTP status %d", resp.StatusCode)
	}
	var st status.Status
	if err := json.Unmarshal(b, &st); err != nil {
		return nil, fmt.Errorf("read status: %w", err)
	}
	if len(st.Tasks) != 1 {
		return nil, errors.New("read status: not one task")
	}
	return &st, nil
}

// serverCounts is how far leader and helper are with total reports. Reports that the
// leader alone rejects never reach the helper, so the helper may end below the total.
func serverCounts(t *status.Task, total uint64) []Count {
	counts := []Count{{"leader", t.Done, total}}
	if t.Peer != nil {
		counts = append(counts, Count{"helper", t.Peer.Done, total})
	}
	return counts
}

// verify waits until every acknowledged report is verified or rejected, and takes down
// the rejections.
func (f *frame) verify(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		st, err := f.status.read(ctx)
		if err != nil {
			return err
		}
		t := &st.Tasks[0]
		p := Progress{Phase: f.phase, Phases: f.phases(), Name: "verify", Rate: t.ReportsPerSec,
			Left: time.Duration(t.SecondsLeft * float64(time.Second)), Counts: serverCounts(t, f.acknowledged)}
		f.o.Progress(p)
		if t.Counts.Acknowledged >= f.acknowledged && t.Counts.Waiting == 0 {
			for reason, n := range t.Counts.Rejected {
				f.rejected[reason] += n
			}
			for reason, n := range t.Counts.Refused {
				f.rejected[reason] += n
			}
			return nil
		}
		for _, s := range t.Stuck {
			if s.Quarantined || s.Parked {
				return fmt.Errorf("%d reports were set aside: %s", s.Reports, s.Why)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (f *frame) phases() int {
	if f.o.shown {
		return phases + 1 // without a rehearsal
	}
	if f.o.counted > 0 {
		return phases + 2
	}
	return phases
}

// tick tells how many of some devices are done until stop is called.
func (f *frame) tick(name string, total uint64, done *atomic.Uint64) (stop func()) {
	return f.while(func(begin time.Time) {
		f.o.Progress(f.ofDevices(name, done.Load(), total, begin))
	})
}

// ofDevices is how far devices are that began at a time.
func (f *frame) ofDevices(name string, n, total uint64, begin time.Time) Progress {
	p := Progress{Phase: f.phase, Phases: f.phases(), Name: name, Counts: []Count{{"devices", n, total}}, Rate: float64(n) / time.Since(begin).Seconds()}
	if p.Rate > 0 {
		p.Left = time.Duration(float64(total-n) / p.Rate * float64(time.Second))
	}
	return p
}
