package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

const (
	// inFlight is how many devices wait for an answer at one time. Relay and gateway keep as many connections as that.
	inFlight = 240
	// frontWindow is the gateway's window in a lab.
	frontWindow = 20 * time.Millisecond
	// durableDevices keep the ledger of a real device, a file that is on the disk before a coin is tossed. For all of them
	// that would be some 60,000 directories and as many waits for the disk; the others keep theirs in memory.
	durableDevices = 16
	devicesDir     = "devices"
	// ledgerRoom is by how much a device's budget is above what the recipe takes in all.
	ledgerRoom = 1.01
)

// manifest is what all devices were given.
func (r *run) manifest() (ohttp.Source, error) {
	b, err := os.ReadFile(filepath.Join(r.dir, deploy.ManifestFile))
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	// One memory for all, in the place of each device's: what it holds is the same.
	return client.NewManifests(client.ManifestsOptions{Recipe: r.recipe, Anchors: r.anchors, Source: ohttp.Pin(m), Memory: client.Forgetful()})
}

// relayed makes the devices' way through the relay; they share connections.
func (r *run) relayed() (err error) {
	source, err := r.manifest()
	if err != nil {
		return err
	}
	r.via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: source, Relay: r.http.Transport})
	return err
}

// A survey is the devices of a population at work.
type survey struct {
	run     *run
	plan    *participate.Plan
	asked   [][]int
	budget  participate.LedgerOptions
	cpu     chan struct{} // held while a device computes
	tally   participate.Tally
	decided atomic.Uint64
	sent    atomic.Uint64 // units that the gateway took
	busy    atomic.Int64  // nanoseconds of deciding
}

// survey plays the devices: each pays, tosses its coins and sends what they say through the relay.
func (r *run) survey(ctx context.Context) error {
	if err := r.client.Refresh(ctx); err != nil {
		return err
	}
	like, err := r.client.Prepare(client.NoValue(), r.asked)
	if r.o.KnownSample {
		like, err = r.client.Prepare(r.o.question().value(-1), r.asked)
	}
	if err != nil {
		return err
	}
	s := &survey{run: r, asked: r.o.asked(), cpu: make(chan struct{}, r.o.Workers)}
	s.budget = participate.LedgerOptions{MaxEpsilon: r.report.Epsilon * ledgerRoom, MaxDelta: min(1, r.report.Delta*ledgerRoom)}
	if s.plan, err = participate.NewPlan(participate.PlanOptions{Client: r.client}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := s.watch(ctx)
	defer stop()
	var next atomic.Int64
	var devices sync.WaitGroup
	for range inFlight {
		devices.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= len(s.asked) {
					return
				}
				if err := s.device(ctx, i); err != nil {
					cancel(fmt.Errorf("device %d: %w", i, err))
				}
			}
		})
	}
	devices.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t, rep := &s.tally, r.report
	rep.Dummies, rep.Answers, rep.NoOps = t.Dummies(), t.Reports(), t.NoOps()
	rep.Sent = rep.Dummies + rep.Answers
	rep.Decisions = s.decided.Load()
	r.report.acknowledged = rep.Sent
	rep.MicrosecondsEach = float64(s.busy.Load()) / 1e3 / float64(max(1, rep.Decisions))
	rep.LeaderBytes = uint64(like.Size()) * rep.Sent
	rep.HelperBytes = uint64(len(like.Helper.Enc)+len(like.Helper.Payload)+len(like.PublicShare)) * rep.Sent
	return r.readFront(ctx)
}

