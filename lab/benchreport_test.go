package lab

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/starling-agg/starling/vdaf/pine"
)

// Every proof is measured, from the vector to a sum that is right; the sizes are those of
// the planner and about 150 bytes of DAP.
func TestMeasureReport(t *testing.T) {
	const dim = 500
	plan := func(f pine.Field, frac int) int {
		c, err := pine.Plan(pine.Params{Field: f, Dimension: dim, FracBits: frac, Norm: 1})
		if err != nil {
			t.Fatal(err)
		}
		return c.Upload
	}
	for name, size := range map[string]int{
		"pine32": plan(32, 15), "pine40": plan(40, 19), "pine64": plan(64, 24), "pine128": plan(128, 24), "l2fixed16": 0, "l2fixed32": 0,
	} {
		r, err := MeasureReport(t.Context(), BenchReportOptions{VDAF: name, Dimension: dim, Reports: 2})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if size > 0 && (r.UploadBytes < size+100 || r.UploadBytes > size+200) || size == 0 && r.Ratio < 30 {
			t.Errorf("%s: %d bytes, the shares have %d", name, r.UploadBytes, size)
		}
		if r.ClientMS < 0 || r.LeaderMS < 0 || r.HelperMS < 0 || r.ClientMS+r.LeaderMS+r.HelperMS == 0 || r.Reports != 2 || r.MostReports == 0 {
			t.Errorf("%s: %+v", name, r)
		}
		b, err := json.Marshal(r)
		var keys map[string]any
		if err != nil || json.Unmarshal(b, &keys) != nil {
			t.Fatalf("%s, %v", b, err)
		}
		for _, k := range []string{"upload_bytes", "client_ms", "leader_ms", "helper_ms"} {
			if _, ok := keys[k]; !ok {
				t.Errorf("%s: no %s in %s", name, k, b)
			}
		}
	}
}

// A projection shortens the report and says what it loses.
func TestMeasureReportProjected(t *testing.T) {
	whole, err := MeasureReport(t.Context(), BenchReportOptions{VDAF: "pine40", Dimension: 4000, Reports: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := MeasureReport(t.Context(), BenchReportOptions{VDAF: "pine40", Dimension: 4000, Projection: 1000, Reports: 1})
	if err != nil || r.Projection != 1000 || r.UploadBytes >= whole.UploadBytes*6/10 || r.Lost < 1.7 || r.Lost > 1.8 || whole.Lost != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMeasureReportRefuses(t *testing.T) {
	for _, o := range []BenchReportOptions{
		{}, {VDAF: "pine33", Dimension: 1}, {VDAF: "pine32"}, {VDAF: "pine32", Dimension: 1 << 21}, {VDAF: "pine32", Dimension: 1, FracBits: -1},
		{VDAF: "pine32", Dimension: 1, FracBits: 40}, {VDAF: "l2fixed16", Dimension: 1, FracBits: 10}, {VDAF: "pine32", Dimension: 1, Reports: -1},
		{VDAF: "pine32", Dimension: 10, Projection: 10}, {VDAF: "pine32", Dimension: 10, Projection: -1},
	} {
		if r, err := MeasureReport(t.Context(), o); err == nil {
			t.Errorf("%+v: %+v", o, r)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MeasureReport(ctx, BenchReportOptions{VDAF: "pine32", Dimension: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}
