package recipe

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Bounds that [Recipe.Validate] holds a recipe to.
const (
	MaxName        = 100  // bytes
	MaxDescription = 4096 // bytes
	MaxStatement   = 1024 // bytes
	MaxURL         = 1024 // bytes
	// MaxMeasurement keeps 2^30 of the largest answers, and the noise on top, inside a
	// 64-bit field's positive half.
	MaxMeasurement = 1 << 32
	// MaxElements bounds the field elements that encode one answer.
	MaxElements = 1 << 20
	// MinBatchFloor is the least B: a batch of one is a person.
	MinBatchFloor = 2
	MaxMinBatch   = 1 << 30
	// MaxTimePrecision is 366 days in seconds.
	MaxTimePrecision = 366 * 86400
	MaxRounds        = 1 << 20
)

// InvalidError is one reason why a recipe is refused. [Recipe.Validate] joins them.
type InvalidError struct {
	Field   string // dotted, as in the JSON form: "query.length"
	Problem string
}

func (e *InvalidError) Error() string { return "recipe: " + e.Field + " " + e.Problem }

// Validate returns every reason to refuse the recipe, joined: *[InvalidError] for what is
// out of bounds. A [Prover] says what the choices guarantee, and whether that bears out
// the claim.
func (r *Recipe) Validate() error {
	if err := r.Sound(true); err != nil {
		return err
	}
	if !r.Path.Proofs() {
		return nil
	}
	task, err := r.Task()
	if err != nil {
		return err
	}
	if _, err := task.VDAF(); err != nil {
		return &InvalidError{"query", fmt.Sprintf("has no VDAF: %v", err)}
	}
	return nil
}

// Sound says whether the choices are in bounds and go together; where settled is false,
// while dummies and claim have not been chosen yet.
func (r *Recipe) Sound(settled bool) error {
	v := validator{early: !settled}
	v.all(r)
	return errors.Join(v.errs...)
}

// all checks the fields, and those that go together.
func (v *validator) all(r *Recipe) {
	v.text("name", r.Name, 1, MaxName, false)
	v.text("description", r.Description, 0, MaxDescription, true)
	v.query(r.Query)
	v.randomizer(r)
	if r.Participation == nil {
		v.add("participation", "is missing")
	}
	v.path(r)
	v.noise(r)
	v.claim(r)
	v.between("min_batch", r.MinBatch, MinBatchFloor, MaxMinBatch)
	v.between("time_precision", uint64(r.TimePrecision), 1, MaxTimePrecision)
	v.window(r.Window, r.TimePrecision)
	v.rounds(r)
	if p := r.Population; p != nil {
		v.text("population.statement", p.Statement, 1, MaxStatement, true)
		v.between("population.expected", p.Expected, 0, math.MaxInt64)
	}
	v.targeting(r)
	v.unit(r)
	v.participation(r)
	v.wholeBatch(r)
	v.laplaced(r)
	v.owners(r)
	v.projection(r)
	v.vectorRoom(r)
	v.serverKeys(r)
	v.tokens(r)
	v.labels(r)
	v.views(r)
	v.training(r)
}

type validator struct {
	errs []error
	// early: dummies and claim have not been chosen yet.
	early bool
}

func (v *validator) add(field, format string, args ...any) {
	v.errs = append(v.errs, &InvalidError{field, fmt.Sprintf(format, args...)})
}

// between also says whether x is in order, for checks that make sense only then.
func (v *validator) between(field string, x, least, most uint64) bool {
	if x < least || x > most {
		v.add(field, "is %d, want %d to %d", x, least, most)
		return false
	}
	return true
}

// text refuses what a person could not read as it was written: control and format
// characters reorder or hide text. Zero-width (non-)joiners are spelling in several
// scripts and stay.
func (v *validator) text(field, s string, least, most int, lines bool) {
	if len(s) < least || len(s) > most {
		v.add(field, "has %d bytes, want %d to %d", len(s), least, most)
	}
	if !utf8.ValidString(s) {
		v.add(field, "is not UTF-8")
		return
	}
	for _, c := range s {
		if !unicode.IsPrint(c) && c != '\u200c' && c != '\u200d' && !(lines && c == '\n') {
			v.add(field, "contains the character %U, which cannot be shown", c)
			return
		}
	}
	if strings.TrimSpace(s) != s {
		v.add(field, "begins or ends with white space")
	}
}

func (v *validator) url(field, s string) {
	if len(s) < 1 || len(s) > MaxURL {
		v.add(field, "has %d bytes, want 1 to %d", len(s), MaxURL)
		return
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			v.add(field, "is not printable ASCII")
			return
		}
	}
	u, err := dap.BaseURL([]byte(s))
	if err != nil {
		v.add(field, "is not an absolute URL without user, query and fragment")
		return
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		v.add(field, "is http to a host that is not loopback; want https")
	}
	if _, err := ownerOf(u); err != nil {
		v.add(field, "%v", err)
	}
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func (v *validator) claim(r *Recipe) {
	switch c := r.Claim.(type) {
	case nil:
		v.add("claim", "is missing")
	case NoClaim:
		if !v.early && r.Noise != nil && r.Randomizer != nil && !r.Exact() {
			v.add("claim", "is missing although noise is added: state epsilon and delta")
		}
	case ApproxDP:
		if c.Epsilon.Coefficient == 0 || !c.Epsilon.Valid() {
			v.add("claim.epsilon", "is not a decimal above 0 in its shortest form")
		}
		if !c.Delta.Valid() || c.Delta.FloatDown() >= 1 {
			v.add("claim.delta", "is not a decimal from 0 on, below 1, in its shortest form")
		}
		if c.Delta == (Decimal{}) {
			if why := r.Impure(); why != "" {
				v.add("claim.delta", "%s", why)
			}
		}
		if want := r.Neighbours(); c.Neighbours != want {
			why := "everyone sees the count"
			if want == release.AddRemove {
				why = "coins and dummies hide who answers"
			}
			v.add("claim.neighbours", "are %v, want %v: %s", c.Neighbours, want, why)
		}
		least, most := r.on().Honest()
		v.between("claim.honest_servers", uint64(c.HonestServers), uint64(least), uint64(most))
		v.between("claim.rounds", uint64(c.Rounds), 1, MaxRounds)
	}
}

// Impure says why a claim of delta 0 cannot hold, and nothing where it can.
func (r *Recipe) Impure() string {
	const only = "is 0, which only whole-number Laplace noise of the servers gives: "
	switch {
	case r.Noise == nil || r.Randomizer == nil:
	case r.Randomized() && !r.on().mixes():
	case r.Randomized():
		return only + "reports that devices blur hide among others but for a chance above 0"
	case !r.Noise.Pure():
		return only + "Gaussian noise lets a result tell any amount, with a chance that is small and above 0"
	case r.Amplified():
		return only + "with coins it is above 0, for the chance that dummies are too few to hide who answers"
	}
	return ""
}

func (v *validator) window(w Window, p dap.TimePrecision) {
	switch w := w.(type) {
	case nil:
		v.add("window", "is missing")
	case Between:
		if w.End <= w.Start {
			v.add("window.end", "is %d, not after the start %d", w.End, w.Start)
		}
		if _, err := p.Begin(w.End); err != nil && p >= 1 {
			v.add("window.end", "is %d units of %d seconds, after the year 9999", w.End, p)
		}
	}
}
