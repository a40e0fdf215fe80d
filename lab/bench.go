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
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// BenchOptions say what is measured: leader and helper together, from the upload to both
// having verified, and what their stores are like then.
type BenchOptions struct {
	// VDAF is "count", "histogram", or how the norm of a vector is proved: "pine32" and
	// so on.
	VDAF string
	// Length is the number of buckets of a histogram, 2 to 100,000, or of a vector's
	// entries; count has none.
	Length int
	// Seconds is how long uploads go on, at most; they end earlier where the reports run
	// out. Default 10; with Reports as long as these take.
	Seconds int
	// Reports are made before the clock starts, as far as 512 MiB hold them; more than
	// these are made while others are verified. Default 8,000 for each second, and no more
	// than memory holds.
	Reports int
	// Workers is how many requests are under way at a time. Default GOMAXPROCS, or Replicas
	// where these are more; with a Rate 64.
	Workers int
	// Rate is how many reports are uploaded a second, whatever the leader makes of them;
	// acknowledgements are then timed from when each request was due. Default 0, as fast as
	// they are acknowledged.
	Rate int
	// Replicas is how many processes each aggregator has, with one database; more than one
	// need [Postgres]. Default 1.
	Replicas int
	// Engine is where the aggregators keep all. Default [Embedded].
	Engine Engine
	// Objects is a file with the section [database.objects] of a leader's configuration, its
	// paths absolute: where uploads of 256 KiB or more lie. It needs [Postgres]. Default
	// none: all uploads are rows.
	Objects string
	// Serve starts an aggregator in a process of its own. Required.
	Serve func(role dap.Role, config string) (*Child, error)
	// Progress as in [Options].
	Progress func(Progress)
}

// An Engine is what the aggregators of a benchmark keep all in.
type Engine string

// The engines.
const (
	// Embedded is SQLite and files, in the aggregator's own directory.
	Embedded Engine = "embedded"
	// Postgres is a schema of PostgreSQL, in a server for each.
	Postgres Engine = "postgres"
)

// A Child is an aggregator in a process of its own, which has started.
type Child struct {
	PID int
	// Stop ends it in order and tells its peak resident set in bytes.
	Stop func() (peakRSS int64, err error)
}

// Bounds of a benchmark.
const (
	maxBenchSeconds = 24 * 3600
	maxBenchReports = 1 << 30
	maxBenchLength  = 100_000
	maxBenchBytes   = 512 << 20
	benchEach       = 8000
	benchMaking     = 3 // seconds of making reports for one of sending them
	benchPhases     = 6
	benchMinBatch   = 1000
	benchInFlight   = 64 // requests at a time, with a rate
	maxReplicas     = 16
)

