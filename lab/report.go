package lab

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

// A Report is what a lab found. Its JSON keys are only added to.
type Report struct {
	Outcome
	// Malicious reports were sent, of all that were.
	Malicious uint64 `json:"reports_malicious"`

	// Labels, Estimate, Truth and the errors have one entry for each bucket. Stderr is
	// the standard deviation of the noise of both servers together; Interval95 holds the
	// exact count with probability 95 %, each by itself.
	Labels     []string     `json:"buckets"`
	Estimate   []float64    `json:"estimate"`
	Truth      []int64      `json:"truth"`
	Stderr     []float64    `json:"stderr"`
	Interval95 [][2]float64 `json:"interval95"`

	// Deciles are those of the visits, where the lab asks for them; the buckets above are
	// ranges of numbers then.
	Deciles []Decile `json:"deciles,omitempty"`

	// Groups are the cells of the table, where the lab asks for sums by group; the buckets
	// above are the groups, and their numbers the sums then.
	Groups []GroupCell `json:"groups,omitempty"`

	// Unit is whose data the guarantee is about: a row of the table is a person-year.
	// UnitsPerPerson is how many of them one person has at most, and Person what such a
	// person has; nil where nothing is said of it.
	Unit           string       `json:"unit"`
	UnitsPerPerson uint32       `json:"units_per_person,omitempty"`
	Person         *recipe.Loss `json:"person,omitempty"`
	// Certificate proves the guarantee to devices; it stands behind the recipe in its
	// file. Empty where nothing is claimed.
	Certificate []byte `json:"certificate,omitempty"`

	// Saw says for each party what it held that others did not.
	Saw []Sight `json:"saw"`
	// LeaderBytes arrived at the leader in honest reports; HelperBytes of them went on to
	// the helper.
	LeaderBytes uint64 `json:"leader_bytes"`
	HelperBytes uint64 `json:"helper_bytes"`

	// ReportsPerSecond is Sent over the seconds of upload, verify and collect.
	ReportsPerSecond float64 `json:"reports_per_second"`

	Picture string `json:"picture"`

	*Sampled // nil without a population
	*Mixed   // nil where devices send proofs
	*Cloaked // nil where nothing is cloaked

	words chartWords
}

// chartWords are those of the picture of a lab that asks for something else than visits
// in buckets.
type chartWords struct {
	title, x, y, answer string
	subtitle            string // in place of the usual one, with answer
}

// A Sight is what one party saw.
type Sight struct {
	Party string `json:"party"`
	Saw   string `json:"saw"`
}

// guaranteeWords says the guarantee in words for people.
func guaranteeWords(g *recipe.Guarantee, r *recipe.Recipe) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Guarantee: %s, for replacing the report of any one %s by any other, computed from the recipe and not typed in. ",
		g.Loss, g.Unit)
	fmt.Fprintf(&b, "%s ", sure(g.Epsilon, g.Unit))
	if g.PerPerson > 1 {
		fmt.Fprintf(&b, "A person with at most %d of them has %s. ", g.PerPerson, g.Person)
	}
	fmt.Fprintf(&b, "It holds if at least one of the two servers is honest. Noise on servers: %s.", r.Noise)
	return b.String()
}

// sure says an epsilon in words.
func sure(epsilon float64, unit string) string {
	times := "e^epsilon"
	if epsilon <= 30 {
		times += " = " + recipe.Above(outward.Up(math.Exp(epsilon)))
	}
	return fmt.Sprintf("Whoever sees the result, and knows all other reports, can be at most %s times as sure about any one %s as before, up to delta.", times, unit)
}

// certifiedWords says what a certificate of the given size proves, as a sentence that
// follows another.
func certifiedWords(bytes int, proved recipe.Loss) string {
	return fmt.Sprintf(" Every device checked the certificate of %s bytes, which proves %s without the accountant.", prose.Count(float64(bytes)), proved)
}

// wrapped is text in lines of at most width columns, within what is easy to read.
func wrapped(text string, width int) string {
	return strings.Join(prose.Wrap(text, min(max(width, 60), 100)), "\n")
}

// wrappedPoint is a line of a list, of what is said of label, wrapped behind it.
func wrappedPoint(label string, width int, format string, args ...any) string {
	const at = 30
	text := strings.Join(prose.Wrap(fmt.Sprintf(format, args...), min(max(width, 60), 100)-at), "\n"+strings.Repeat(" ", at))
	return fmt.Sprintf("%-*s%s\n", at, label, text)
}

