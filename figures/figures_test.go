package figures

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// TestDraw draws everything, with a panel where there would be twelve, and reads it back.
func TestDraw(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var told []string
	done, err := Draw(t.Context(), Options{Dir: dir, Tasks: []uint64{20}, Alphabets: []float64{1e3},
		Progress: func(o Output) { told = append(told, o.Name) }})
	if err != nil {
		t.Fatal(err)
	}
	var unmeasured []string
	for _, j := range jobs() {
		if !j.measured {
			unmeasured = append(unmeasured, j.name)
		}
	}
	if !slices.Equal(told, unmeasured) || len(done) != len(told) {
		t.Fatalf("told of %q", told)
	}
	for _, o := range done {
		if !slices.Equal(o.Files, []string{o.Name + ".png", o.Name + ".svg", o.Name + ".csv"}) || o.Title == "" {
			t.Errorf("%+v", o)
		}
		read := func(suffix string) []byte {
			b, err := os.ReadFile(filepath.Join(dir, o.Name+suffix))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		img, err := png.Decode(bytes.NewReader(read(".png")))
		if err != nil || img.Bounds().Dx() < 1600 {
			t.Errorf("%s: %v, %v", o.Name, img.Bounds(), err)
		}
		for d := xml.NewDecoder(bytes.NewReader(read(".svg"))); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", o.Name, err)
			}
		}
		if svg := string(read(".svg")); !strings.Contains(svg, "<title>"+o.Title+"</title>") || strings.Contains(svg, "NaN") ||
			strings.Contains(svg, "Inf") || strings.Contains(svg, "^{") {
			t.Errorf("%s: the SVG is not clean", o.Name)
		}
		rows, err := csv.NewReader(bytes.NewReader(read(".csv"))).ReadAll()
		if err != nil || len(rows) < 6 {
			t.Fatalf("%s: %d rows, %v", o.Name, len(rows), err)
		}
		if rows[0][len(rows[0])-1] == "error" {
			checkCurves(t, o.Name, rows[1:])
		}
	}
}

// checkCurves holds every panel to the order that the paper shows: noise costs, a secret
// sample costs less than a known one, and privacy loss distributions prove at least what
// moments do.
func checkCurves(t *testing.T, name string, rows [][]string) {
	t.Helper()
	type at struct{ panel, m string }
	moments, plain, rings := map[at]float64{}, map[at]float64{}, 0
	agg := map[string][]float64{}
	var panels []string
	for _, r := range rows {
		v, err := strconv.ParseFloat(r[8], 64)
		if err != nil || !(v > 0) || math.IsInf(v, 1) {
			t.Fatalf("%s: %q", name, r)
		}
		key := at{strings.Join(r[:3], " "), r[3]}
		if !slices.Contains(panels, key.panel) {
			panels = append(panels, key.panel)
		}
		switch {
		case r[5] == "NONPRIVIMPSAMP" || r[5] == "NONPRIV":
			plain[key] = v
		case r[6] == "rdp":
			moments[key] = v
			if v <= plain[key] {
				t.Errorf("%s: %q: no more than without noise, %v", name, r, plain[key])
			}
		case r[6] == "pld":
			rings++
		case r[5] == "AGG":
			m, _ := strconv.ParseFloat(r[3], 64)
			agg[key.panel] = append(agg[key.panel], m, v)
		}
	}
	for key, v := range moments {
		m, _ := strconv.ParseFloat(key.m, 64)
		points := agg[key.panel]
		for i := 0; i+3 < len(points); i += 2 {
			if points[i] < m && m <= points[i+2] && v > 1.1*max(points[i+1], points[i+3]) {
				t.Errorf("%s: %v: SAMPAGG %v, AGG %v", name, key, v, points[i+1])
			}
		}
	}
	if rings < len(panels) {
		t.Errorf("%s: %d rings in %d panels", name, rings, len(panels))
	}
}

