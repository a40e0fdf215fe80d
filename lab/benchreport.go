package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// BenchReportOptions say which report is measured: one vector of bounded norm, from the
// device to both aggregators, on one core.
type BenchReportOptions struct {
	// VDAF is pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32; required.
	VDAF string
	// Dimension is the number of entries, 1 to recipe.MaxElements; required.
	Dimension int
	// FracBits is the precision in binary places, for norm 1; default 15, 19, 24 and 24
	// for the pines, 15 and 31 else.
	FracBits int
	// Projection is how many numbers of a random projection are sent instead of the
	// vector, less than Dimension; 0 for all of it.
	Projection int
	// Reports is how many are made and verified; the median is reported. Default 5.
	Reports int
	// Progress as in [Options].
	Progress func(Progress)
}

var benchFracBits = map[recipe.VectorProof]int{
	recipe.Pine32: 15, recipe.Pine40: 19, recipe.Pine64: 24, recipe.Pine128: 24, recipe.L2Fixed16: 15, recipe.L2Fixed32: 31,
}

// WithDefaults fills in what is not said.
func (o BenchReportOptions) WithDefaults() BenchReportOptions {
	if proof, err := recipe.ParseVectorProof(o.VDAF); err == nil && o.FracBits == 0 {
		o.FracBits = benchFracBits[proof]
	}
	if o.Reports == 0 {
		o.Reports = 5
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Validate says what is wrong, once defaults are filled in.
func (o BenchReportOptions) Validate() error {
	o = o.WithDefaults()
	if _, err := recipe.ParseVectorProof(o.VDAF); err != nil {
		return err
	}
	switch {
	case o.Dimension < 1 || o.Dimension > recipe.MaxElements:
		return fmt.Errorf("lab: %d entries; want 1 to %d", o.Dimension, recipe.MaxElements)
	case o.Projection < 0 || o.Projection > 0 && o.Projection >= o.Dimension:
		return fmt.Errorf("lab: projection of %d entries to %d; want fewer", o.Dimension, o.Projection)
	case o.FracBits < 1 || o.FracBits > 255:
		return fmt.Errorf("lab: %d binary places", o.FracBits)
	case o.Reports < 1 || o.Reports > 1000:
		return fmt.Errorf("lab: %d reports; want 1 to 1,000", o.Reports)
	}
	return nil
}

// A ReportCost is what [BenchReport] measured. Its JSON keys are only added to. Times are
// milliseconds for one report, the median of Reports, with sealing and opening: processor
// time where the system tells it, else by the clock.
type ReportCost struct {
	VDAF      string `json:"vdaf"`
	Dimension int    `json:"dimension"`
	FracBits  int    `json:"frac_bits"`
	Reports   int    `json:"reports"`
	// UploadBytes is the body of DAP's upload request with one report: shares, their
	// HPKE, metadata.
	UploadBytes int `json:"upload_bytes"`
	// Ratio is UploadBytes over 4 bytes an entry.
	Ratio    float64 `json:"upload_over_plaintext"`
	ClientMS float64 `json:"client_ms"`
	LeaderMS float64 `json:"leader_ms"`
	HelperMS float64 `json:"helper_ms"`
	// MostReports is how many reports a sum has room for, without noise.
	MostReports uint64 `json:"most_reports"`
	// Projection is how many numbers are sent for the vector, 0 where it is sent whole;
	// Lost is the error of the mean that comes with it, over the length of the mean.
	Projection int     `json:"projection,omitempty"`
	Lost       float64 `json:"lost_by_projection,omitempty"`
	CPUs       int     `json:"cpus"`
}

// MeasureReport makes reports as a device does, from the vector to the body of the
// upload, and verifies them as leader and helper do, from the sealed share to the
// aggregate share.
func MeasureReport(ctx context.Context, o BenchReportOptions) (*ReportCost, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	b, err := newReportBench(&o)
	if err != nil {
		return nil, err
	}
	if err := b.client.Refresh(ctx); err != nil {
		return nil, err
	}
	out := &ReportCost{VDAF: o.VDAF, Dimension: o.Dimension, FracBits: o.FracBits, Reports: o.Reports, CPUs: runtime.NumCPU()}
	out.MostReports, _ = b.client.Recipe().MostReports()
	forecast, _ := b.client.Recipe().Forecast(1)
	out.Projection, out.Lost = o.Projection, forecast.Lost
	var times [3][]time.Duration
	for i := range o.Reports {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o.Progress(Progress{Phase: 1, Phases: 1, Name: "measure", Counts: []Count{{"reports", uint64(i), uint64(o.Reports)}}})
		took, size, err := b.one()
		if err != nil {
			return nil, err
		}
		for role, t := range took {
			times[role] = append(times[role], t)
		}
		out.UploadBytes = size
	}
	if err := b.check(o.Reports); err != nil {
		return nil, err
	}
	out.Ratio = float64(out.UploadBytes) / (4 * float64(o.Dimension))
	for role, ms := range []*float64{&out.ClientMS, &out.LeaderMS, &out.HelperMS} {
		slices.Sort(times[role])
		*ms = times[role][len(times[role])/2].Seconds() * 1000
	}
	return out, nil
}

// reportBench is a device and the two aggregators' code, without a network between them.
type reportBench struct {
	client *client.Client
	vdaf   vdaf.VDAF
	ctx    []byte // of the VDAF
	key    [vdaf.VerifyKeySize]byte
	keys   [2]*sealed.KeyPair // leader's, helper's
	states [2]vdaf.State
	aggs   [2]*vdaf.AggShare
	vector []float64
}

func newReportBench(o *BenchReportOptions) (*reportBench, error) {
	proof, err := recipe.ParseVectorProof(o.VDAF)
	if err != nil {
		return nil, err
	}
	sent, projection := projected(o.Dimension, o.Projection)
	q, err := recipe.NewVector(uint32(sent), 1, uint8(o.FracBits), proof)
	if err != nil {
		return nil, err
	}
	r, err := account.New(account.Options{
		Name: "Benchmark", Query: q, Projection: projection, Oversized: true, MinBatch: recipe.MinBatchFloor, Leader: "https://leader.example/", Helper: "https://helper.example/",
	})
	if err != nil {
		return nil, err
	}
	recipeBytes, err := r.Append(nil)
	if err != nil {
		return nil, err
	}
	b := &reportBench{vector: make([]float64, o.Dimension)}
	for i := range b.keys {
		if b.keys[i], err = sealed.Generate(uint8(i), sealed.SuiteX25519); err != nil {
			return nil, err
		}
	}
	if b.client, err = client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: recipeBytes, HTTP: keyServer{b.keys}, MaxEpsilon: math.Inf(1)}); err != nil {
		return nil, err
	}
	id, task := b.client.Task()
	if b.vdaf, err = task.VDAF(); err != nil {
		return nil, err
	}
	b.ctx = task.Version.VDAFContext(id)
	rand.Read(b.key[:])
	for i := range b.states {
		b.states[i], b.aggs[i] = b.vdaf.NewState(1), b.vdaf.NewAggShare()
	}
	// As long as the norm allows, so that the device has to clip every vector.
	var seed [8]byte
	for i := range b.vector {
		rand.Read(seed[:])
		b.vector[i] = float64(int64(binary.LittleEndian.Uint64(seed[:]))) / (1 << 63)
	}
	return b, nil
}