// ending says where the time went and where the table is.
func ending(steps map[string]float64, total float64, table string, width int) string {
	return wrapped(fmt.Sprintf("\nSeconds: %s; %.1f in all", stepSeconds(steps), total), width) + "\n" + place("Table:   ", table)
}

// place is a line that says where a file is; none where it could not be written.
func place(what, path string) string {
	if path == "" {
		return ""
	}
	return what + path + "\n"
}

// stepSeconds are the seconds of each step of a lab, in order.
func stepSeconds(steps map[string]float64) string {
	var each []string
	for _, name := range []string{rehearsing, starting, enrolling, "upload", "verify", "collect", "draw"} {
		if s, ok := steps[name]; ok {
			each = append(each, fmt.Sprintf("%s %.1f", name, s))
		}
	}
	return strings.Join(each, ", ")
}

// see fills in what each party saw.
func (r *Report) see(c *client.Client, rec *recipe.Recipe) {
	rows := r.Sent - r.Malicious
	r.Saw = []Sight{
		{"each client", "its own answer, the recipe, and the guarantee that it computed before it answered"},
		{"leader", fmt.Sprintf("%s sealed reports of %s bytes on average, from whom and when; it could open its own half of "+
			"each, which is uniformly random, and never both", prose.Count(float64(r.Sent)), prose.Count(float64(r.LeaderBytes)/float64(rows)))},
		{"helper", fmt.Sprintf("the other halves, %s bytes on average, from the leader alone; uniformly random too",
			prose.Count(float64(r.HelperBytes)/float64(rows)))},
		{"collector", fmt.Sprintf("the sum of %s reports: %d numbers with both servers' noise in them",
			prose.Count(float64(r.Accepted)), rec.Query.Aggregates())},
	}
}

// WorstError is the largest distance of an estimate from the truth, in standard errors.
func (r *Report) WorstError() float64 {
	worst := 0.0
	for i := range r.Estimate {
		worst = max(worst, math.Abs(r.Estimate[i]-float64(r.Truth[i]))/r.Stderr[i])
	}
	return worst
}

// maxWorstError is more standard errors than honest noise reaches: 6 of Gaussian noise happen
// to one bucket in 5 * 10^8. The tail of Laplace noise is heavier, and that of what a few
// hundred devices draw can be: maxHeavyError of one Laplace variable happen to one bucket in
// 2 * 10^7, of two that are added up, as in sums by group and behind a cloak, to fewer.
const (
	maxWorstError = 6
	maxHeavyError = 12
)

// reach is how many standard errors honest noise may reach.
func (r *Report) reach() float64 {
	if r.Cloaked != nil || len(r.Groups) > 0 {
		return maxHeavyError
	}
	return maxWorstError
}

// Check says what must not be in a lab's report: a lost or a spurious report, or an
// estimate beyond its noise.
func (r *Report) Check() error {
	rejected := r.rejected()
	switch honest := r.Sent - r.Malicious; {
	case r.Accepted != honest:
		return fmt.Errorf("lab: %d reports were accepted and %d were honest", r.Accepted, honest)
	case rejected != r.Malicious:
		return fmt.Errorf("lab: %d reports were rejected and %d were malicious", rejected, r.Malicious)
	case r.Sampled != nil && r.checkSampled() != nil:
		return r.checkSampled()
	case r.Cloaked != nil && r.checkCloak() != nil:
		return r.checkCloak()
	case !(r.WorstError() <= r.reach()):
		return fmt.Errorf("lab: an estimate is %.1f standard errors off; more than %g is no noise", r.WorstError(), r.reach())
	}
	return nil
}

