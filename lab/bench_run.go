package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

const (
	// benchRound is a round of the recipe. All reports are of the last one that is over,
	// so that it can be collected.
	benchRound = time.Hour
	// benchWindow is how many reports one of the windows has.
	benchWindow = 100_000
	// benchAhead is how many reports may wait to be verified where more are made
	// meanwhile: a long run is to show what many reports stored cost, not a long backlog.
	benchAhead = 100_000
	// benchAcks bounds the acknowledgements that are remembered.
	benchAcks = 100_000
)

// A bench is one benchmark under way.
type bench struct {
	o       BenchOptions
	dir     string
	answer  func() client.Value
	http    *http.Client
	parties [2]*benchParty // helper and leader, in the order in which they start
	rep     *BenchReport

	sent, done atomic.Uint64 // reports acknowledged, and verified by the leader

	mu   sync.Mutex // guards acks
	acks []time.Duration
}

func (b *bench) phase(n int, name string, counts ...Count) {
	b.o.Progress(Progress{Phase: n, Phases: benchPhases, Name: name, Counts: counts})
}

// start starts both aggregators, and tells took how long each needed to answer.
func (b *bench) start(took func(role dap.Role, d time.Duration)) error {
	for _, p := range b.parties {
		begin := time.Now()
		if err := p.start(b.o.Serve); err != nil {
			return errors.Join(err, b.stop())
		}
		if took != nil {
			took(p.role, time.Since(begin))
		}
	}
	return nil
}

// stop stops those that run, the leader first.
func (b *bench) stop() (err error) {
	for _, p := range slices.Backward(b.parties[:]) {
		err = errors.Join(err, p.stop())
	}
	b.rep.HelperPeakRSS, b.rep.LeaderPeakRSS = float64(b.parties[0].peak)/1e6, float64(b.parties[1].peak)/1e6
	b.rep.PeakRSS = b.rep.HelperPeakRSS + b.rep.LeaderPeakRSS
	return err
}

func (b *bench) measure(ctx context.Context, r *recipe.Recipe) error {
	recipeBytes, err := r.Append(nil)
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: recipeBytes, HTTP: b.http, MaxRequest: 8 << 20})
	if err != nil {
		return err
	}
	if err := c.Refresh(ctx); err != nil {
		return err
	}
	at := time.Now().Truncate(benchRound).Add(-benchRound)
	next, total, err := b.reports(ctx, c, at)
	if err != nil {
		return err
	}
	begin := time.Now()
	before, err := b.use(ctx)
	if err != nil {
		return err
	}
	group, inside := errgroup.WithContext(ctx)
	uploaded := make(chan struct{})
	group.Go(func() error { defer close(uploaded); return b.upload(inside, c, next, total) })
	group.Go(func() error { return b.watch(inside, uploaded, begin, before) })
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := b.use(ctx)
	if err != nil {
		return err
	}
	rep := b.rep
	rep.Exhausted = b.sent.Load() == total
	slices.Sort(b.acks)
	quantile := func(q float64) float64 { return b.acks[int(q*float64(len(b.acks)-1)+0.5)].Seconds() * 1000 }
	rep.Reports, rep.Seconds = b.sent.Load(), took.Seconds()
	rep.ReportsPerSecond = float64(rep.Reports) / rep.Seconds
	rep.AckP50, rep.AckP99 = quantile(0.5), quantile(0.99)
	rep.count(before, after)
	return b.collect(ctx, at)
}

