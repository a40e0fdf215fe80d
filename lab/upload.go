package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
)

// uploadBatch is how many devices' reports travel in one request, as a relay in front of the leader would gather them.
const uploadBatch = 200

// upload plays the devices: one report for each row, through the client library.
func (r *run) upload(ctx context.Context) error {
	if err := r.client.Refresh(ctx); err != nil {
		return err
	}
	forger, err := newForger(ctx, r)
	if err != nil {
		return err
	}
	chunks := slices.Collect(slices.Chunk(r.values, uploadBatch))
	var next, done, sentBytes, helperBytes atomic.Uint64
	var mu sync.Mutex // guards errs and replayable
	var errs []error
	var replayable []dap.Report

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := r.watchUpload(ctx, &done)
	defer stop()
	var devices sync.WaitGroup
	for range r.o.Workers {
		devices.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= uint64(len(chunks)) || ctx.Err() != nil {
					return
				}
				reports, err := r.uploadValues(ctx, chunks[i])
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
					cancel()
				} else if len(replayable) < r.o.Malicious {
					replayable = append(replayable, reports...)
				}
				mu.Unlock()
				for j := range reports {
					sentBytes.Add(uint64(reports[j].Size()))
					helperBytes.Add(uint64(len(reports[j].Helper.Enc) + len(reports[j].Helper.Payload) + len(reports[j].PublicShare)))
				}
				done.Add(uint64(len(reports)))
			}
		})
	}
	devices.Wait()
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	rows := uint64(len(r.values))
	r.report.Sent, r.report.acknowledged = rows, rows
	r.report.LeaderBytes, r.report.HelperBytes = sentBytes.Load(), helperBytes.Load()
	return forger.attack(ctx, replayable)
}

// uploadValues makes and uploads the reports of some rows. All must be acknowledged: they are honest.
func (r *run) uploadValues(ctx context.Context, values []int) ([]dap.Report, error) {
	reports := make([]dap.Report, len(values))
	for i, v := range values {
		answer := client.Bucket(uint32(v))
		if r.value != nil {
			answer = r.value(v)
		}
		var err error
		if reports[i], err = r.client.Prepare(answer, r.asked); err != nil {
			return nil, err
		}
	}
	refused, err := r.client.Upload(ctx, reports)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("%d honest reports were refused, the first because of %v", len(refused), refused[0].Error)
	}
	return reports, nil
}

// watchUpload tells how far the devices, and behind them the servers, are until stop is called.
func (r *run) watchUpload(ctx context.Context, done *atomic.Uint64) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	begin, total := time.Now(), uint64(len(r.values))
	go func() {
		defer close(gone)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			n := done.Load()
			p := Progress{Phase: r.phase, Phases: phases, Name: "upload", Counts: []Count{{"devices", n, total}},
				Rate: float64(n) / time.Since(begin).Seconds()}
			if p.Rate > 0 {
				p.Left = time.Duration(float64(total-n) / p.Rate * float64(time.Second))
			}
			// The servers verify while devices still send; a status that cannot be had now is not missed.
			if st, err := r.status.read(ctx); err == nil {
				p.Counts = append(p.Counts, serverCounts(&st.Tasks[0], total)...)
			}
			r.o.Progress(p)
		}
	}()
	return sync.OnceFunc(func() { close(over); <-gone })
}
