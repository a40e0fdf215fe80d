package recipe

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Views are several granularities of one collection, such as day, week and month: each
// round is released by itself, and again in a batch of each wider view, with noise of its
// own. Every report is in one batch of every view, and the guarantee is of all of them
// together, whether they are asked for or not.
//
// Batches of a view of n rounds begin with rounds whose number is a multiple of n. Until the
// last batch that contains a round is released, or Keep is over, leader and helper keep the
// round's verified sum under the data key of its time; see docs/released.md.
type Views struct {
	// Round is the name of the view that is one round, whose noise is the recipe's.
	Round string
	// Keep is for how many rounds after the end of a span of the widest view the batches
	// in it may be asked for: 1 to MaxViewRounds. Then their sums are destroyed.
	Keep uint32
	// Wider are the other views, spans rising, each a multiple of the one before: 1 to
	// MaxViews-1.
	Wider []View
}

// A View is a granularity of more than one round.
type View struct {
	// Name is 1 to MaxViewName of a-z, 0-9 and -, unlike that of every other view.
	Name string
	// Rounds is the span of a batch, 2 to MaxViewRounds.
	Rounds uint32
	// Parameter is that of the recipe's kind of noise in a batch of this view: its
	// variance, or its scale.
	Parameter Rational
}

// Bounds of [Views].
const (
	MaxViews      = 8 // the round's own included
	MaxViewName   = 32
	MaxViewRounds = 1 << 12
)

// A Granularity is a view as it is released: its name, span and noise.
type Granularity struct {
	Name   string
	Rounds uint32
	Noise  Noise
}

// Granularities are the views of a recipe, the narrowest first; nil for a recipe without
// any.
func (r *Recipe) Granularities() []Granularity {
	if r.Views == nil {
		return nil
	}
	list := []Granularity{{r.Views.Round, 1, r.Noise}}
	for _, v := range r.Views.Wider {
		list = append(list, Granularity{v.Name, v.Rounds, r.Noise.Sized(v.Parameter)})
	}
	return list
}

// A ViewError is a name that no view of a recipe has.
type ViewError struct {
	Name  string
	Names []string // those of the recipe; none where it has no views
}

func (e *ViewError) Error() string {
	if len(e.Names) == 0 {
		return fmt.Sprintf("recipe: it has no views, and so none of the name %q", e.Name)
	}
	return fmt.Sprintf("recipe: no view is called %q; there are %s", e.Name, strings.Join(e.Names, ", "))
}

// View returns the view of a name, or a *[ViewError].
func (r *Recipe) View(name string) (Granularity, error) {
	e := &ViewError{Name: name}
	for _, g := range r.Granularities() {
		if g.Name == name {
			return g, nil
		}
		e.Names = append(e.Names, g.Name)
	}
	return Granularity{}, e
}

// ViewOf is the view of which an interval is a batch; false for an interval that is none,
// and for a recipe without views.
func (r *Recipe) ViewOf(asked dap.Interval) (Granularity, bool) {
	for _, g := range r.Granularities() {
		if n, whole := asked.Split(r.BatchUnits() * uint64(g.Rounds)); whole && n == 1 {
			return g, true
		}
	}
	return Granularity{}, false
}

// InView is the recipe with the noise of a view in the place of the round's: for estimates
// from a batch of that view. It is another recipe, by its id.
func (r *Recipe) InView(g Granularity) *Recipe {
	in := *r
	in.Noise = g.Noise
	return &in
}

// ViewUnits is the span of a view in units of TimePrecision.
func (r *Recipe) ViewUnits(g Granularity) uint64 { return r.BatchUnits() * uint64(g.Rounds) }

// widest is the last of Granularities; a round where there are none.
func (r *Recipe) widest() uint64 {
	if r.Views == nil || len(r.Views.Wider) == 0 {
		return 1
	}
	return uint64(r.Views.Wider[len(r.Views.Wider)-1].Rounds)
}

// addViews writes
//
//	struct { opaque round<1..2^8-1>; uint32 keep; View wider[]; }   // to the end of the extension
//	View: struct { opaque name<1..2^8-1>; uint32 rounds; Rational parameter; }
func addViews(b *cryptobyte.Builder, s *Views) {
	name := func(text string) {
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(text)) })
	}
	name(s.Round)
	b.AddUint32(s.Keep)
	for _, v := range s.Wider {
		name(v.Name)
		b.AddUint32(v.Rounds)
		addRational(b, v.Parameter)
	}
}

