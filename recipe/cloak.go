package recipe

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// Cloak splits an answer into random residues, of which a shuffler hides whose they are and
// only the sum of all tells anything (package shuffle/cloak; docs/proofs/cloak.md). It is
// for every query but [Vector]: what is added up is the vector of whole numbers that encodes
// an answer, and the noise and delta are those of the query's [release.Sensitivity]. The
// numbers of messages and the modulus stand here, for all devices must have the same; that
// these give Epsilon and Delta each checks for itself. Rounds are composed as any others.
//
// A batch of more contributions than Users releases nothing, on purpose. A sum has no room
// for more; and a batch that was cut to Users by lot could hold too few of the Honest: who
// sends contributions of their own could push others out. So anyone who can send may keep
// a result from being known, and nobody may make it tell more.
type Cloak struct {
	// Kind is by which theorem.
	Kind CloakKind
	// Users is the most contributions that a batch has room for, MinBatch or more; with
	// Parts, each of them.
	Users uint64
	// Honest is how many of each batch are counted on to follow the recipe and to keep what
	// they draw to themselves: 2 to MinBatch; with Parts, of all of a round together, at
	// most Parts times as many.
	Honest uint64
	// Epsilon and Delta are those of one round: of one device's answer, or for
	// [SumPreservingCloak] of answers of the same sum, which is exact.
	Epsilon, Delta Decimal
	// Messages is how many each block of numbers has, and Modulus that of the residues.
	// account.New chooses both where they are zero.
	Messages uint16
	Modulus  uint64
	// Block is how many numbers of an answer one message is for; 1 where they are one.
	// account.New chooses it where it is zero.
	Block uint16
	// Parts is how many independent batches a round is collected in, 3 to MaxParts, or 1:
	// each device draws one of them, and what spoils one leaves the others
	// ([Recipe.PartRounds]). For [ModernCloak] alone.
	Parts uint16
}

// MaxParts is the most independent batches of a round of a [Cloak].
const MaxParts = 64

// A CloakKind is the theorem by which the messages of a [Cloak] hide answers.
type CloakKind uint8

const (
	// ModernCloak: each device adds a share of the noise; few messages are enough.
	ModernCloak CloakKind = 1
	// SingleUserCloak: some devices add large noise, by the paper's first theorem.
	SingleUserCloak CloakKind = 2
	// SumPreservingCloak: nobody adds noise, and the sum is exact; the paper's second
	// theorem hides all else.
	SumPreservingCloak CloakKind = 3
)

func (k CloakKind) String() string { return nameOf("cloak", uint16(k)) }

// CloakKinds are all kinds, in the order of their numbers.
var CloakKinds = []CloakKind{ModernCloak, SingleUserCloak, SumPreservingCloak}

// choose is the constructor of a kind's parameters.
func (k CloakKind) choose() func(cloak.Options) (*cloak.Params, error) {
	return map[CloakKind]func(cloak.Options) (*cloak.Params, error){
		ModernCloak: cloak.Modern, SingleUserCloak: cloak.SingleUser, SumPreservingCloak: cloak.SumPreserving,
	}[k]
}

func (z Cloak) String() string {
	what := fmt.Sprintf("its answer into %d random numbers", z.Messages)
	if z.Block > 1 {
		what = fmt.Sprintf("each %d numbers of its answer into %d random vectors", z.Block, z.Messages)
	}
	text := fmt.Sprintf("the device splits %s modulo %d, of which only the sum of everybody's tells anything "+
		"(invisibility cloak, %s, epsilon %s and delta %s a round", what, z.Modulus, z.Kind, z.Epsilon, z.Delta)
	if z.parted() {
		text += fmt.Sprintf(", in one of %d batches that it draws", z.Parts)
	}
	switch z.Kind {
	case ModernCloak:
		return text + "), with its share of the noise"
	case SingleUserCloak:
		return text + "), now and then with large noise"
	}
	return text + " for answers of the same sum), without noise: the sum is exact"
}

func (Cloak) randomizer() uint8 { return tagCloak }

