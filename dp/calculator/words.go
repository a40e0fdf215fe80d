package calculator

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/prose"
)

// MarshalJSON writes one flat object: epsilon, epsilon_lower, delta, delta_lower if delta
// was asked for, neighbours, method, theorem, assumptions, and the parameter that was
// solved for under its name.
func (a *Answer) MarshalJSON() ([]byte, error) {
	out := struct {
		release.Guarantee
		Sigma       float64  `json:"sigma,omitempty"`
		Scale       float64  `json:"scale,omitempty"`
		Sampling    float64  `json:"sampling,omitempty"`
		Steps       uint64   `json:"steps,omitempty"`
		Count       Count    `json:"count"`
		Assumptions []string `json:"assumptions"`
	}{Guarantee: a.Guarantee, Count: a.Question.Count, Assumptions: append([]string{}, a.Assumptions...)}
	switch a.Question.Solve {
	case SolveSigma:
		out.Sigma = a.Solved
	case SolveScale:
		out.Scale = a.Solved
	case SolveSampling:
		out.Sampling = a.Solved
	case SolveSteps:
		out.Steps = uint64(a.Solved)
	}
	return json.Marshal(out)
}

// WriteText writes the answer for people, at most width columns wide, 100 if 0 or more: a
// sentence, then the numbers and what they stand on.
func (a *Answer) WriteText(w io.Writer, width int) error {
	width = prose.Columns(width, 100)
	q := &a.Question
	var b strings.Builder
	if q.Solve != "" {
		fmt.Fprintf(&b, "%s of %s %s is enough: ", title(string(q.Solve)), a.solved(), solvedWord(q.Solve))
		b.WriteString(q.released())
	} else {
		b.WriteString(title(q.released()))
	}
	if a.Direction == release.BothDirections {
		fmt.Fprintf(&b, " (%s, %s)-differentially private. Whether %s, any result is at most %s times as likely, except with probability %s.",
			above(a.Epsilon), above(a.Delta), relation(a.Neighbours), factor(a.Epsilon), above(a.Delta))
	} else {
		one, other := oneWay(a.Neighbours, a.Direction)
		fmt.Fprintf(&b, " bounded in one direction: %s, any result is at most %s times as likely as %s, except with probability %s. Differential privacy "+
			"is the larger of this and the other direction.", one, factor(a.Epsilon), other, above(a.Delta))
	}
	sentence := b.String()
	b.Reset()
	for _, s := range prose.Wrap(sentence, width) {
		b.WriteString(s + "\n")
	}
	b.WriteString("\n")
	line := func(label, format string, args ...any) {
		for _, s := range prose.Wrap(fmt.Sprintf(format, args...), width-14) {
			fmt.Fprintf(&b, "%-14s%s\n", label, s)
			label = ""
		}
	}
	if q.Delta != 0 {
		line("epsilon", "%s", bracket(a.Epsilon, a.EpsilonLower))
		line("delta", "%s", above(a.Delta))
	} else {
		line("epsilon", "%s", above(a.Epsilon))
		line("delta", "%s", bracket(a.Delta, a.DeltaLower))
	}
	if q.Solve != "" {
		line(string(q.Solve), "%s", a.solved())
	}
	line("neighbours", "%s", a.Neighbours)
	if a.Direction != release.BothDirections {
		line("direction", "%s only", a.Direction)
	}
	line("count", "%s", q.Count)
	line("method", "%s", a.Method)
	line("theorem", "%s", a.Theorem)
	for i, s := range a.Assumptions {
		label := ""
		if i == 0 {
			label = "assuming that"
		}
		line(label, "- %s", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// solved is the value that was solved for, on its safe side.
func (a *Answer) solved() string {
	switch a.Question.Solve {
	case SolveSigma, SolveScale:
		return above(a.Solved)
	case SolveSampling:
		return below6(a.Solved)
	}
	return fmt.Sprint(uint64(a.Solved))
}

func solvedWord(p Parameter) string {
	if p == SolveSigma || p == SolveScale {
		return "or more"
	}
	return "or less"
}

// released says what is released: "2500 releases of ... are together", or "... is".
func (q *Question) released() string {
	if len(q.Releases) == 1 && q.Releases[0].Count == 1 {
		return q.Releases[0].String() + ", is"
	}
	var parts []string
	for _, r := range q.Releases {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, ", and ") + ", are together"
}

// relation completes "whether ..." .
func relation(n release.Neighbours) string {
	switch n {
	case release.AddRemove:
		return "a person takes part or not"
	case release.ZeroOut:
		return "a person's record counts or counts as nothing"
	}
	return "a person's record says one thing or any other"
}

// oneWay says which results are compared with which.
func oneWay(n release.Neighbours, d release.Direction) (one, other string) {
	switch {
	case n == release.ZeroOut && d == release.Add:
		return "if a person's record counts as nothing", "if it counts"
	case n == release.ZeroOut:
		return "if a person's record counts", "if it counts as nothing"
	case d == release.Add:
		return "if a person takes no part", "if they do"
	}
	return "if a person takes part", "if they do not"
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// bracket writes a bound with what is known from below.
func bracket(upper, lower float64) string {
	if lower > 0 {
		return fmt.Sprintf("%s (rounded up; nothing below %s holds)", above(upper), below6(lower))
	}
	return above(upper) + " (rounded up)"
}

// above writes x with six digits, rounded up; below6 rounds down.
func above(x float64) string { return six(x, 1) }

func below6(x float64) string { return six(x, -1) }

func six(x, way float64) string {
	if x == 0 || math.IsInf(x, 0) {
		return fmt.Sprint(x)
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(x)))
	if x < 1e-300 { // scale overflows
		return fmt.Sprint(x)
	}
	digits := x * scale
	if math.Abs(digits-math.Round(digits)) < 1e-8 { // the digits are exact but for the arithmetic here
		digits = math.Round(digits)
	} else if way > 0 {
		digits = math.Ceil(digits)
	} else {
		digits = math.Floor(digits)
	}
	return fmt.Sprintf("%.6g", digits/scale)
}

// factor writes e^epsilon, rounded up.
func factor(epsilon float64) string {
	if epsilon > 12 {
		return "e^" + above(epsilon)
	}
	return fmt.Sprintf("%.4g", math.Ceil(outward.Up(math.Exp(epsilon))*1000)/1000)
}