func readViews(d *decoder) *Views {
	s := &Views{Round: string(d.bytes8("views")), Keep: d.u32("views")}
	for d.err == nil && !d.s.Empty() {
		v := View{Name: string(d.bytes8("view")), Rounds: d.u32("view"), Parameter: d.rational("view")}
		if s.Wider = append(s.Wider, v); len(s.Wider) >= MaxViews {
			d.fail(fmt.Sprintf("more than %d views", MaxViews))
		}
	}
	return s
}

// views refuses what is not accounted for, and what no server could keep to.
func (v *validator) views(r *Recipe) {
	s := r.Views
	if s == nil {
		return
	}
	if !v.between("views", uint64(1+len(s.Wider)), 2, MaxViews) {
		return
	}
	v.viewNames(s)
	before := uint64(1)
	for i, w := range s.Wider {
		field := fmt.Sprintf("views[%d]", i+1)
		if !v.between(field+".rounds", uint64(w.Rounds), 2, MaxViewRounds) {
			return
		}
		if n := uint64(w.Rounds); n <= before || n%before != 0 {
			v.add(field+".rounds", "is %d, which is not a larger multiple of the %d of the view before", n, before)
		}
		before = uint64(w.Rounds)
	}
	if !v.between("views.keep", uint64(s.Keep), 1, MaxViewRounds) {
		return
	}
	if hi, seconds := bits.Mul64(r.RoundUnits()*(before+uint64(s.Keep)), uint64(r.TimePrecision)); r.RoundUnits() <= MaxRoundUnits && (hi != 0 || seconds > MaxRound) {
		v.add("views.keep", "is %d rounds after a span of %d: sums would be kept for more than %d seconds", s.Keep, before, MaxRound)
	}
	v.viewed(r)
	units := r.RoundUnits() * before
	if w, ok := r.Window.(Between); ok && r.RoundUnits() <= MaxRoundUnits && (uint64(w.Start)%units != 0 || uint64(w.End)%units != 0) {
		first := uint64(w.Start) / units * units
		v.add("window", "is from unit %d to %d, which is not of whole spans of the widest view, %d units from a multiple of that on: take %d to %d",
			w.Start, w.End, units, first, max(first+units, (uint64(w.End)+units-1)/units*units))
	}
}

// viewed refuses choices that are not accounted for together with views.
func (v *validator) viewed(r *Recipe) {
	no := func(field, why string) { v.add(field, "does not go with views: %s", why) }
	if r.Path == nil || r.Noise == nil || r.Randomizer == nil || r.Participation == nil {
		return
	}
	if !r.Path.Proofs() || r.on().leaderSelected() {
		no("path", "they are spans of time that leader and helper each hold releases to")
	}
	if r.Sampled() {
		no("participation", "dummies are counted for one round, so that coins hide nothing in a wider span; let every device take part")
	}
	if r.Targeting != nil {
		no("targeting", "the number of devices that fit is certified for one round")
	}
	if r.Rate != nil {
		no("rate", "it is held against one round")
	}
	if r.Randomized() {
		no("randomizer", "its reports hide among those of one batch, and not in the difference between two")
		return
	}
	if _, ok := r.Correlated(); ok {
		no("noise", "correlated noise is drawn once for each round")
		return
	}
	const laplace = 1
	switch {
	case !r.Noisy():
		if !v.early {
			no("noise", "the difference between two exact results is of as few reports as anybody likes")
		}
		return
	case r.Noise.norm() == laplace && r.DecisionRounds() > 1:
		no("claim.rounds", "with discrete-laplace noise one person is in one round; with discrete-gaussian noise in several")
	case r.Noise.norm() != laplace && r.summed():
		if c, ok := r.Claim.(ApproxDP); ok && c.HonestServers > 1 {
			no("claim.honest_servers", "the noise of two servers is not counted together for several reports of one person, nor for vectors; want 1")
		}
	}
	v.viewNoise(r)
}

// viewNoise says whether the noise of each view can be drawn.
func (v *validator) viewNoise(r *Recipe) {
	for i, g := range r.Granularities()[1:] {
		field := fmt.Sprintf("views[%d].parameter", i+1)
		if !r.Views.Wider[i].Parameter.Valid() {
			v.add(field, "is not a positive fraction in lowest terms")
		} else if _, err := g.Noise.Sampler(); err != nil {
			v.add(field, "cannot be drawn: %v", err)
		}
	}
}