// Chart is the report as a picture.
func (r *Report) Chart() *chart.Histogram {
	h := &chart.Histogram{
		Title: "Visits to a doctor in a year",
		Subtitle: fmt.Sprintf("RAND Health Insurance Experiment: %s sealed reports, one a person and year; no server ever read one",
			prose.Count(float64(r.Accepted))),
		XLabel: "visits", YLabel: "reports", Labels: r.Labels, Estimate: r.Estimate, Interval: r.Interval95, Caption: r.Guarantee,
	}
	if r.Sampled != nil {
		h.YLabel, h.Sampled = "devices", true
		h.Subtitle = fmt.Sprintf("RAND Health Insurance Experiment, resampled: %s devices, of which %s reported in secret",
			prose.Count(float64(r.Population)), prose.Count(float64(r.Answers)/float64(r.Rounds)))
		if r.KnownSample {
			h.Subtitle = fmt.Sprintf("RAND Health Insurance Experiment, resampled: %s devices, of which %s were asked",
				prose.Count(float64(r.Population)), prose.Count(float64(r.Answers)/float64(r.Rounds)))
		}
		if r.Question == Needles {
			h.Title = "Visits to a doctor in a year, of those with 8 or more"
		}
	}
	if w := r.words; w.title != "" {
		h.Title, h.XLabel, h.YLabel = w.title, w.x, w.y
		h.Subtitle = fmt.Sprintf("RAND Health Insurance Experiment: %s sealed reports of %s proved; no server ever read one",
			prose.Count(float64(r.Accepted)), w.answer)
		if w.subtitle != "" {
			h.Subtitle = w.subtitle
		}
	}
	for _, t := range r.Truth {
		h.Truth = append(h.Truth, float64(t))
	}
	return h
}

// WriteCSV writes a line for each bucket: label, estimate, standard error, 95 % interval
// and truth.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write([]string{"bucket", "estimate", "stderr", "low95", "high95", "truth"})
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	for i, label := range r.Labels {
		c.Write([]string{label, number(r.Estimate[i]), number(r.Stderr[i]), number(r.Interval95[i][0]), number(r.Interval95[i][1]),
			strconv.FormatInt(r.Truth[i], 10)})
	}
	c.Flush()
	return c.Error()
}

// because says in words what the reasons mean for which the lab's malicious reports are
// rejected.
var because = map[string]string{
	dap.HpkeDecryptError.String():       "a share that does not open: garbled, or sealed to another key",
	dap.ReportDropped.String():          "a time outside of the recipe's window",
	dap.ReportReplayed.String():         "a report that had come before",
	dap.VDAFVerifyError.String():        "a proof that fails: an answer that is none, or a forged one",
	string(dap.ProblemInvalidMessage):   "an upload that cannot be read",
	string(dap.ProblemUnrecognizedTask): "a report for another task",
}

// WriteText writes the report for people, at most width columns wide; plain keeps to ASCII.
func (r *Report) WriteText(w io.Writer, width int, plain bool) error {
	h := r.Chart()
	fmt.Fprintf(w, "%s\n%s\n\n", h.Title, wrapped(h.Subtitle, width))
	r.writeDeciles(w)
	r.writeGroups(w)
	r.writeCloak(w)
	r.writeMixed(w, width)
	if err := h.WriteText(w, width, plain); err != nil {
		return err
	}
	if note := h.BelowZero(); note != "" {
		fmt.Fprintf(w, "\n%s\n", wrapped(note, width))
	}
	fmt.Fprintf(w, "\n%s\n", wrapped(r.Guarantee, width))
	if r.Sampled != nil {
		r.writeSampled(w, min(max(width, 60), 100))
	}
	fmt.Fprintln(w, "\nWhat each party saw")
	for _, s := range r.Saw {
		for i, line := range prose.Wrap(s.Saw, min(max(width, 60), 100)-14) {
			fmt.Fprintf(w, "  %-11s %s\n", map[bool]string{true: s.Party}[i == 0], line)
		}
	}
	fmt.Fprintf(w, "\nReports: %s sent, %s accepted", prose.Count(float64(r.Sent)), prose.Count(float64(r.Accepted)))
	if len(r.Rejected) == 0 {
		fmt.Fprint(w, ", none rejected")
	}
	fmt.Fprintln(w)
	for _, reason := range slices.Sorted(maps.Keys(r.Rejected)) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %8s rejected: %-18s %s", prose.Count(float64(r.Rejected[reason])), reason,
			because[reason]), " "))
	}
	if r.Malicious > 0 {
		fmt.Fprintf(w, "  %s were malicious; the worst bucket is %.1f standard errors from the truth, as if they had stayed away\n",
			prose.Count(float64(r.Malicious)), r.WorstError())
	}
	fmt.Fprintln(w, wrapped(fmt.Sprintf("\nSeconds: %s; %.1f in all, %s reports a second from device to result", stepSeconds(r.SecondsByStep), r.SecondsTotal,
		prose.Count(r.ReportsPerSecond)), width))
	_, err := io.WriteString(w, place("Picture: ", r.Picture)+place("Table:   ", r.Table))
	return err
}
