package contribute_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestGroups: sums by group go from devices by question & answer to a table, on both paths;
// what is signed of numbers that no answers have is no result.
func TestGroups(t *testing.T) {
	for _, direct := range []bool{true, false} {
		in(t, kind{direct: direct, grouped: true}, func(t *testing.T, w *world) {
			const devices = 60
			c := w.contributor()
			var values []client.Value
			for i := range devices {
				values = append(values, client.InGroup(int64(i%10), uint32(i%3)))
			}
			if err := c.Report(t.Context(), values...); err != nil {
				t.Fatal(err)
			}
			var bad *client.ValueError
			if err := c.Report(t.Context(), client.InGroup(10, 0)); !errors.As(err, &bad) {
				t.Errorf("10 of 0 to 9: %v", err)
			}
			n := w.flushed()
			reader := w.reader()
			x, err := reader.Round(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if x.ReportCount != devices || len(x.Raw) != 10 || len(x.Estimate) != 3 || len(x.Interval95) != 3 || x.Groups == nil || len(x.Groups.Groups) != 3 {
				t.Fatalf("%+v", x)
			}
			// 12 standard errors of about 40 of a sum of parts of at most 18: a chance below 1e-10 (Bernstein).
			for g, row := range x.Groups.Groups {
				if row.Sum.Estimate != x.Estimate[g] || row.Sum.Stderr != x.Stderr[g] || math.Abs(row.Sum.Estimate-90) > 12*row.Sum.Stderr ||
					row.Sum.Stderr < 10 || row.Sum.Stderr > 150 || row.Size.State == sketch.None {
					t.Errorf("direct %v: group %d: %+v", direct, g, row)
				}
			}
			if all := x.Groups.Total; all.Size.Estimate != devices || math.Abs(all.Sum.Estimate-270) > 12*all.Sum.Stderr {
				t.Errorf("%+v", all)
			}
			if b, err := x.MarshalJSON(); err != nil || !bytes.Contains(b, []byte(`"groups":{"groups":[{"group":"0","sum":`)) {
				t.Errorf("%s, %v", b, err)
			}
			signer := w.signers[onion.Analyzer]
			if direct {
				signer = w.signers[onion.Direct]
			}
			for name, numbers := range map[string]string{
				"too few numbers": "[0,0,0,60,60,60,0,0,0]",
				"a sum too large": "[9999,0,0,300,300,300,0,0,0,30]",
				"squares of none": "[0,0,0,0,0,0,0,0,0,30]",
				"sizes too large": "[0,0,0,30,30,30,31,0,0,30]",
				"more than all":   "[0,0,0,30,30,30,0,0,0,61]",
				"fewer than none": "[0,0,0,30,30,30,0,0,0,-1]",
				"only sizes":      "[0,0,0,0,0,0,0,0,0,0]",
			} {
				r, _ := http.NewRequest(http.MethodGet, "https://analyzer.example/"+onion.ResultPath(w.shuffle.Recipe, n), nil)
				r.Header.Set("Authorization", "Bearer "+readers)
				w.answer = nil
				resp, err := w.do(r)
				if err != nil {
					t.Fatal(err)
				}
				var all bytes.Buffer
				all.ReadFrom(resp.Body)
				said, err := onion.OpenResult(all.Bytes(), w.shuffle, n)
				if err != nil {
					t.Fatal(err)
				}
				said.Tally = fmt.Appendf(nil, `{"tally":{"sums":%s,"reports":%d,"rejected":0}}`, numbers, devices)
				b, err := said.Sign(signer)
				if err != nil {
					t.Fatal(err)
				}
				w.answer = func(string, *http.Request) *http.Response { return replies(onion.ResultMedia, b) }
				if got, err := reader.Round(t.Context(), n); got != nil || !errors.Is(err, collector.ErrAnswer) {
					t.Errorf("direct %v: %s: %+v, %v", direct, name, got, err)
				}
			}
		})
	}
}