func (v *validator) viewNames(s *Views) {
	names := []string{s.Round}
	for _, w := range s.Wider {
		names = append(names, w.Name)
	}
	for i, name := range names {
		field := fmt.Sprintf("views[%d].name", i)
		strange := func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') }
		switch {
		case len(name) < 1 || len(name) > MaxViewName || strings.ContainsFunc(name, strange) || name[0] == '-':
			v.add(field, "is %q, want 1 to %d of a-z, 0-9 and -", name, MaxViewName)
		case slices.Index(names, name) < i:
			v.add(field, "is %q, as another's", name)
		}
	}
}

// summed says whether what views tell is known by its zCDP alone.
func (r *Recipe) summed() bool {
	return r.DecisionRounds() > 1 || r.Query != nil && r.Query.Contribution().Anywhere()
}

// viewed is what one of the claim's rounds tells through all views. Where one unit is in one
// round its report is in one batch of each, and nothing else of it is released. Where it may
// be in several, as many of its reports meet in a batch as the span has rounds, and what
// they tell together is bounded by their distance (docs/proofs/views.md): for a claim of R
// rounds, a view of n rounds costs at most R min(R, n) times what one report costs.
func (r *Recipe) viewed(s Situation) (x Disclosure, err error) {
	c, rounds := r.Query.Contribution(), uint64(r.DecisionRounds())
	rho := new(big.Rat)
	for _, g := range r.Granularities() {
		m, err := g.Noise.Mechanism(c, s.Servers)
		if err != nil {
			return x, err
		}
		normal, ok := m.(release.DiscreteGaussian)
		switch {
		case !r.summed() || !ok && rounds == 1:
			x.Releases = append(x.Releases, release.One(m))
			continue
		case !ok:
			return x, uncomputed(errors.New("several reports of one person meet in a batch, which is accounted for with discrete-gaussian noise alone"))
		}
		one, err := normal.Concentrated(r.KnownNeighbours())
		if err != nil {
			return x, err
		}
		rho.Add(rho, one.Mul(one, new(big.Rat).SetUint64(min(rounds, uint64(g.Rounds)))))
	}
	if len(x.Releases) == 0 {
		x.Releases = []release.Release{release.One(release.ZCDP{Rho: release.Above(rho)})}
	}
	return x, nil
}

// describeViews says what each view is and how long the servers keep what they are drawn
// from.
func (r *Recipe) describeViews(line func(label, format string, args ...any)) {
	if r.Views == nil {
		return
	}
	for i, g := range r.Granularities() {
		label := ""
		if i == 0 {
			label = "Views"
		}
		line(label, "%s: %s, %s; noise of standard deviation %.4g in each number", g.Name, count(uint64(g.Rounds), "round", "rounds"),
			duration(r.ViewUnits(g), r.TimePrecision), g.Noise.Spread().Deviation)
	}
	line("", "each report is in one batch of each of the %d; the guarantee counts all of them, each at most once, whether they are asked for or not. "+
		"They begin with rounds whose number, counted from 1970, is a multiple of their span. A report counts until the first batch with its round is released",
		1+len(r.Views.Wider))
	line("", "the least batch holds for each batch of each view. The difference of two may be of fewer reports; what hides these is the noise of both")
	grace := ""
	if r.Grace() > 0 {
		grace = fmt.Sprintf(", %v of grace", r.Grace())
	}
	line("", "the servers keep the verified sum of a round until the last of its views is released: for %s at most after the round began%s "+
		"and the clock skew that they allow; then it is destroyed", duration((r.widest()+uint64(r.Views.Keep))*r.BatchUnits(), r.TimePrecision), grace)
}

// A viewsJSON is what programs are shown of a recipe's views.
type viewsJSON struct {
	Keep  uint32     `json:"keep"` // rounds
	Views []viewJSON `json:"views"`
	// KeptSeconds is how long after its beginning a round's sum is kept at most, without
	// the clock skew that servers allow.
	KeptSeconds uint64 `json:"kept_seconds"`
}

type viewJSON struct {
	Name      string  `json:"name"`
	Rounds    uint32  `json:"rounds"`
	Noise     any     `json:"noise"`
	Deviation float64 `json:"deviation"`
}

// viewsForm is nil for a recipe without views.
func (r *Recipe) viewsForm() *viewsJSON {
	if r.Views == nil {
		return nil
	}
	out := &viewsJSON{Keep: r.Views.Keep,
		KeptSeconds: (r.widest()+uint64(r.Views.Keep))*r.BatchUnits()*uint64(r.TimePrecision) + uint64(r.Grace().Seconds())}
	for _, g := range r.Granularities() {
		out.Views = append(out.Views, viewJSON{g.Name, g.Rounds, g.Noise.params(), g.Noise.Spread().Deviation})
	}
	return out
}