// WithDefaults fills in what is not said.
func (o BenchOptions) WithDefaults() BenchOptions {
	if o.Seconds == 0 {
		if o.Seconds = 10; o.Reports > 0 {
			o.Seconds = maxBenchSeconds
		}
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.Workers == 0 {
		o.Workers = max(runtime.GOMAXPROCS(0), o.Replicas)
		if o.Rate > 0 {
			o.Workers = benchInFlight
		}
	}
	if o.Engine == "" {
		o.Engine = Embedded
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
	case o.Reports < 0 || o.Reports > maxBenchReports:
		return fmt.Errorf("lab: %d reports; want 1 to %d", o.Reports, maxBenchReports)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("lab: %d workers; want 1 to %d", o.Workers, maxWorkers)
	case o.Engine != Embedded && o.Engine != Postgres:
		return fmt.Errorf("lab: no engine %q; want embedded or postgres", o.Engine)
	case o.Rate < 0 || o.Rate > maxBenchReports:
		return fmt.Errorf("lab: %d reports a second; want 0 to %d", o.Rate, maxBenchReports)
	case o.Replicas < 1 || o.Replicas > maxReplicas:
		return fmt.Errorf("lab: %d replicas; want 1 to %d", o.Replicas, maxReplicas)
	case o.Replicas > 1 && o.Engine != Postgres:
		return errors.New("lab: replicas share a database: they need the engine postgres")
	case o.Objects != "" && o.Engine != Postgres:
		return errors.New("lab: uploads lie in object storage with the engine postgres alone")
	case o.Serve == nil:
		return errors.New("lab: nothing starts the aggregators")
	}
	return nil
}

// ByRole is one figure of each aggregator.
type ByRole struct {
	Leader float64 `json:"leader"`
	Helper float64 `json:"helper"`
}

// set notes the figure of a role: x for each of n, in units of which one has scale.
func (b *ByRole) set(role dap.Role, x float64, n uint64, scale float64) {
	x *= scale / float64(n)
	if role == dap.RoleLeader {
		b.Leader = x
	} else {
		b.Helper = x
	}
}

// A BenchReport is what a benchmark measured. Its JSON keys are only added to.
type BenchReport struct {
	VDAF   string `json:"vdaf"`
	Length int    `json:"length,omitempty"`
	Engine Engine `json:"engine"`
	// Replicas is how many processes each aggregator has; all figures are of them together.
	Replicas int `json:"replicas"`
	// Rate is how many reports a second were due; left out where they came as fast as they
	// were acknowledged.
	Rate    int    `json:"rate,omitempty"`
	Reports uint64 `json:"reports"` // uploaded and verified by both aggregators
	// Seconds is from the first upload to the last verification.
	Seconds          float64 `json:"seconds"`
	ReportsPerSecond float64 `json:"reports_per_second"`
	// AckP50 and AckP99 are quantiles of the time to acknowledge one request of
	// ReportsPerRequest reports, of 100,000 requests at most; with a rate from when the
	// request was due.
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
	// MadeMeanwhile: reports were made while others were uploaded and verified, on the
	// same processors.
	MadeMeanwhile bool `json:"reports_made_meanwhile"`

	// CPU is the processor time of each aggregator's process, from the first upload to
	// the last verification, garbage collection and the kernel included, and with
	// PostgreSQL that of its server.
	CPU ByRole `json:"cpu_us_per_report"`
	// Written are the bytes that each aggregator handed to its files in that time, all
	// kinds of files together, the database's log included; WrittenBy has them by kind.
	// With PostgreSQL they are its write-ahead log, which its tables follow later.
	Written   ByRole                        `json:"bytes_written_per_report"`
	WrittenBy map[string]map[string]float64 `json:"bytes_written_by_file"`
	// Disk are the bytes of pages that the system had to write for each process, whole
	// pages of 4 KiB; left out where the system does not say.
	Disk *ByRole `json:"disk_bytes_per_report,omitempty"`
	// Windows are what each 100,000 reports took, in their order.
	Windows []BenchWindow `json:"windows"`

	// Collect is how long it takes from the question about all reports to the opened
	// answer, 0 where there are fewer than a batch needs; Start from the start of a
	// process to its first answer, with all that is stored; Doctor the audit of the
	// stopped store. All in seconds.
	Collect float64 `json:"collect_seconds"`
	Start   ByRole  `json:"start_seconds"`
	Doctor  ByRole  `json:"doctor_seconds"`
	// StoreMB is what each aggregator's directory and database have in the end, 10^6 bytes.
	StoreMB ByRole `json:"store_mb"`
}

// A BenchWindow is a part of a run.
type BenchWindow struct {
	// Reports are those verified so far, at its end.
	Reports uint64 `json:"reports"`
	// ReportsPerSecond, CPU and Written are of the window alone.
	ReportsPerSecond float64 `json:"reports_per_second"`
	CPU              ByRole  `json:"cpu_us_per_report"`
	Written          ByRole  `json:"bytes_written_per_report"`
}

// Bench measures leader and helper as two processes.
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
		BatchMode: dap.TimeInterval, MinBatch: benchMinBatch, TimePrecision: dap.TimePrecision(benchRound / time.Second),
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
	b := &bench{o: o, dir: dir, answer: answer, http: &http.Client{Transport: transport, Timeout: time.Minute},
		rep: &BenchReport{VDAF: o.VDAF, Length: o.Length, Engine: o.Engine, Replicas: o.Replicas, Rate: o.Rate, CPUs: runtime.NumCPU()}}
	for i, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		b.parties[i] = &benchParty{role: role, configs: []string{filepath.Join(dir, role.String()+".toml")}}
	}

	b.phase(1, "start")
	if o.Engine == Postgres {
		for _, p := range b.parties {
			if p.rows, err = newBenchDatabase(dir, p, o.Objects); err != nil {
				return nil, err
			}
			defer p.rows.end()
		}
	}
	if o.Replicas > 1 {
		for _, p := range b.parties {
			if err := p.replicate(o.Replicas); err != nil {
				return nil, err
			}
			defer p.front.Close()
		}
	}
	if err := b.start(nil); err != nil {
		return nil, err
	}
	if err := errors.Join(b.measure(ctx, r), b.stop()); err != nil {
		return nil, err
	}
	if err := b.examine(ctx); err != nil {
		return nil, err
	}
	return b.rep, nil
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