// device plays one device in all the rounds that it is asked in.
func (s *survey) device(ctx context.Context, i int) (err error) {
	if len(s.asked[i]) == 0 {
		return nil
	}
	ledger, closeLedger, err := s.ledger(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	d := &participate.Device{Ledger: ledger}
	answer := s.run.o.answer
	if answer == nil {
		value := s.run.o.question().value(s.run.values[i])
		answer = func(int, int) client.Value { return value }
	}
	for _, round := range s.asked[i] {
		s.cpu <- struct{}{}
		begin := time.Now()
		decision, err := d.Decide(ctx, s.plan, answer(i, round), s.run.time(round))
		s.busy.Add(int64(time.Since(begin)))
		<-s.cpu
		if err != nil {
			return err
		}
		s.tally.Add(decision)
		s.decided.Add(1)
		if !decision.Uploads() {
			continue
		}
		if err := decision.Send(ctx); err != nil {
			return err
		}
		s.sent.Add(1)
	}
	return nil
}

// ledger opens the account of a device.
func (s *survey) ledger(i int) (*participate.Ledger, func() error, error) {
	if i >= durableDevices {
		l, err := participate.MemoryLedger(s.budget)
		return l, func() error { return nil }, err
	}
	fsys, err := disk.OS(filepath.Join(s.run.dir, devicesDir, strconv.Itoa(i)))
	if err != nil {
		return nil, nil, err
	}
	l, err := participate.OpenLedger(fsys, s.budget)
	if err != nil {
		return nil, nil, errors.Join(err, fsys.Close())
	}
	return l, func() error { return errors.Join(l.Close(), fsys.Close()) }, nil
}

// time is when the reports of a round are made: each round has a unit of time of its own.
func (r *run) time(round int) time.Time {
	return r.asked.Add(-time.Duration(r.o.Rounds-1-round) * r.o.Precision)
}

// watch tells how far devices, relay and servers are until stop is called.
func (s *survey) watch(ctx context.Context) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	begin, total := time.Now(), uint64(0)
	for _, rounds := range s.asked {
		total += uint64(len(rounds))
	}
	r := s.run
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
			n, sent := s.decided.Load(), s.sent.Load()
			p := Progress{Phase: r.phase, Phases: phases, Name: "upload", Rate: float64(n) / time.Since(begin).Seconds(),
				Counts: []Count{{"devices", n, total}, {"answered", sent, s.tally.Reports() + s.tally.Dummies() + s.tally.NoOps()}}}
			if p.Rate > 0 {
				p.Left = time.Duration(float64(total-n) / p.Rate * float64(time.Second))
			}
			if st, err := r.status.read(ctx); err == nil {
				p.Counts = append(p.Counts, serverCounts(&st.Tasks[0], s.tally.Reports()+s.tally.Dummies())...)
			}
			r.o.Progress(p)
		}
	}()
	return sync.OnceFunc(func() { close(over); <-gone })
}

// readFront waits until the gateway has passed on all that it holds, and takes down what
// relay and gateway counted.
func (r *run) readFront(ctx context.Context) error {
	var ahead relay.Status
	var behind gateway.Status
	ticker := time.NewTicker(frontWindow)
	defer ticker.Stop()
	for {
		if err := r.readStatus(ctx, r.front.GatewayLocal.Addr().String(), &behind); err != nil {
			return err
		}
		if behind.Held == 0 {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := r.readStatus(ctx, r.front.RelayLocal.Addr().String(), &ahead); err != nil {
		return err
	}
	r.report.forwarded, r.report.joined = ahead.Forwarded, behind.Requests
	// A cover that was sent again after a late answer is opened and dropped again.
	if behind.Passed != r.report.Sent || behind.Covers < r.report.NoOps || len(behind.Verdicts)+len(behind.Lost) > 0 {
		return fmt.Errorf("the gateway passed on %d reports and dropped %d no-ops; devices sent %d and %d; of others %v, %v", behind.Passed,
			behind.Covers, r.report.Sent, r.report.NoOps, behind.Verdicts, behind.Lost)
	}
	return nil
}

func (r *run) readStatus(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/statusz", nil)
	if err != nil {
		return err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read status: HTTP status %d", resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(into)
}

// frontParts are relay and gateway as they start from their files.
func (r *run) frontParts(log *slog.Logger) ([]service.Part, error) {
	behind, err := deploy.LoadGateway(filepath.Join(r.dir, deploy.GatewayFile))
	if err != nil {
		return nil, err
	}
	ahead, err := deploy.LoadRelay(filepath.Join(r.dir, deploy.RelayFile))
	if err != nil {
		return nil, err
	}
	parts, err := ahead.Parts(log, deploy.Listeners{Public: r.front.Relay, Local: r.front.RelayLocal})
	if err != nil {
		return nil, err
	}
	return append(behind.Parts(log, deploy.Listeners{Public: r.front.Gateway, Local: r.front.GatewayLocal}), parts...), nil
}
