package lab

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// BenchOptions say what is measured: leader and helper together, from the upload to both
// having verified.
type BenchOptions struct {
	// VDAF is "count", "histogram", or how the norm of a vector is proved: "pine32" and
	// so on.
	VDAF string
	// Length is the number of buckets of a histogram, 2 to 100,000, or of a vector's
	// entries; count has none.
	Length int
	// Seconds is how long uploads go on, at most; they end earlier where the reports run
	// out. Default 10.
	Seconds int
	// Reports are made before the clock starts. Default 8,000 for each second, as far as
	// 512 MiB hold them.
	Reports int
	// Workers is how many requests are under way at a time. Default GOMAXPROCS.
	Workers int
	// Serve starts an aggregator in a process of its own and returns what stops it and
	// tells its peak resident set in bytes. Required.
	Serve func(role dap.Role, config string) (stop func() (peakRSS int64, err error), err error)
	// Progress as in [Options].
	Progress func(Progress)
}

// Bounds of a benchmark.
const (
	maxBenchSeconds = 3600
	maxBenchLength  = 100_000
	maxBenchBytes   = 512 << 20
	benchEach       = 8000
	benchMaking     = 3 // seconds of making reports for one of sending them
	benchPhases     = 4
)

// WithDefaults fills in what is not said.
func (o BenchOptions) WithDefaults() BenchOptions {
	if o.Seconds == 0 {
		o.Seconds = 10
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o BenchOptions) Validate() error {
	o = o.WithDefaults()
	_, vectorErr := recipe.ParseVectorProof(o.VDAF)
	switch {
	case o.VDAF != "count" && o.VDAF != "histogram" && vectorErr != nil:
		return fmt.Errorf("lab: no benchmark of %q; want count, histogram, pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32", o.VDAF)
	case vectorErr == nil && (o.Length < 1 || o.Length > recipe.MaxElements):
		return fmt.Errorf("lab: a vector of %d entries; want 1 to %d", o.Length, recipe.MaxElements)
	case o.VDAF == "count" && o.Length != 0:
		return errors.New("lab: a count has no length")
	case o.VDAF == "histogram" && (o.Length < 2 || o.Length > maxBenchLength):
		return fmt.Errorf("lab: a histogram of %d buckets; want 2 to %d", o.Length, maxBenchLength)
	case o.Seconds < 1 || o.Seconds > maxBenchSeconds:
		return fmt.Errorf("lab: %d seconds; want 1 to %d", o.Seconds, maxBenchSeconds)
	case o.Reports < 0 || o.Workers < 1 || o.Workers > maxWorkers:
		return errors.New("lab: the number of reports or of workers makes no sense")
	case o.Serve == nil:
		return errors.New("lab: nothing starts the aggregators")
	}
	return nil
}

// A BenchReport is what a benchmark measured. Its JSON keys are only added to.
type BenchReport struct {
	VDAF    string `json:"vdaf"`
	Length  int    `json:"length,omitempty"`
	Reports uint64 `json:"reports"` // uploaded and verified by both aggregators
	// Seconds is from the first upload to the last verification.
	Seconds          float64 `json:"seconds"`
	ReportsPerSecond float64 `json:"reports_per_second"`
	// AckP50 and AckP99 are quantiles of the time to acknowledge one request of
	// ReportsPerRequest reports.
	AckP50            float64 `json:"ack_p50_ms"`
	AckP99            float64 `json:"ack_p99_ms"`
	ReportsPerRequest int     `json:"reports_per_request"`
	// PeakRSS is of leader and helper together, each at its own peak; 10^6 bytes.
	PeakRSS       float64 `json:"peak_rss_mb"`
	LeaderPeakRSS float64 `json:"leader_peak_rss_mb"`
	HelperPeakRSS float64 `json:"helper_peak_rss_mb"`
	BytesEach     uint64  `json:"bytes_per_report"`
	CPUs          int     `json:"cpus"`
	// Exhausted: the reports ran out before the time did.
	Exhausted bool `json:"reports_ran_out"`
}

// Bench measures leader and helper as two processes, with reports made beforehand.
func Bench(ctx context.Context, o BenchOptions) (_ *BenchReport, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addresses, err := deploy.Loopback()
	if err != nil {
		return nil, err
	}
	defer addresses.Close()
	query, answer, err := benchQuery(&o)
	if err != nil {
		return nil, err
	}
	r, err := account.New(account.Options{
		Name: "Benchmark", Query: query, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(),
		BatchMode: dap.TimeInterval, MinBatch: 1000, TimePrecision: 3600,
		Kind: account.GaussianNoise, Epsilon: decimal("1"), Delta: decimal("0.000001"),
	})
	if err != nil {
		return nil, err
	}
	if err := deploy.Create(dir, r, addresses); err != nil {
		return nil, err
	}
	addresses.Close() // the processes open their ports themselves
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.Proxy = o.Workers+4, nil
	defer transport.CloseIdleConnections()
	b := &bench{o: o, http: &http.Client{Transport: transport, Timeout: time.Minute}}

	b.phase(1, "start")
	stops := make([]func() (int64, error), 2)
	for i, p := range []struct {
		role dap.Role
		file string
	}{{dap.RoleHelper, deploy.HelperFile}, {dap.RoleLeader, deploy.LeaderFile}} {
		if stops[i], err = o.Serve(p.role, filepath.Join(dir, p.file)); err != nil {
			if i == 1 {
				_, stopErr := stops[0]()
				err = errors.Join(err, stopErr)
			}
			return nil, err
		}
	}
	rep := &BenchReport{VDAF: o.VDAF, Length: o.Length, CPUs: runtime.NumCPU()}
	err = b.measure(ctx, dir, r, answer, rep)
	helperRSS, err1 := stops[0]()
	leaderRSS, err2 := stops[1]()
	if err = errors.Join(err, err1, err2); err != nil {
		return nil, err
	}
	rep.HelperPeakRSS, rep.LeaderPeakRSS = float64(helperRSS)/1e6, float64(leaderRSS)/1e6
	rep.PeakRSS = rep.HelperPeakRSS + rep.LeaderPeakRSS
	return rep, nil
}

// maxBenchFracBits leaves room for noise and ten thousand reports in every field of
// package pine.
const maxBenchFracBits = 14

func benchQuery(o *BenchOptions) (recipe.Query, func() client.Value, error) {
	if proof, err := recipe.ParseVectorProof(o.VDAF); err == nil {
		frac := min(benchFracBits[proof], maxBenchFracBits)
		if proof == recipe.L2Fixed16 || proof == recipe.L2Fixed32 {
			frac = benchFracBits[proof]
		}
		q, err := recipe.NewVector(uint32(o.Length), 1, uint8(frac), proof)
		vector := slices.Repeat([]float64{1}, o.Length)
		return q, func() client.Value { return client.Reals(vector) }, err
	}
	random := func() uint32 {
		var b [4]byte
		rand.Read(b[:])
		return binary.LittleEndian.Uint32(b[:])
	}
	if o.VDAF == "count" {
		return recipe.Count{}, func() client.Value { return client.Bool(random()&1 == 1) }, nil
	}
	return recipe.Histogram{Length: uint32(o.Length)}, func() client.Value { return client.Bucket(random() % uint32(o.Length)) }, nil
}

type bench struct {
	o    BenchOptions
	http *http.Client
}

func (b *bench) phase(n int, name string, counts ...Count) {
	b.o.Progress(Progress{Phase: n, Phases: benchPhases, Name: name, Counts: counts})
}

func (b *bench) measure(ctx context.Context, dir string, r *recipe.Recipe, answer func() client.Value, rep *BenchReport) error {
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
	config, err := deploy.LoadAggregator(filepath.Join(dir, deploy.LeaderFile), dap.RoleLeader)
	if err != nil {
		return err
	}
	reports, err := b.prepare(ctx, c, answer)
	if err != nil {
		return err
	}
	rep.BytesEach = uint64(reports[0].Size())

	// As many as the leader takes in one request.
	rep.ReportsPerRequest = max(1, min(uploadBatch, (6<<20)/reports[0].Size()))
	requests := slices.Collect(slices.Chunk(reports, rep.ReportsPerRequest))
	var next, sent atomic.Uint64
	var mu sync.Mutex // guards acks and errs
	var acks []time.Duration
	var errs []error
	begin := time.Now()
	end := begin.Add(time.Duration(b.o.Seconds) * time.Second)
	var workers sync.WaitGroup
	for range b.o.Workers {
		workers.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= uint64(len(requests)) {
					return
				}
				asked := time.Now()
				refused, err := c.Upload(ctx, requests[i])
				took := time.Since(asked)
				if err == nil && len(refused) > 0 {
					err = fmt.Errorf("%d reports were refused: %v", len(refused), refused[0].Error)
				}
				mu.Lock()
				acks = append(acks, took)
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				b.phase(3, "upload", Count{"devices", sent.Add(uint64(len(requests[i]))), uint64(len(reports))})
			}
		})
	}
	workers.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	rep.Exhausted = sent.Load() == uint64(len(reports))
	if err := b.drain(ctx, config, sent.Load()); err != nil {
		return err
	}
	took := time.Since(begin)
	slices.Sort(acks)
	quantile := func(q float64) float64 { return acks[int(q*float64(len(acks)-1)+0.5)].Seconds() * 1000 }
	rep.Reports, rep.Seconds = sent.Load(), took.Seconds()
	rep.ReportsPerSecond = float64(rep.Reports) / rep.Seconds
	rep.AckP50, rep.AckP99 = quantile(0.5), quantile(0.99)
	return nil
}

