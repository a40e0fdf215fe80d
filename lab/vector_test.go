package lab

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
)

func TestFeatures(t *testing.T) {
	const devices, dim = 300, 400
	f, err := newFeatures(devices, dim)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newFeatures(devices, dim)
	if err != nil {
		t.Fatal(err)
	}
	var distinct []float64
	for i := range devices {
		x := f.of(i)
		norm := 0.0
		for _, v := range x {
			norm += v * v
		}
		if norm = math.Sqrt(norm); len(x) != dim || norm > 1+1e-12 || norm < 0.1 {
			t.Fatalf("vector %d: %d entries of norm %v", i, len(x), norm)
		}
		if y := again.of(i); y[0] != x[0] || y[dim-1] != x[dim-1] {
			t.Fatalf("vector %d is made anew each time", i)
		}
		distinct = append(distinct, x[0])
	}
	first := 0
	for _, x := range distinct {
		if x == distinct[0] {
			first++
		}
	}
	if first > devices/10 {
		t.Errorf("%d of %d devices have one vector", first, devices)
	}
}

// The mean of real vectors comes through the real services, with the noise that was
// forecast and nothing else.
func TestRunVectors(t *testing.T) {
	for _, o := range []VectorOptions{
		{Shape: Shape{Devices: 100, Dimension: 200}},
		{Shape: Shape{Devices: 100, Dimension: 100}, Proof: recipe.L2Fixed16, Half: true},
		{Shape: Shape{Devices: 100, Dimension: 600}, Projection: 200},
		{Shape: Shape{Devices: 100, Dimension: 200}, Device: true},
		{Shape: Shape{Devices: 100, Dimension: 600}, Projection: 200, Device: true},
	} {
		o.Out = t.TempDir()
		r, err := RunVectors(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		if r.Sent != 100 || r.MeanNorm < 0.3 || r.MeanNorm > 1 || (r.BothHonest == nil) != (o.Half || o.Device) || (r.OneHonest == nil) == o.Half {
			t.Errorf("%+v", r)
		}
		if o.Device {
			if p := r.Proved; p == nil || r.Alone == nil || r.HalfHonest == nil || !(*r.HalfHonest > r.Epsilon) || r.Influence != p.Ratio/100 || p.Ratio <= 1 {
				t.Errorf("%+v", r)
			}
		} else if r.Influence != 0.01 || r.Proved != nil {
			t.Errorf("%+v", r)
		}
		var text strings.Builder
		if err := r.WriteText(&text, 100); err != nil || !strings.Contains(text.String(), "The mean of 100 vectors") {
			t.Errorf("%v\n%s", err, &text)
		}
		b, err := os.ReadFile(r.Table)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
		if err != nil || len(rows) != r.Dimension+1 || len(rows[0]) != 4 {
			t.Errorf("the table has %d rows, %v", len(rows), err)
		}
		// What no noise explains is told.
		for _, spoil := range []func(*VectorReport){
			// Twice as much of 100 entries passes once in 10^4 runs, as their noise may be small.
			func(r *VectorReport) { r.Error, r.SentError = 3*r.Error, 3*r.SentError }, func(r *VectorReport) { r.Error = 0 }, func(r *VectorReport) { r.Accepted-- },
			func(r *VectorReport) { r.Rejected = map[string]uint64{"x": 1} }, func(r *VectorReport) { r.Error = math.NaN() },
		} {
			bad := *r
			spoil(&bad)
			if bad.Check() == nil {
				t.Errorf("passed: %+v", bad)
			}
		}
	}
}

func TestVectorOptionsRefuse(t *testing.T) {
	for _, o := range []VectorOptions{
		{Malicious: 1, Projection: 100}, {Malicious: -1}, {Malicious: 1001}, {Device: true, Half: true}, {Device: true, Proof: recipe.L2Fixed16}, {Malicious: 1, Proof: recipe.L2Fixed32},
		{Shape: Shape{Devices: 99}}, {Shape: Shape{Devices: 2020}}, {Shape: Shape{Dimension: 3}}, {Shape: Shape{Dimension: maxVectorDim + 2}}, {FracBits: 32}, {FracBits: -1}, {Frame: Frame{Workers: -1}},
		{Shape: Shape{Dimension: 200}, Projection: 200}, {Projection: 63}, {Projection: -1},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v", o)
		}
	}
	o := VectorOptions{Proof: recipe.L2Fixed32}.WithDefaults()
	if err := o.Validate(); err != nil || o.FracBits != 31 || o.Devices != 2000 || o.Dimension != 10_000 {
		t.Errorf("%+v, %v", o, err)
	}
}

// k attackers move the mean by k times the proved bound over the number of reports and no
// further, whoever adds the noise (paper 000, section 4.7), and none of their reports
// over the bound is counted. Noise moves an entry by 6 standard errors once in 5*10^8
// runs.
func TestVectorAttackers(t *testing.T) {
	for _, o := range []VectorOptions{
		{Shape: Shape{Devices: 100, Dimension: 50}, Malicious: 10}, {Shape: Shape{Devices: 100, Dimension: 50}, Malicious: 10, Device: true, Proof: recipe.Pine64},
	} {
		o.Out = t.TempDir()
		r, err := RunVectors(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		norm := 1.
		if o.Device {
			norm = r.Proved.Ratio
		}
		if r.Accepted != 110 || r.Sent != 120 || math.Abs(r.MovedAtMost-10*norm/110) > 1e-12 || math.Abs(r.Moved-r.MovedAtMost) > 6*r.Stderr {
			t.Errorf("%+v", r)
		}
		bad := *r
		bad.Moved += 13 * r.Stderr
		if bad.Check() == nil {
			t.Errorf("passed: %+v", bad)
		}
		var text strings.Builder
		err = r.WriteText(&text, 100)
		flat := strings.Join(strings.Fields(text.String()), " ")
		if err != nil || !strings.Contains(flat, "10 attackers moved it by") || !strings.Contains(flat, fmt.Sprintf("at most %.4f by what they prove, and noise makes the rest, %+.4f", r.MovedAtMost, r.Moved-r.MovedAtMost)) ||
			!strings.Contains(flat, "the worst of 50 is") || !strings.Contains(flat, "times as sure about any one device") {
			t.Errorf("%v\n%s", err, &text)
		}
	}
}