func (z Cloak) append(b *cryptobyte.Builder) {
	b.AddUint8(uint8(z.Kind))
	b.AddUint64(z.Users)
	b.AddUint64(z.Honest)
	addDecimal(b, z.Epsilon)
	addDecimal(b, z.Delta)
	b.AddUint16(z.Messages)
	b.AddUint64(z.Modulus)
	// Recipes of one number in one batch are older than these two.
	if z.Block != 1 || z.Parts != 1 {
		b.AddUint16(z.Block)
		b.AddUint16(z.Parts)
	}
}

func readCloak(d *decoder) Randomizer {
	z := Cloak{
		Kind: CloakKind(d.known("cloak")), Users: d.u64("users"), Honest: d.u64("honest"), Epsilon: d.decimal("epsilon"), Delta: d.decimal("delta"),
		Messages: d.u16("messages"), Modulus: d.u64("modulus"), Block: 1, Parts: 1,
	}
	if d.err == nil && !d.s.Empty() {
		if z.Block, z.Parts = d.u16("block"), d.u16("parts"); z.Block == 1 && z.Parts == 1 {
			d.fail("block and parts are 1, which is not written")
		}
	}
	return z
}

// parseCloak reads kind, users, honest users, epsilon of a round and independent batches, of
// which each may be left out with all behind it; epsilon may also be empty.
func parseCloak(s string) (Randomizer, error) {
	z := Cloak{Kind: ModernCloak, Parts: 1}
	parts := strings.Split(s, ":")
	if len(parts) > 5 {
		return nil, fmt.Errorf("%q has %d parts, want at most 5: the kind, users, honest users and epsilon of a round, and its independent batches", s, len(parts))
	}
	for i, part := range parts {
		var err error
		switch {
		case i == 0 && part == "":
		case i == 0:
			z.Kind = 0
			var names []string
			for _, k := range CloakKinds {
				if names = append(names, k.String()); k.String() == part {
					z.Kind = k
				}
			}
			if z.Kind == 0 {
				err = fmt.Errorf("%q is no cloak: want %s", part, strings.Join(names, ", "))
			}
		case i == 1:
			z.Users, err = strconv.ParseUint(part, 10, 64)
		case i == 2:
			z.Honest, err = strconv.ParseUint(part, 10, 64)
		case i == 3 && part == "" && len(parts) > 4:
		case i == 3:
			z.Epsilon, err = ParseDecimal(part)
		default:
			var n uint64
			n, err = strconv.ParseUint(part, 10, 16)
			z.Parts = uint16(n)
		}
		if err != nil {
			return nil, err
		}
	}
	return z, nil
}

func (z Cloak) params() any {
	p := map[string]any{
		"kind": z.Kind.String(), "users": z.Users, "honest": z.Honest, "epsilon": z.Epsilon.String(), "delta": z.Delta.String(),
		"messages": z.Messages, "modulus": z.Modulus,
	}
	if z.Block != 1 {
		p["block"] = z.Block
	}
	if z.parted() {
		p["parts"] = z.Parts
	}
	return p
}

func (z Cloak) validate(v *validator, r *Recipe) {
	if p := r.Path; p != nil && (p.Proofs() || !p.mixes()) {
		v.add("randomizer", "is cloak, which hides answers behind a shuffler alone: want the path shuffled")
	}
	if q := r.Query; q != nil {
		switch n := q.Aggregates(); {
		case q.Form() == Reals:
			v.add("query", "is of vectors by their L2 norm, and the noise of a cloak hides what moves little in all: want l1 or sumvec")
			return
		case n < 1 || len(v.errs) > 0 && n > 1:
			return // the query is none
		case n > 1 && z.Kind != ModernCloak:
			v.add("randomizer", "of kind %v is for one number, to compare with: want %v", z.Kind, ModernCloak)
			return
		case int(z.Block) > n:
			v.add("randomizer.block", "is %d, of %s", z.Block, count(uint64(n), "number", "numbers"))
			return
		}
	}
	before := len(v.errs)
	v.between("randomizer.users", z.Users, r.MinBatch, 1<<32)
	v.between("randomizer.block", uint64(z.Block), 1, MaxElements)
	if z.Parts != 1 && v.between("randomizer.parts", uint64(z.Parts), 3, MaxParts) {
		z.validateParts(v, r)
	}
	v.between("randomizer.honest", z.Honest, 2, r.MinBatch*uint64(max(1, z.Parts)))
	if z.Messages == 0 || z.Modulus == 0 {
		v.add("randomizer", "has no messages or no modulus")
	}
	if r.Query == nil || len(v.errs) > before {
		return
	}
	noise, err := z.RMS(r.Query)
	if draws := float64(z.Users) / float64(max(1, z.least())); r.Query.Aggregates() > 1 && draws > maxDraws {
		v.add("randomizer.honest", "leaves %d that are counted on of %d, so that %.3g times the noise that hides an answer may come together: want at most %d",
			z.least(), z.Users, draws, maxDraws)
	}
	if err != nil {
		v.add("randomizer", "does not hide answers as it says: %v", err)
	} else if room := float64(z.Users) * r.Query.Largest(); !(roomy*noise <= room) {
		v.add("randomizer.users", "is %d, whose answers add up to %.4g at most, and the noise of %.3g may leave nothing of that: want %d times the "+
			"noise, or a larger epsilon", z.Users, room, noise, roomy)
	}
}