// keyServer answers a client that asks for the aggregators' keys.
type keyServer struct{ keys [2]*sealed.KeyPair }

func (s keyServer) Do(r *http.Request) (*http.Response, error) {
	key := s.keys[0]
	if strings.HasPrefix(r.URL.Host, "helper.") {
		key = s.keys[1]
	}
	body, err := dap.HpkeConfigList{dap.NewHpkeConfig(key)}.Append(nil)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        http.Header{"Content-Type": {dap.ContentType(dap.MediaHpkeConfigList)}, "Cache-Control": {"max-age=86400"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

var errBenchRefused = errors.New("lab: the benchmark's own report was refused")

// one takes one report from the device to both aggregate shares, and returns what client,
// leader and helper took.
func (b *reportBench) one() (took [3]time.Duration, size int, err error) {
	watch := newStopwatch()
	report, err := b.client.Prepare(client.Reals(b.vector), time.Now())
	if err != nil {
		return took, 0, err
	}
	body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
	if err != nil {
		return took, 0, err
	}
	took[0] = watch.lap()

	v, n := b.vdaf, b.vdaf.Sizes()
	shares := [][]byte{make([]byte, n.VerifierShare), make([]byte, n.VerifierShare)}
	errs := make([]error, 1)
	for role, sealedShare := range []*dap.HpkeCiphertext{&report.Leader, &report.Helper} {
		watch.lap()
		if errs[0] = b.begin(role, &report, sealedShare, shares[role], errs); errs[0] != nil {
			return took, 0, fmt.Errorf("%w: %w", errBenchRefused, errs[0])
		}
		took[1+role] = watch.lap()
	}
	// The helper combines, both check.
	msgs := make([]byte, n.VerifierMessage)
	v.Combine(b.ctx, shares, msgs, errs)
	v.Check(b.states[1], msgs, errs)
	v.Accumulate(b.states[1], nil, nil, b.aggs[1:], errs)
	took[2] += watch.lap()
	v.Check(b.states[0], msgs, errs)
	v.Accumulate(b.states[0], nil, nil, b.aggs[:1], errs)
	took[1] += watch.lap()
	if errs[0] != nil {
		return took, 0, fmt.Errorf("%w: %w", errBenchRefused, errs[0])
	}
	return took, len(body), nil
}

// begin opens one share and takes the VDAF's first step.
func (b *reportBench) begin(role int, report *dap.Report, from *dap.HpkeCiphertext, share []byte, errs []error) error {
	id, task := b.client.Task()
	info := task.Version.InputShareInfo([]dap.Role{dap.RoleLeader, dap.RoleHelper}[role])
	aad := dap.AppendInputShareAAD(nil, id, task.Bytes(), &report.Metadata, report.PublicShare)
	plain, err := b.keys[role].Open(from.Enc, info, aad, from.Payload)
	if err != nil {
		return err
	}
	input, err := dap.ReadPlaintextInputShare(plain)
	if err != nil {
		return err
	}
	in := vdaf.Reports{Nonces: [][vdaf.NonceSize]byte{report.Metadata.ID}, Public: [][]byte{report.PublicShare}, Inputs: [][]byte{input.Payload}}
	b.vdaf.VerifyInit(b.states[role], &b.key, b.ctx, role, &in, share, errs)
	return errs[0]
}

// check holds the sum to what was sent, so that no speed comes from work left out.
func (b *reportBench) check(reports int) error {
	sum, err := b.vdaf.Unshard(b.aggs[:])
	if err != nil {
		return err
	}
	r := b.client.Recipe()
	q, _ := r.Vector()
	vector := b.vector
	if r.Projection != nil {
		p, err := r.Projection.Map(q)
		if err != nil {
			return err
		}
		vector = p.Apply(vector)
	}
	length := 0.0
	for _, x := range vector {
		length += x * x
	}
	scale := float64(reports) * min(1, q.Norm()/math.Sqrt(length))
	off := 0.0
	for i, x := range sum {
		d := q.Real(x) - vector[i]*scale
		off += d * d
	}
	// Rounding is off by at most a unit an entry; so is the norm that is clipped to, of
	// which there are d/4 + 4B in the square.
	if limit := float64(reports) * (1.5*math.Sqrt(float64(q.Dimension)) + 8) * q.Unit(); math.Sqrt(off) > limit+0.01*scale*math.Sqrt(length) {
		return fmt.Errorf("lab: the sum of the benchmark's reports is off by %g, want at most %g", math.Sqrt(off), limit)
	}
	return nil
}

// stopwatch measures what this process computes.
type stopwatch struct{ last time.Duration }

func newStopwatch() *stopwatch { return &stopwatch{processorTime()} }

// lap is the time since the last one.
func (w *stopwatch) lap() time.Duration {
	now := processorTime()
	d := now - w.last
	w.last = now
	return d
}
