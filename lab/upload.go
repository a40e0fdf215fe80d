package lab

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/dap"
)

// uploadBatch is how many devices' reports travel in one request, as a relay in front of
// the leader would gather them.
const uploadBatch = 200

// answer implements scenario: one report for each row, through the client library.
func (h *histogram) answer(ctx context.Context, f *frame) error {
	h.promise(f)
	if err := f.client.Refresh(ctx); err != nil {
		return err
	}
	forger, err := newForger(ctx, f, h.o.Malicious)
	if err != nil {
		return err
	}
	chunks := slices.Collect(slices.Chunk(h.values, uploadBatch))
	g := &gauge{total: uint64(len(h.values))}
	var sentBytes, helperBytes atomic.Uint64
	var mu sync.Mutex // guards replayable
	var replayable []dap.Report
	stop := f.watch(ctx, g)
	defer stop()
	err = crowd(ctx, len(chunks), f.o.Workers, func(ctx context.Context, i int) error {
		reports, err := h.upload(ctx, f, chunks[i])
		if err != nil {
			return err
		}
		mu.Lock()
		if len(replayable) < h.o.Malicious {
			replayable = append(replayable, reports...)
		}
		mu.Unlock()
		for j := range reports {
			sentBytes.Add(uint64(reports[j].Size()))
			helperBytes.Add(uint64(len(reports[j].Helper.Enc) + len(reports[j].Helper.Payload) + len(reports[j].PublicShare)))
		}
		g.done.Add(uint64(len(reports)))
		return nil
	})
	if err != nil {
		return err
	}
	f.sent, f.acknowledged = g.total, g.total
	h.found.LeaderBytes, h.found.HelperBytes = sentBytes.Load(), helperBytes.Load()
	if err := forger.attack(ctx, replayable); err != nil {
		return err
	}
	h.found.Sent, h.found.Malicious = f.sent, uint64(h.o.Malicious)
	return nil
}

// upload makes and uploads the reports of some rows. All must be acknowledged: they are
// honest.
func (h *histogram) upload(ctx context.Context, f *frame, values []int) ([]dap.Report, error) {
	reports := make([]dap.Report, len(values))
	for i, v := range values {
		var err error
		if reports[i], err = f.client.Prepare(h.value(v), f.asked); err != nil {
			return nil, err
		}
	}
	refused, err := f.client.Upload(ctx, reports)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("%d honest reports were refused, the first because of %v", len(refused), refused[0].Error)
	}
	return reports, nil
}

// A gauge says how far devices are.
type gauge struct {
	total uint64        // of answers
	done  atomic.Uint64 // of them
	// behind, if not nil, is what else is counted on the way, and how many reports the
	// servers will get; by default all that are answered.
	behind func() (counts []Count, reports uint64)
}

// watch tells how far the devices, and behind them the servers, are until stop is called.
func (f *frame) watch(ctx context.Context, g *gauge) (stop func()) {
	return f.while(func(begin time.Time) {
		n, reports := g.done.Load(), g.total
		p := f.ofDevices("upload", n, g.total, begin)
		if g.behind != nil {
			var more []Count
			more, reports = g.behind()
			p.Counts = append(p.Counts, more...)
		}
		// The servers verify while devices still send; a status that cannot be had
		// now is not missed.
		if st, err := f.status.read(ctx); err == nil {
			p.Counts = append(p.Counts, serverCounts(&st.Tasks[0], reports)...)
		}
		f.o.Progress(p)
	})
}

// while tells of progress several times a second until stop is called; begin is when it
// began to.
func (f *frame) while(tell func(begin time.Time)) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(gone)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				tell(begin)
			}
		}
	}()
	return sync.OnceFunc(func() { close(over); <-gone })
}