// roomy is how many root mean squares of the noise a sum has to have room for: of Laplace
// noise once in a million is more.
const roomy = 10

// maxDraws is how many times the noise that hides an answer may come together in sums of
// several numbers, of which sketches undo no more ([sketch.MaxDraws]).
const maxDraws = sketch.MaxDraws

// protocol are the parameters, checked: what is stated gives the guarantee.
func (z Cloak) protocol(q Query) (*cloak.Params, error) {
	choose := z.Kind.choose()
	if choose == nil {
		return nil, fmt.Errorf("there is no cloak %d", z.Kind)
	}
	changed, moved, err := moves(q)
	if err != nil {
		return nil, err
	}
	least, delta := z.Honest, z.Delta.FloatDown()
	if z.parted() {
		if least, delta = z.least(), delta/2; least < 2 {
			return nil, fmt.Errorf("of %d devices that are counted on too few may draw the same of %d batches", z.Honest, z.Parts)
		}
	}
	return choose(cloak.Options{
		Users: z.Users, Honest: least, Precision: uint64(q.Largest()), Entries: q.Aggregates(), Changed: changed, Moved: moved, Block: int(z.Block),
		Epsilon: z.Epsilon.FloatDown(), Delta: delta, Messages: int(z.Messages), Modulus: z.Modulus,
	})
}

// moves bounds in how many numbers two answers differ, and by how much in all.
func moves(q Query) (changed int, moved uint64, err error) {
	s, err := q.Contribution().Sensitivity(release.ReplaceOne)
	if err != nil {
		return 0, 0, err
	}
	// L1 is a whole number, rounded up; and numbers that differ do so by 1.
	moved = uint64(math.Round(s.L1))
	return int(min(uint64(q.Aggregates()), s.Coordinates, moved)), moved, nil
}

// Fit returns the cloak with what it leaves open chosen: room for twice the least batch,
// the people who are expected, or what the noise needs; all of the least batch honest;
// the least number of messages and, of the moduli that take neither more messages nor
// longer ones, the largest, by which more wrong sums are seen.
func (z Cloak) Fit(q Query, minBatch, expected uint64) (Cloak, error) {
	z.Parts = max(1, z.Parts)
	if z.Users == 0 {
		z.Users = max(2*minBatch, expected)
		if e := z.Epsilon.FloatDown(); z.Kind == ModernCloak && e > 0 {
			// The root mean square is sqrt(2 users/honest)/epsilon.
			need := 2 * roomy * roomy / (e * e * float64(max(2, cmp.Or(z.Honest, minBatch))))
			z.Users = max(z.Users, uint64(min(math.Ceil(outward.Up(need))+1, 1<<32)))
		}
	}
	if z.Honest == 0 {
		z.Honest = minBatch * uint64(z.Parts)
	}
	if z.Messages != 0 && z.Modulus != 0 && z.Block != 0 || q == nil || q.Aggregates() < 1 {
		z.Block = max(1, z.Block)
		return z, nil
	}
	z, err := z.packed(q)
	if err != nil {
		return z, err
	}
	for wide := uint64(1)<<min(62, 8*bytesFor(z.Modulus)) - 1; wide > z.Modulus; wide >>= 1 {
		trial := z
		trial.Modulus = wide
		if _, err := trial.protocol(q); err == nil {
			return trial, nil
		}
	}
	return z, nil
}

// sealed is what a message has more where it travels, about, in bytes.
const sealed = 96

