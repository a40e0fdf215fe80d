package lab

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/certificate"
)

const testRows = 600

// TestRun plays the whole lab on few rows, with every kind of malicious report.
func TestRun(t *testing.T) {
	out, keep := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	var log bytes.Buffer
	var seen []string
	n := 2 * len(attacks)
	r, err := Run(t.Context(), Options{Rows: testRows, Malicious: n, Out: out, Keep: keep, Log: &log,
		Progress: func(p Progress) {
			if p.Over {
				seen = append(seen, fmt.Sprintf("%d/%d %s", p.Phase, p.Phases, p.Name))
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if want := []string{"1/5 start", "2/5 upload", "3/5 verify", "4/5 collect", "5/5 draw"}; !slices.Equal(seen, want) {
		t.Errorf("phases %q", seen)
	}
	if r.Sent != testRows+uint64(n) || r.Malicious != uint64(n) || r.Accepted != testRows {
		t.Errorf("sent %d, malicious %d, accepted %d", r.Sent, r.Malicious, r.Accepted)
	}
	// Each kind of attack is refused for its own reason.
	want := map[string]uint64{"vdaf_verify_error": 4, "hpke_decrypt_error": 4, "report_replayed": 2, "report_dropped": 2,
		"unrecognizedTask": 2, "invalidMessage": 2}
	for reason, n := range want {
		if r.Rejected[reason] != n {
			t.Errorf("%d reports rejected because of %s, want %d (all: %v)", r.Rejected[reason], reason, n, r.Rejected)
		}
		if because[reason] == "" {
			t.Errorf("no words for %s", reason)
		}
	}
	if !(r.Epsilon > 0.9 && r.Epsilon <= 1) || r.Delta != 1e-6 {
		t.Errorf("epsilon %v, delta %v", r.Epsilon, r.Delta)
	}
	var proof certificate.Certificate
	if err := proof.UnmarshalBinary(r.Certificate); err != nil || proof.Check() != nil || proof.Epsilon > 1+1e-3 || proof.Delta > 1e-6 ||
		!strings.Contains(r.Guarantee, "Every device checked the certificate") {
		t.Errorf("certificate %+v, %v, %v; %s", proof, err, proof.Check(), r.Guarantee)
	}
	for i := range r.Truth {
		if r.Stderr[i] < 5 || r.Stderr[i] > 20 || r.Interval95[i][0] >= r.Estimate[i] || r.Interval95[i][1] <= r.Estimate[i] {
			t.Errorf("bucket %d: estimate %v, standard error %v, interval %v", i, r.Estimate[i], r.Stderr[i], r.Interval95[i])
		}
	}
	checkFiles(t, out, r)
	checkJSON(t, r)
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What each party saw", "616 sent, 600 accepted", "2 rejected: report_replayed    a report that had come before\n", "Guarantee: epsilon 1"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	checkLog(t, log.String(), keep)
}

func checkFiles(t *testing.T, out string, r *Report) {
	t.Helper()
	f, err := os.Open(filepath.Join(out, "starling-lab.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
	table, err := os.ReadFile(filepath.Join(out, "starling-lab.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 22 || rows[0][0] != "bucket" || rows[21][0] != "20+" || rows[1][5] != fmt.Sprint(r.Truth[0]) {
		t.Errorf("table of %d rows: %v ... %v", len(rows), rows[0], rows[len(rows)-1])
	}
}

func checkJSON(t *testing.T, r *Report) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"reports_sent", "reports_accepted", "reports_rejected", "estimate", "truth", "stderr", "epsilon",
		"delta", "seconds_total", "seconds_by_step"} {
		if keys[k] == nil {
			t.Errorf("the JSON lacks %s", k)
		}
	}
}

// checkLog: the servers logged requests, and nothing that says from whom, and no secret.
func checkLog(t *testing.T, log, keep string) {
	t.Helper()
	if n := strings.Count(log, `"request":"POST reports"`); n < 3 {
		t.Errorf("%d uploads in the log", n)
	}
	secrets := []string{"127.0.0.1", "::1"}
	for _, name := range []string{"peer.token", "collector.token", "verify.key"} {
		b, err := os.ReadFile(filepath.Join(keep, "secrets", name))
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, strings.TrimSpace(string(b)))
	}
	for _, s := range secrets {
		if strings.Contains(log, s) {
			t.Errorf("the log shows %q", s)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"few rows": {Rows: MinRows - 1}, "many rows": {Rows: 20191}, "negative attack": {Malicious: -1},
		"large attack": {Malicious: MaxMalicious + 1}, "workers": {Workers: -1}, "precision": {Precision: 1500},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Rows: testRows, Keep: dir, Out: t.TempDir()}); !errors.Is(err, deploy.ErrNotEmpty) {
		t.Errorf("a directory in use: %v", err)
	}
}

// TestRunStops: the context ends the lab, the servers stop, and nothing is left in the temporary directory.
func TestRunStops(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Options{Out: t.TempDir(), Progress: func(p Progress) {
		if p.Name == "upload" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCheck(t *testing.T) {
	good := func() *Report {
		return &Report{Sent: 12, Malicious: 2, Accepted: 10, Rejected: map[string]uint64{"a": 1, "b": 1},
			Estimate: []float64{6, 5}, Truth: []int64{5, 5}, Stderr: []float64{2, 2}}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Report){
		"lost report":         func(r *Report) { r.Accepted-- },
		"counted twice":       func(r *Report) { r.Accepted++ },
		"attack came through": func(r *Report) { r.Rejected["a"] = 0 },
		"far off":             func(r *Report) { r.Estimate[1] = 18 },
		"no noise known":      func(r *Report) { r.Stderr[0], r.Estimate[0] = 0, 5 },
	} {
		r := good()
		spoil(r)
		if r.Check() == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func Example() {
	out, _ := os.MkdirTemp("", "starling")
	defer os.RemoveAll(out)
	report, err := Run(context.Background(), Options{Rows: 400, Malicious: 8, Out: out})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Accepted, "accepted,", report.Sent-report.Accepted, "rejected")
	fmt.Println("estimates within their noise:", report.Check() == nil)
	// Output:
	// 400 accepted, 8 rejected
	// estimates within their noise: true
}
