package lab

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/recipe"
)

const testRows = 600

// TestRun plays the whole lab on few rows, with every kind of malicious report.
func TestRun(t *testing.T) {
	out, keep := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	var log bytes.Buffer
	var seen []string
	n := 2 * len(attacks)
	r, err := Run(t.Context(), Options{Rows: testRows, Malicious: n, Frame: Frame{Out: out, Keep: keep, Log: &log,
		Progress: func(p Progress) {
			if p.Over {
				seen = append(seen, fmt.Sprintf("%d/%d %s", p.Phase, p.Phases, p.Name))
			}
		}}})
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
	if err := proof.UnmarshalBinary(r.Certificate[3:]); err != nil || proof.Check() != nil || proof.Epsilon > 1+1e-3 || proof.Delta > 1e-6 ||
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
		"large attack": {Malicious: MaxMalicious + 1}, "workers": {Frame: Frame{Workers: -1}}, "precision": {Frame: Frame{Precision: 1500}},
	} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), Options{Rows: testRows, Frame: Frame{Keep: dir, Out: t.TempDir()}}); !errors.Is(err, deploy.ErrNotEmpty) {
		t.Errorf("a directory in use: %v", err)
	}
	// Where devices are counted, too, before anything is played.
	o := Options{Population: MinPopulation, Sampling: recipe.Rational{Num: 4, Den: 5}, Credentials: true, Frame: Frame{Epsilon: decimal("4"), Keep: dir, Out: t.TempDir(),
		Progress: func(p Progress) { t.Errorf("%s was played", p.Name) }}}
	if _, err := Run(t.Context(), o); !errors.Is(err, deploy.ErrNotEmpty) {
		t.Errorf("a directory in use: %v", err)
	}
}

// TestRunStops: the context ends the lab, the servers stop, and nothing is left in the
// temporary directory.
func TestRunStops(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	// half of a deployment is not kept
	for _, keep := range []string{"", filepath.Join(os.TempDir(), "kept")} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Run(ctx, Options{Frame: Frame{Out: t.TempDir(), Keep: keep, Progress: func(p Progress) {
			if p.Name == "upload" {
				cancel()
			}
		}}})
		if !errors.Is(err, context.Canceled) || keep != "" && !strings.Contains(err.Error(), keep+" was taken away again") {
			t.Errorf("keep %q: got %v", keep, err)
		}
		if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
			t.Errorf("keep %q: left behind: %v", keep, left)
		}
	}
}

// TestRunUnwritten: results come although there is no place any more for picture and
// table, and neither is half there.
func TestRunUnwritten(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	r, err := Run(t.Context(), Options{Rows: MinRows, Frame: Frame{Out: out, Progress: func(p Progress) {
		if p.Name == "draw" && !p.Over {
			if err := os.RemoveAll(out); err != nil {
				t.Error(err)
			}
		}
	}}})
	if !errors.Is(err, ErrOut) || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	if err := r.Check(); err != nil || r.Picture != "" || r.Table != "" {
		t.Errorf("picture %q, table %q: %v", r.Picture, r.Table, err)
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100, false); err != nil || strings.Contains(text.String(), "Picture") || !strings.Contains(text.String(), "95 % interval") {
		t.Errorf("%v\n%s", err, &text)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", out, err)
	}
}

func narrowOutcome() Outcome {
	return Outcome{Accepted: 1980, Guarantee: "Guarantee: " + sure(8, "device"), SecondsByStep: map[string]float64{}, SecondsTotal: 12.3, Table: TableFile}
}

// TestNarrowVectors: so do those of vectors, but for the table of rounds.
func TestNarrowVectors(t *testing.T) {
	eight := 8.0
	v := &VectorReport{Outcome: narrowOutcome(), Devices: 2000, Dimension: 10_000, Proof: "pine32", Error: 12.3456, Forecast: 12.3456, Stderr: 0.019,
		WorstError: 4.1, Influence: 0.01, Attackers: 20, Moved: 0.3773, MovedAtMost: 0.3678, UploadBytes: 123_456, Ratio: 61.6,
		Proved: &recipe.ProvedBound{Ratio: 1.234, Redraw: 1e-9, Delta: 1e-12}, HalfHonest: &eight}
	projected := *v
	projected.Projection = 1000
	s := &SeriesReport{Outcome: narrowOutcome(), Devices: 2000, Dimension: 10_000, Separation: 8, Participations: 4, Gain: 1.5, GainForecast: 1.5,
		Early: 10_000, Refused: 10_000}
	for name, write := range map[string]func(io.Writer, int) error{"vectors": v.WriteText, "projected": projected.WriteText, "series": s.WriteText} {
		var text strings.Builder
		if err := write(&text, 60); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 60 && !strings.HasPrefix(line, " round  reports") {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

// TestNarrow: a report fits a terminal of 60 columns, and says why a count is below zero.
func TestNarrow(t *testing.T) {
	r := &Report{Labels: []string{"0", "1"}, Estimate: []float64{200, -20}, Truth: []int64{198, 0}, Stderr: []float64{10, 10},
		Interval95: [][2]float64{{180, 220}, {-40, 0}}, ReportsPerSecond: 2345, Picture: PictureFile, Outcome: narrowOutcome(),
		Sampled: &Sampled{Population: 2000, Rounds: 1, Question: Visits, SquaredError: 2e-4, SquaredErrorForecast: 1e-4, SquaredErrorInterval: [2]float64{1e-5, 1e-3}}}
	var text strings.Builder
	if err := r.WriteText(&text, 60, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 60 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	flat := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{"An estimate may be below zero", "a proportion is about 1 % of the devices off", "e^epsilon = 2981 times as sure about any one device"} {
		if !strings.Contains(flat, want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(flat, "shares") {
		t.Errorf("proportions are called shares:\n%s", &text)
	}
	r.Estimate[1] = 0
	text.Reset()
	if err := r.WriteText(&text, 60, false); err != nil || strings.Contains(text.String(), "below zero") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// TestUsualWorst: half of all largest errors of that many are below.
func TestUsualWorst(t *testing.T) {
	for n, want := range map[int]float64{1: 0.6745, 2000: 3.58, 10000: 3.98} {
		if got := usualWorst(n); math.Abs(got-want) > 0.01 {
			t.Errorf("of %d: %.4f, want %.2f", n, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	good := func() *Report {
		return &Report{Outcome: Outcome{Sent: 12, Accepted: 10, Rejected: map[string]uint64{"a": 1, "b": 1}}, Malicious: 2,
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
	report, err := Run(context.Background(), Options{Rows: 400, Malicious: 8, Frame: Frame{Out: out}})
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