// packed has messages, modulus and the block that makes contributions shortest, of those
// that it leaves open.
func (z Cloak) packed(q Query) (best Cloak, err error) {
	shortest, n := math.MaxInt, q.Aggregates()
	try := func(block int) error {
		trial := z
		trial.Block = uint16(block)
		p, err := trial.protocol(q)
		if err != nil {
			return err
		}
		trial.Messages, trial.Modulus = uint16(p.Messages()), p.Modulus()
		w := wrapper{p}
		if all := w.messages() * (w.size() + sealed); all < shortest {
			shortest, best = all, trial
		}
		return nil
	}
	if z.Block != 0 || n == 1 || z.Kind != ModernCloak {
		err = try(max(1, int(z.Block)))
		return best, err
	}
	// About as many blocks less each time; the length has one minimum, but for steps.
	for blocks := n; ; blocks = blocks * 2 / 3 {
		block := (n + max(1, blocks) - 1) / max(1, blocks)
		e := try(block)
		if shortest == math.MaxInt {
			err = e
		} else if err = nil; e != nil {
			break
		}
		if blocks <= 1 {
			break
		}
	}
	return best, err
}

// Sizes are how many messages a contribution has, how long each is, and how long all are
// sealed, about, in bytes; 0 where the cloak has none.
func (z Cloak) Sizes(q Query) (messages, size, contribution int) {
	p, err := z.protocol(q)
	if err != nil {
		return 0, 0, 0
	}
	w := wrapper{p}
	return w.messages(), w.size(), w.messages() * (w.size() + sealed)
}

// RMS bounds the root of the mean squared error of the sum of a batch of Users, in units of
// the query.
func (z Cloak) RMS(q Query) (float64, error) {
	p, err := z.protocol(q)
	if err != nil {
		return 0, err
	}
	return outward.Up(math.Sqrt(float64(z.Users) * p.Variance())), nil
}

func (z Cloak) exact() bool                               { return z.Kind == SumPreservingCloak }
func (Cloak) given(q Query) Query                         { return q }
func (Cloak) Proves(Query) (bound, answer uint64, _ bool) { return 0, 0, false }
func (Cloak) counts(sums []int64) ([]int64, error)        { return sums, nil }
func (Cloak) gaussian() Rational                          { return Rational{} }

func (z Cloak) conditions(*Recipe) []string {
	if z.parted() {
		return []string{fmt.Sprintf("at least %d of the devices in the %d batches of a round follow the recipe, each in one that it draws, and tell nobody what they draw",
			z.Honest, z.Parts)}
	}
	return []string{fmt.Sprintf("at least %d of the devices in each batch follow the recipe and tell nobody what they draw", z.Honest)}
}

// round is what the theorem says of the view of all messages of a batch, where as many
// devices are honest as it counts on.
func (z Cloak) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	if s.Half || z.exact() {
		return Disclosure{}, release.ErrNoGuarantee
	}
	if _, err := z.protocol(r.Query); err != nil {
		return Disclosure{}, uncomputed(err)
	}
	m := release.ApproxDP{Epsilon: z.Epsilon.FloatDown(), Delta: z.Delta.FloatDown()}
	theorem := map[CloakKind]int{ModernCloak: 3, SingleUserCloak: 5}[z.Kind]
	if z.parted() {
		theorem = 6
	}
	return Disclosure{Releases: []release.Release{release.One(m)}, Theorem: fmt.Sprintf("docs/proofs/cloak.md, theorem %d", theorem)}, nil
}

// spread is that of shares of discrete Laplace noise, each of one in as many as are sure to
// be honest; of the paper's own noise of a few it is taken to be normal.
func (z Cloak) spread(q Query, reports uint64) Spread {
	p, err := z.protocol(q)
	if err != nil {
		return normalSpread(math.Inf(1))
	}
	deviation := math.Sqrt(float64(reports) * p.Variance())
	if _, moved, err := moves(q); err == nil && z.Kind == ModernCloak {
		return laplaceSpread(deviation, float64(moved)/z.Epsilon.FloatDown(), float64(reports)/float64(z.least()))
	}
	return normalSpread(deviation)
}

func (z Cloak) blurs(p *probabilities, q Query) {
	if c, err := z.protocol(q); err == nil {
		p.added = c.Variance()
	}
}