// prepare makes the reports before the clock starts.
func (b *bench) prepare(ctx context.Context, c *client.Client, answer func() client.Value) ([]dap.Report, error) {
	now := time.Now()
	first, err := c.Prepare(answer(), now)
	if err != nil {
		return nil, err
	}
	n, least := b.o.Reports, b.o.Reports
	if n == 0 {
		least = uploadBatch
		n = max(min(benchEach*b.o.Seconds, maxBenchBytes/first.Size()), least)
	}
	// Reports that take the devices long take the servers long, too: fewer of them will do.
	enough := now.Add(time.Duration(b.o.Seconds)*benchMaking*time.Second + 5*time.Second)
	var mu sync.Mutex // guards reports
	var reports []dap.Report
	var next atomic.Int64
	var workers sync.WaitGroup
	failed := make(chan error, runtime.GOMAXPROCS(0))
	for range cap(failed) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n || (i >= least && time.Now().After(enough)) {
					return
				}
				r, err := c.Prepare(answer(), now)
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				reports = append(reports, r)
				mu.Unlock()
				if i%1000 == 0 {
					b.phase(2, "make reports", Count{"devices", uint64(i), uint64(n)})
				}
			}
		})
	}
	workers.Wait()
	select {
	case err := <-failed:
		return nil, err
	default:
		return reports, ctx.Err()
	}
}

// drain waits until both aggregators have verified what was sent.
func (b *bench) drain(ctx context.Context, config *deploy.Aggregator, sent uint64) error {
	reader := statusReader{b.http, "http://" + string(config.Local.Address)}
	ticker := time.NewTicker(every / 10)
	defer ticker.Stop()
	for {
		st, err := reader.read(ctx)
		if err != nil {
			return err
		}
		t := &st.Tasks[0]
		b.phase(4, "verify", Count{"leader", t.Done, sent})
		if t.Counts.Acknowledged >= sent && t.Counts.Waiting == 0 {
			if t.Counts.Aggregated != sent {
				return fmt.Errorf("lab: %d of %d reports were verified", t.Counts.Aggregated, sent)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