// reports makes the reports, or as many as memory holds, and returns what gives out the
// next request's, none after the last; and how many there will be.
func (b *bench) reports(ctx context.Context, c *client.Client, at time.Time) (next func() ([]dap.Report, error), total uint64, err error) {
	first, err := c.Prepare(b.answer(), at)
	if err != nil {
		return nil, 0, err
	}
	size := first.Size()
	b.rep.BytesEach = uint64(size)
	// As many as the leader takes in one request.
	each := max(1, min(uploadBatch, (6<<20)/size))
	b.rep.ReportsPerRequest = each
	if held := maxBenchBytes / size; b.o.Reports <= held {
		reports, err := b.prepare(ctx, c, at, held)
		if err != nil {
			return nil, 0, err
		}
		requests := slices.Collect(slices.Chunk(reports, each))
		var given atomic.Int64
		return func() ([]dap.Report, error) {
			if i := given.Add(1) - 1; i < int64(len(requests)) {
				return requests[i], nil
			}
			return nil, nil
		}, uint64(len(reports)), nil
	}
	if b.o.Rate > 0 {
		return nil, 0, fmt.Errorf("lab: %d reports; at a rate all are made before, at most %d", b.o.Reports, maxBenchBytes/size)
	}
	b.rep.MadeMeanwhile = true
	var given atomic.Int64
	return func() ([]dap.Report, error) {
		n := min(int64(each), int64(b.o.Reports)-given.Add(int64(each))+int64(each))
		var reports []dap.Report
		for range n {
			r, err := c.Prepare(b.answer(), at)
			if err != nil {
				return nil, err
			}
			reports = append(reports, r)
		}
		return reports, nil
	}, uint64(b.o.Reports), nil
}

// prepare makes the reports before the clock starts, held at most.
func (b *bench) prepare(ctx context.Context, c *client.Client, at time.Time, held int) ([]dap.Report, error) {
	n, least := b.o.Reports, b.o.Reports
	if n == 0 {
		least = uploadBatch
		each := benchEach
		if b.o.Rate > 0 {
			each = b.o.Rate
		}
		n = max(min(each*b.o.Seconds, held), least)
	}
	// Reports that take the devices long take the servers long, too: fewer of them will do.
	enough := time.Now().Add(time.Duration(b.o.Seconds)*benchMaking*time.Second + 5*time.Second)
	var mu sync.Mutex // guards reports
	var reports []dap.Report
	var next atomic.Int64
	group, inside := errgroup.WithContext(ctx)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() error {
			for inside.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n || (i >= least && time.Now().After(enough)) {
					return nil
				}
				r, err := c.Prepare(b.answer(), at)
				if err != nil {
					return err
				}
				mu.Lock()
				reports = append(reports, r)
				mu.Unlock()
				if i%1000 == 0 {
					b.phase(2, "make reports", Count{"devices", uint64(i), uint64(n)})
				}
			}
			return inside.Err()
		})
	}
	return reports, group.Wait()
}

// upload sends requests until there are no more, or the time is over.
func (b *bench) upload(ctx context.Context, c *client.Client, next func() ([]dap.Report, error), total uint64) error {
	begin := time.Now()
	end := begin.Add(time.Duration(b.o.Seconds) * time.Second)
	var turn atomic.Int64 // requests that are due, with a rate
	group, inside := errgroup.WithContext(ctx)
	for range b.o.Workers {
		group.Go(func() error {
			for time.Now().Before(end) {
				if err := b.room(inside); err != nil {
					return err
				}
				reports, err := next()
				if err != nil || len(reports) == 0 {
					return err
				}
				asked := time.Now()
				if b.o.Rate > 0 {
					// One that is sent late, since too many are under way, has waited since.
					ahead := float64(turn.Add(1)-1) * float64(b.rep.ReportsPerRequest) / float64(b.o.Rate)
					asked = begin.Add(time.Duration(ahead * float64(time.Second)))
					if !asked.Before(end) {
						return nil
					}
					if err := sleepUntil(inside, asked); err != nil {
						return err
					}
				}
				refused, err := c.Upload(inside, reports)
				took := time.Since(asked)
				if err == nil && len(refused) > 0 {
					err = fmt.Errorf("%d reports were refused: %v", len(refused), refused[0].Error)
				}
				if err != nil {
					return err
				}
				b.mu.Lock()
				if len(b.acks) < benchAcks {
					b.acks = append(b.acks, took)
				}
				b.mu.Unlock()
				b.phase(3, "upload", Count{"devices", b.sent.Add(uint64(len(reports))), total}, Count{"leader", b.done.Load(), total})
			}
			return nil
		})
	}
	return group.Wait()
}