func TestOptions(t *testing.T) {
	good := Options{Dir: "x"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Options){
		"no directory":  func(o *Options) { o.Dir = "" },
		"unknown name":  func(o *Options) { o.Only = []string{"paper-000-figure-4"} },
		"epsilon NaN":   func(o *Options) { o.Epsilon = math.NaN() },
		"epsilon below": func(o *Options) { o.Epsilon = -1 },
		"delta one":     func(o *Options) { o.Delta = 1 },
		"few people":    func(o *Options) { o.People = 10 },
		"people Inf":    func(o *Options) { o.People = math.Inf(1) },
		"no alphabet":   func(o *Options) { o.Alphabets = []float64{} },
		"alphabet NaN":  func(o *Options) { o.Alphabets = []float64{math.NaN()} },
		"five tasks":    func(o *Options) { o.Tasks = []uint64{1, 2, 3, 4, 5} },
		"no tasks":      func(o *Options) { o.Tasks = []uint64{0} },
	} {
		o := good
		spoil(&o)
		if _, err := Draw(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done, err := Draw(ctx, Options{Dir: t.TempDir()})
	if !errors.Is(err, context.Canceled) || len(done) != 0 {
		t.Errorf("%v, %v", done, err)
	}
	// A cancellation between two outputs leaves the first.
	ctx, cancel = context.WithCancel(t.Context())
	dir := t.TempDir()
	done, err = Draw(ctx, Options{Dir: dir, Only: Names()[7:13], Progress: func(Output) { cancel() }})
	if !errors.Is(err, context.Canceled) || len(done) != 1 {
		t.Errorf("%v, %v", done, err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
}

// What paper 004 says of its figure 2: the theorem at n users is about the older bound at
// 10 n.
func TestShufflingFigure(t *testing.T) {
	out, err := shuffling(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]float64{}
	for _, r := range out.rows[1:] {
		e0, _ := strconv.ParseFloat(r[1], 64)
		v[r[0]+" "+strconv.FormatFloat(e0, 'f', 2, 64)+" "+r[2]], _ = strconv.ParseFloat(r[3], 64)
	}
	for _, e0 := range []string{"0.10", "0.50", "0.70", "1.00"} {
		for _, n := range [][2]string{{"1000", "10000"}, {"10000", "100000"}, {"100000", "1000000"}} {
			if e0 == "1.00" && n[0] == "1000" {
				continue // both are cut at epsilon0
			}
			if r := v[n[0]+" "+e0+" Theorem 5.1"] / v[n[1]+" "+e0+" EFMRTT19"]; !(r > 0.9 && r < 1.6) {
				t.Errorf("epsilon0 %s: theorem 5.1 at %s users is %.2f of EFMRTT19 at %s", e0, n[0], r, n[1])
			}
		}
	}
	for _, r := range []struct {
		key  string
		want float64
	}{
		{"1000 1.00 clones, exact sum", .1824123}, {"100000 1.00 clones, exact sum", .0152821}, {"10000 1.00 Theorem 5.1", .4077596},
	} {
		if math.Abs(v[r.key]-r.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", r.key, v[r.key], r.want)
		}
	}
}

// What docs/figures.md says of paper 002, figure 2; and the errors are those of the
// reference values.
func TestGroupsFigure(t *testing.T) {
	out, err := groups(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	better, ratio := map[string][]float64{}, 0.0 // epsilons with the smaller error by Q&A
	for i := 1; i+1 < len(out.rows); i += 2 {
		q, r := out.rows[i], out.rows[i+1]
		if q[3] != "QA" || r[3] != "RG" || q[2] != r[2] || q[4] != "500" || r[4] != "250" {
			t.Fatalf("%q, %q", q, r)
		}
		panel, asked, told := q[0]+" "+q[1], number(q[7]), number(r[7])
		if asked < told {
			better[panel] = append(better[panel], number(q[2]))
		}
		if panel == "0.5 0.7" && ratio == 0 {
			ratio = told / asked
		}
		if asked < .002 || (q[5] == "0") != (asked == .002) {
			t.Errorf("Q&A: %q", q)
		}
		// Two groups, values +-1: c^2 + c^2 - 1 by Q&A, and the square of RG's factor less
		// 1, whatever the values.
		c := 1 / (1 - 2*number(q[5]))
		if want := (2*c*c - 1) / 500; math.Abs(asked/want-1) > 1e-6 {
			t.Errorf("%q: want %v", q, want)
		}
		c = 1 / ((1 - number(r[6])) * (1 - 2*number(r[5])))
		if want := (c*c - 1) / 250; math.Abs(told/want-1) > 1e-4 {
			t.Errorf("%q: want %v", r, want)
		}
	}
	ends := func(panel string) (first, last float64) { return better[panel][0], better[panel][len(better[panel])-1] }
	from, to := ends("0.5 0.7")
	second, third := ends("0.3 0.7")
	for _, s := range []string{
		fmt.Sprintf("%.1f times less error at epsilon = %v, and less up to %.2g; for 0.3 and 0.7 it is better from %.2g to %.2g |", ratio, from, to, second, third),
		"for 0.1 and 0.9, and for any distributions, RG is never worse",
	} {
		if !strings.Contains(string(b), s) {
			t.Errorf("docs/figures.md does not say %q", s)
		}
	}
	if len(better["0.1 0.9"])+len(better["any any"]) != 0 || from != .05 {
		t.Errorf("Q&A has the smaller error at %v", better)
	}
}

// The growth that paper 004, table 1, states is that of the formulas.
func TestAmplificationTable(t *testing.T) {
	out, err := amplification(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.rows[1:] {
		var v []float64
		for _, s := range r[1:] {
			x, _ := strconv.ParseFloat(s, 64)
			v = append(v, x)
		}
		if r[0] == "None" {
			continue
		}
		if math.Abs(v[1]-v[0]) > 0.1 || math.Abs(v[2]+0.5) > 0.01 || v[5] > v[4] {
			t.Errorf("%q", r)
		}
	}
}

// docs/figures.md shows every output, and every number of the examples as it comes out.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, name := range Names() {
		if !strings.Contains(doc, "](figures/"+name+".svg)") {
			t.Errorf("docs/figures.md does not show %s", name)
		}
		if _, err := os.Stat("../docs/figures/" + name + ".svg"); err != nil {
			t.Error(err)
		}
	}
	all, err := claims()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		row := "| " + c.example + " | " + draw.Plain(c.what) + " | " + draw.Plain(c.states) + " | " + draw.Plain(ceiling(c.value, 5)) + " | "
		if !strings.Contains(doc, row) {
			t.Errorf("docs/figures.md has no row %s", row)
		}
	}
	var drawn strings.Builder
	for _, name := range Names() {
		b, _ := os.ReadFile("../docs/figures/" + name + ".svg")
		drawn.Write(b)
	}
	claims := regexp.MustCompile(`× [0-9,.]+ at M = [0-9,]+`).FindAllString(doc, -1)
	for _, s := range claims {
		if !strings.Contains(drawn.String(), s) {
			t.Errorf("no picture has %q", s)
		}
	}
	if len(claims) == 0 {
		t.Error("docs/figures.md quotes no ratio")
	}
	// The pictures that are quick to draw are those of this code.
	dir := t.TempDir()
	quick := []string{"paper-000-examples", "paper-001-figure-1", "paper-002-figure-2", "paper-003-communication", "paper-004-figure-2", "paper-004-table-1"}
	if _, err := Draw(t.Context(), Options{Dir: dir, Only: quick}); err != nil {
		t.Fatal(err)
	}
	for _, name := range quick {
		words := func(path string) string {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, s, _ := strings.Cut(string(b), "<title>")
			s, _, ok := strings.Cut(s, "</desc>")
			if !ok {
				t.Fatalf("%s: no description", path)
			}
			return s
		}
		if words(filepath.Join(dir, name+".svg")) != words("../docs/figures/"+name+".svg") {
			t.Errorf("docs/figures/%s.svg is stale: go run ./cmd/starling figures --out DIR, and copy it", name)
		}
	}
}

// docs/figures.md repeats the table of paper 001, whose growth is the paper's, and quotes
// it.
func TestCloaks(t *testing.T) {
	out, err := cloaks(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	type at struct{ name, n string }
	messages, failure, seen := map[at]float64{}, map[at]float64{}, map[at]float64{}
	lines, neighbours, names := map[string]string{}, map[string]string{}, []string{}
	for _, r := range out.rows[1:] {
		key := at{r[0], r[3]}
		messages[key], _ = strconv.ParseFloat(r[4], 64)
		failure[key], _ = strconv.ParseFloat(r[6], 64)
		seen[key], _ = strconv.ParseFloat(r[7], 64)
		if !slices.Contains(names, r[0]) {
			names = append(names, r[0])
		}
		neighbours[r[0]] = r[1]
		if r[3] != "1000" && r[3] != "100000" {
			lines[r[0]] += fmt.Sprintf(" %s × %s | %s |", grouped(uint64(messages[key])), r[5], draw.Plain(ceiling(failure[key], 3)))
		}
	}
	for _, name := range names {
		if row := "| " + name + " | " + neighbours[name] + " |" + lines[name]; !strings.Contains(doc, row+"\n") {
			t.Errorf("docs/figures.md has no row %s", row)
		}
	}
	one, two, modern := "Cloak, theorem 1", "Cloak, theorem 2", "Cloak, modern"
	for _, s := range []string{
		fmt.Sprintf("agrees: %.0f at most for any n, %.0f messages more for a hundred times as many users",
			math.Ceil(failure[at{one, "1000000"}]), messages[at{one, "1000000"}]-messages[at{one, "10000"}]),
		fmt.Sprintf("%.0f messages in place of %.0f at 10,000 users, and %s in place of %s", messages[at{modern, "10000"}], messages[at{one, "10000"}],
			ceiling(failure[at{modern, "10000"}], 3), ceiling(failure[at{one, "10000"}], 3)),
		fmt.Sprintf("with probability %.5f in theorem 1 at 10,000 users", seen[at{one, "10000"}]),
	} {
		if !strings.Contains(doc, s) {
			t.Errorf("docs/figures.md does not say %q", s)
		}
	}
	half, err := cloak.Modern(cloak.Options{Users: 10_000, Honest: 5_000, Precision: cloakPrecision, Epsilon: cloakEpsilon, Delta: cloakDelta})
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("with half of 10,000 it still takes %d messages, and its error is %.2f", half.Messages(), half.RMS()); !strings.Contains(doc, s) {
		t.Errorf("docs/figures.md does not say %q", s)
	}
	for _, n := range []string{"100", "1000", "10000", "100000", "1000000"} {
		if k := (at{modern, n}); seen[k] > 1e-8 || messages[k] > messages[at{"Cloak, modern, published count", n}] || failure[k] > 1.5 {
			t.Errorf("modern at %s users: %v messages, error %v", n, messages[k], failure[k])
		}
		if k := (at{two, n}); failure[k] > 1e-3 || math.Abs(messages[k]-messages[at{one, n}]) > 1 {
			t.Errorf("theorem 2 at %s users: %v messages, error %v", n, messages[k], failure[k])
		}
	}
}

// What the table of paper 003 shows as ours is what a client's report takes, and
// docs/figures.md repeats it.
func TestCommunication(t *testing.T) {
	out, err := communication(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	size := map[string]int{}
	for _, r := range out.rows[1:] {
		if r[5] != "measured" {
			continue
		}
		name := strings.TrimPrefix(r[0], "Starling ")
		entries, _ := strconv.Atoi(r[3])
		body, _ := strconv.Atoi(r[6])
		relay, _ := strconv.Atoi(r[8])
		over := float64(body) / (4 * float64(entries))
		if row := fmt.Sprintf("| %s | %d | %s | %.2f | %s |", name, entries, grouped(uint64(body)), over, grouped(uint64(relay))); !strings.Contains(doc, row+"\n") {
			t.Errorf("docs/figures.md has no row %s", row)
		}
		if relay < body || body > 64<<10 && float64(relay) > 1.04*float64(body) {
			t.Errorf("%s: %d bytes by relay for %d", name, relay, body)
		}
		kind, _, _ := strings.Cut(name, ",")
		size[kind+" "+r[3]] = body
	}
	for _, c := range []struct {
		kind string
		most float64
	}{{"pine32 10000", 1.50}, {"pine32 262144", 1.05}, {"pine40 10000", 1.80}, {"pine40 262144", 1.30}} {
		_, n, _ := strings.Cut(c.kind, " ")
		if entries, _ := strconv.ParseFloat(n, 64); size[c.kind] == 0 || float64(size[c.kind]) > c.most*4*entries {
			t.Errorf("%s: %d bytes, want at most %v times 4 bytes an entry", c.kind, size[c.kind], c.most)
		}
	}
	for _, kind := range []string{"pine32", "pine40", "pine64", "pine128"} {
		r, err := lab.MeasureReport(t.Context(), lab.BenchReportOptions{VDAF: kind, Dimension: shortVector, Reports: 1})
		if err != nil || r.UploadBytes != size[kind+" 10000"] {
			t.Errorf("%s: a report takes %+v bytes, %v; the table says %d", kind, r, err, size[kind+" 10000"])
		}
	}
	l2 := func(n string) string { return strconv.FormatFloat(float64(size["l2fixed16 "+n])/1e6, 'g', 3, 64) }
	for _, s := range []string{
		fmt.Sprintf("A token will add %d\nbytes once it is built: 519 in public and 36 in each share.", tokenBytes),
		fmt.Sprintf("takes %s MB and %s MB", l2("10000"), l2("262144")),
		fmt.Sprintf("elements of 128 bits: %.3g MB and %.3g MB", shortVector*16*16/1e6, longVector*16*16/1e6),
		fmt.Sprintf("| %.2g and %.2g times |", 3e6/(4*shortVector), 85e6/(4*longVector)),
		fmt.Sprintf("agrees: %.1f times at 262,144 entries; 50 to %.1f elsewhere", 51e6/(4*longVector), 2.9e6/(4*shortVector)),
		fmt.Sprintf("its row has %.3g, %.3g and %.3g times", 0.365e6/(4*shortVector), 1.35e6/(4*longVector), 14e6/(4*longVector)),
	} {
		if !strings.Contains(doc, s) {
			t.Errorf("docs/figures.md does not say %q", s)
		}
	}
}

// patient says whether tests compute all that they have to compute, as the gate has them
// do.
var patient = os.Getenv("CI") == "true"

// TestDocsNumbers computes the numbers that stand in the sentences and in the table of
// docs/figures.md; those of a thousand tasks where CI is true.
func TestDocsNumbers(t *testing.T) {
	b, err := os.ReadFile("../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	says := func(format string, args ...any) {
		t.Helper()
		if s := fmt.Sprintf(format, args...); !strings.Contains(doc, s) {
			t.Errorf("docs/figures.md does not say %q", s)
		}
	}
	dir := t.TempDir()
	tasks := []uint64{1}
	if patient {
		tasks = append(tasks, 1000)
	}
	if _, err := Draw(t.Context(), Options{Dir: dir, Only: []string{"paper-000-figure-5", "paper-004-figure-2", "paper-004-table-1"},
		Tasks: tasks, Alphabets: []float64{1e3, 1e5}}); err != nil {
		t.Fatal(err)
	}
	rows := func(name string) [][]string {
		b, err := os.ReadFile(filepath.Join(dir, name+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
		if err != nil || len(r) < 2 {
			t.Fatalf("%s: %v", name, err)
		}
		return r[1:]
	}
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}

	sigma, failure := map[string]float64{}, map[string]float64{} // by K, T, M, curve and method
	for _, r := range rows("paper-000-figure-5") {
		key := strings.Join([]string{r[0], r[1], r[3], r[5], r[6]}, " ")
		sigma[key], failure[key] = number(r[7]), number(r[8])
	}
	says("at M = 1000 of one task sigma is %.3f in place of %.3f", sigma["1000 1 1000 SAMPAGG pld"], sigma["1000 1 1000 SAMPAGG rdp"])
	if patient {
		says("at T = 1000, M = 10^5, K = 10^3 the error is %.1f times the non-private one",
			failure["1000 1000 100000 SAMPAGG pld"]/failure["1000 1000 100000 NONPRIV "])
	}

	epsilon := map[string]float64{}
	for _, r := range rows("paper-004-figure-2") {
		epsilon[r[0]+" "+r[1]+" "+r[2]] = number(r[3])
	}
	least, most := 1.0, 0.0
	for _, n := range []string{"10000", "100000", "1000000"} {
		ratio := epsilon[n+" 1 clones, exact sum"] / epsilon[n+" 1 Theorem 5.1"]
		least, most = min(least, ratio), max(most, ratio)
	}
	says("at epsilon0 = 1 it is %.3f to %.3f of theorem 5.1 for n from 10^4 to 10^6", least, most)
	near := epsilon["100000 1 EFMRTT19"] / epsilon["10000 1 Theorem 5.1"]
	if !(near > 1/1.1 && near < 1.1) {
		t.Errorf("near epsilon0 = 1 the older bound is %v of theorem 5.1, want a factor of at most 1.1", near)
	}

	tightest := map[string]string{}
	for _, r := range rows("paper-004-table-1") {
		n := "-0.5"
		if r[0] == "None" {
			n = "0"
		}
		says("| %s | %s | %.2f | %s | %.2f | %.4f | %.4f | %.4f |", r[0], r[1], number(r[2]), n, number(r[3]), number(r[4]), number(r[5]), number(r[6]))
		tightest[r[0]] = r[6]
	}
	shuffled, checkin := tightest["Shuffling (theorem 5.1)"], tightest["Random check-ins, fixed window (theorem 3.2)"]
	if shuffled == "" || shuffled != checkin || number(tightest["Uniform subsampling"]) < number(shuffled) {
		t.Errorf("tightest bounds: %v", tightest)
	}

	// Example 5 is the paper's one number that cannot be had: what a proof must exceed is
	// above 0.8.
	g, err := accountant.Options{Method: accountant.PLD}.Epsilon([]release.Release{
		release.Times(2500, release.Gaussian{Sigma: 5.1, Contribution: release.OneHot()}).Sampled(release.Poisson{Rate: 0.02}),
	}, 1e-8, release.AddRemove)
	if err != nil || g.EpsilonLower <= 0.8 || g.Epsilon > 1.001*g.EpsilonLower {
		t.Errorf("2,500 rounds: %v to %v, %v", g.EpsilonLower, g.Epsilon, err)
	}
}

// Measured points lie where the formulas say: of a root mean square of 200 sums of 100 users
// within 0.4 and 1.7 times it, and of means of 60 squares of two sums within 0.4 and 2.2
// times them, which either misses less than once in 10^7 (of a chi-square of 60 and more).
func TestMeasured(t *testing.T) {
	m, err := measuredCloak(100, 200)
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(2 * 10. / 9); m.rms < 0.4*want || m.rms > 1.7*want {
		t.Errorf("error %v of 100 users, want about %v", m.rms, want)
	}
	for _, g := range []grouping{groupings[1], groupings[3]} {
		const epsilon = 1
		lambda, gamma, omega, err := g.lies(epsilon)
		if err != nil {
			t.Fatal(err)
		}
		asked, told, err := groupUsers()
		if err != nil {
			t.Fatal(err)
		}
		q, r, err := measuredGroups(g, epsilon, 60)
		if err != nil {
			t.Fatal(err)
		}
		for name, ratio := range map[string]float64{"question": q * asked / local.QuestionAlpha(1, 2, lambda, 1), "random": r * told / local.RandomGroupAlpha(1, 2, gamma, omega, 1)} {
			if ratio < 0.4 || ratio > 2.2 {
				t.Errorf("%s, %s: %v times the error by formula", g.name, name, ratio)
			}
		}
	}
	dir := t.TempDir()
	if _, err := Draw(t.Context(), Options{Dir: dir, Only: []string{"paper-001-figure-1", "paper-002-figure-2"}, Measured: true, thin: 100}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"paper-001-figure-1": 4, "paper-002-figure-2": 2 * len(groupings) * len(groupEpsilons)} {
		b, err := os.ReadFile(filepath.Join(dir, name+".csv"))
		if err != nil {
			t.Fatal(err)
		}
		measured := 0
		for _, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, ",measured,") || strings.Contains(line, " measured,") {
				measured++
			}
		}
		if measured != want {
			t.Errorf("%s: %d measured points, want %d", name, measured, want)
		}
	}
}