// sleepUntil returns at a time, or at once where it is over.
func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// room waits, where reports are made meanwhile, until few of them wait to be verified.
func (b *bench) room(ctx context.Context) error {
	if !b.rep.MadeMeanwhile {
		return nil
	}
	ticker := time.NewTicker(every / 10)
	defer ticker.Stop()
	for b.sent.Load()-min(b.sent.Load(), b.done.Load()) > benchAhead {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}

// watch notes what each window took, until both aggregators have verified all that was
// uploaded.
func (b *bench) watch(ctx context.Context, uploaded <-chan struct{}, then time.Time, before [2]use) error {
	config, err := deploy.LoadAggregator(b.parties[1].configs[0], dap.RoleLeader)
	if err != nil {
		return err
	}
	reader := statusReader{b.http, "http://" + string(config.Local.Address)}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var counted uint64 // reports in the windows so far
	over := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-uploaded:
			uploaded, over = nil, true
			ticker.Reset(every / 4) // the end is to be seen in time
		case <-ticker.C:
		}
		st, err := reader.read(ctx)
		if err != nil {
			return err
		}
		t := &st.Tasks[0]
		b.done.Store(t.Done)
		if over {
			b.phase(4, "verify", Count{"leader", t.Done, b.sent.Load()})
		}
		if n := t.Counts.Aggregated - counted; n >= benchWindow {
			now, after := time.Now(), before
			if after, err = b.use(ctx); err != nil {
				return err
			}
			w := BenchWindow{Reports: t.Counts.Aggregated, ReportsPerSecond: float64(n) / now.Sub(then).Seconds()}
			for i, p := range b.parties {
				w.CPU.set(p.role, after[i].cpu-before[i].cpu, n, 1e6)
				w.Written.set(p.role, after[i].sum()-before[i].sum(), n, 1)
			}
			b.rep.Windows = append(b.rep.Windows, w)
			counted, then, before = t.Counts.Aggregated, now, after
		}
		if sent := b.sent.Load(); over && t.Counts.Acknowledged >= sent && t.Counts.Waiting == 0 {
			if t.Counts.Aggregated != sent {
				return fmt.Errorf("lab: %d of %d reports were verified", t.Counts.Aggregated, sent)
			}
			return nil
		}
	}
}

// collect asks for all reports at once.
func (b *bench) collect(ctx context.Context, at time.Time) error {
	if b.rep.Reports < benchMinBatch {
		return nil
	}
	b.phase(5, "collect")
	config, err := deploy.LoadCollector(filepath.Join(b.dir, deploy.CollectorFile))
	if err != nil {
		return err
	}
	session, err := config.Open(collector.Options{HTTP: b.http, Poll: 10 * time.Millisecond, MaxPoll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	begin := time.Now()
	result, err := session.Collect(ctx, at, at.Add(benchRound))
	if err != nil {
		return err
	}
	b.rep.Collect = time.Since(begin).Seconds()
	if result.ReportCount != b.rep.Reports {
		return fmt.Errorf("lab: the result has %d reports of %d", result.ReportCount, b.rep.Reports)
	}
	return nil
}

// examine looks at the stores of the two, which are stopped: how long an audit takes,
// which must find nothing, and how long a start.
func (b *bench) examine(ctx context.Context) error {
	b.phase(6, "examine")
	for _, p := range b.parties {
		var stored float64
		for _, file := range p.configs {
			config, err := deploy.LoadAggregator(file, p.role)
			if err != nil {
				return err
			}
			size, err := directorySize(string(config.Data))
			if err != nil {
				return fmt.Errorf("lab: %w", err)
			}
			stored += float64(size)
		}
		if p.rows != nil {
			rows, err := p.rows.size()
			if err != nil {
				return err
			}
			stored += rows
		}
		b.rep.StoreMB.set(p.role, stored, 1, 1e-6)
		config, err := deploy.LoadAggregator(p.configs[0], p.role)
		if err != nil {
			return err
		}
		begin := time.Now()
		faults, err := config.Audit(ctx)
		if err != nil || len(faults) > 0 {
			return fmt.Errorf("lab: the %v's store: %q, %w", p.role, faults, err)
		}
		b.rep.Doctor.set(p.role, time.Since(begin).Seconds(), 1, 1)
	}
	err := b.start(func(role dap.Role, d time.Duration) { b.rep.Start.set(role, d.Seconds(), 1, 1) })
	if err != nil {
		return err
	}
	return b.stop()
}
