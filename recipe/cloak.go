package recipe

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// Cloak splits an answer into random residues, of which a shuffler hides whose they are and
// only the sum of all tells anything (package shuffle/cloak; docs/proofs/cloak.md).
// Messages and Modulus stand here, for all devices must have the same; that these give
// Epsilon and Delta each checks for itself. Rounds are composed as any others.
type Cloak struct {
	// Kind is by which theorem.
	Kind CloakKind
	// Users is the most contributions that a batch has room for, MinBatch or more.
	Users uint64
	// Honest is how many of each batch are counted on to follow the recipe and to keep what
	// they draw to themselves: 2 to MinBatch.
	Honest uint64
	// Epsilon and Delta are those of one round: of one device's answer, or for
	// [SumPreservingCloak] of answers of the same sum, which is exact.
	Epsilon, Delta Decimal
	// Messages is how many a contribution has, and Modulus that of the residues. account.New
	// chooses both where they are zero.
	Messages uint16
	Modulus  uint64
}

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
	text := fmt.Sprintf("the device splits its answer into %d random numbers modulo %d, of which only the sum of everybody's tells anything "+
		"(invisibility cloak, %s, epsilon %s and delta %s a round", z.Messages, z.Modulus, z.Kind, z.Epsilon, z.Delta)
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
}

func readCloak(d *decoder) Randomizer {
	return Cloak{
		Kind: CloakKind(d.known("cloak")), Users: d.u64("users"), Honest: d.u64("honest"), Epsilon: d.decimal("epsilon"), Delta: d.decimal("delta"),
		Messages: d.u16("messages"), Modulus: d.u64("modulus"),
	}
}

// parseCloak reads kind, users, honest users and epsilon of a round, of which each may be
// left out with all behind it.
func parseCloak(s string) (Randomizer, error) {
	z := Cloak{Kind: ModernCloak}
	parts := strings.Split(s, ":")
	if len(parts) > 4 {
		return nil, fmt.Errorf("%q has %d parts, want at most 4: the kind, users, honest users and epsilon of a round", s, len(parts))
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
		default:
			z.Epsilon, err = ParseDecimal(part)
		}
		if err != nil {
			return nil, err
		}
	}
	return z, nil
}

func (z Cloak) params() any {
	return map[string]any{
		"kind": z.Kind.String(), "users": z.Users, "honest": z.Honest, "epsilon": z.Epsilon.String(), "delta": z.Delta.String(),
		"messages": z.Messages, "modulus": z.Modulus,
	}
}

func (z Cloak) validate(v *validator, r *Recipe) {
	if p := r.Path; p != nil && (p.Proofs() || !p.mixes()) {
		v.add("randomizer", "is cloak, which hides answers behind a shuffler alone: want the path shuffled")
	}
	if q := r.Query; q != nil && (q.Aggregates() != 1 || q.Form() != YesOrNo && q.Form() != Number) {
		v.add("query", "is not count, sum or mean, which cloak needs")
		return
	}
	before := len(v.errs)
	v.between("randomizer.users", z.Users, r.MinBatch, 1<<32)
	v.between("randomizer.honest", z.Honest, 2, r.MinBatch)
	if z.Messages == 0 || z.Modulus == 0 {
		v.add("randomizer", "has no messages or no modulus")
	}
	if r.Query == nil || len(v.errs) > before {
		return
	}
	noise, err := z.RMS(r.Query)
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

// protocol are the parameters, checked: what is stated gives the guarantee.
func (z Cloak) protocol(q Query) (*cloak.Params, error) {
	choose := z.Kind.choose()
	if choose == nil {
		return nil, fmt.Errorf("there is no cloak %d", z.Kind)
	}
	return choose(cloak.Options{
		Users: z.Users, Honest: z.Honest, Precision: uint64(q.Largest()), Epsilon: z.Epsilon.FloatDown(), Delta: z.Delta.FloatDown(),
		Messages: int(z.Messages), Modulus: z.Modulus,
	})
}

// Fit returns the cloak with what it leaves open chosen: room for twice the least batch,
// the people who are expected, or what the noise needs; all of the least batch honest;
// the least number of messages and, of the moduli that take neither more messages nor
// longer ones, the largest, by which more wrong sums are seen.
func (z Cloak) Fit(q Query, minBatch, expected uint64) (Cloak, error) {
	if z.Users == 0 {
		z.Users = max(2*minBatch, expected)
		if e := z.Epsilon.FloatDown(); z.Kind == ModernCloak && e > 0 {
			// The root mean square is sqrt(2 users/honest)/epsilon.
			need := 2 * roomy * roomy / (e * e * float64(max(2, cmp.Or(z.Honest, minBatch))))
			z.Users = max(z.Users, uint64(min(math.Ceil(outward.Up(need))+1, 1<<32)))
		}
	}
	if z.Honest == 0 {
		z.Honest = minBatch
	}
	if z.Messages != 0 && z.Modulus != 0 || q == nil {
		return z, nil
	}
	p, err := z.protocol(q)
	if err != nil {
		return z, err
	}
	z.Messages, z.Modulus = uint16(p.Messages()), p.Modulus()
	for wide := uint64(1)<<min(62, 8*bytesFor(z.Modulus)) - 1; wide > z.Modulus; wide >>= 1 {
		trial := z
		trial.Modulus = wide
		if _, err := trial.protocol(q); err == nil {
			return trial, nil
		}
	}
	return z, nil
}

// Bytes is the length of a message.
func (z Cloak) Bytes() int { return bytesFor(z.Modulus) }

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
	return Disclosure{Releases: []release.Release{release.One(m)}, Theorem: fmt.Sprintf("docs/proofs/cloak.md, theorem %d", theorem)}, nil
}

func (z Cloak) blurs(p *probabilities, q Query) {
	if c, err := z.protocol(q); err == nil {
		p.added = c.Variance()
	}
}

func (z Cloak) messenger(r *Recipe) (*Messenger, error) {
	p, err := z.protocol(r.Query)
	if err != nil {
		return nil, err
	}
	return z.messengerOf(r, p), nil
}

// messengerOf is that of a protocol.
func (z Cloak) messengerOf(r *Recipe, p *cloak.Params) *Messenger {
	m := &Messenger{given: r.Given(), least: r.MinBatch, messages: p.Messages(), size: bytesFor(p.Modulus()), sums: r.Query.Aggregates()}
	m.spoils = fmt.Sprintf("one message that is lost, or one device that lies, spoils the sum of a whole batch; a wrong sum that is random "+
		"is seen with probability %.3g, one that is chosen never. Who would lose less collects in smaller batches, each a recipe of its own", p.Unlike())
	m.encode = func(answer []uint64) ([][]byte, error) {
		if answer == nil {
			answer = []uint64{0}
		}
		residues, err := p.EncodeUnits(answer)
		if err != nil {
			return nil, fmt.Errorf("recipe: messages: %w", err)
		}
		list := make([][]byte, len(residues))
		for i, x := range residues {
			list[i] = make([]byte, m.size)
			putNumber(list[i], x.Residue)
		}
		return list, nil
	}
	m.tally = func(messages [][]byte) (Tally, error) {
		var t Tally
		residues := make([]cloak.Message, len(messages))
		for i, b := range messages {
			if x := number(b); len(b) == m.size && x < p.Modulus() {
				residues[i].Residue = x
			} else {
				t.Rejected++
			}
		}
		list, users, err := p.AnalyzeSome(residues)
		if missing := new(cloak.CountError); errors.As(err, &missing) {
			return t, &MessagesError{missing.Got, fmt.Sprintf("are of more than %d contributions, for which a sum has room", z.Users)}
		} else if err != nil {
			return t, fmt.Errorf("recipe: tally: %w", err)
		}
		if list[0].Unlike {
			return t, &MessagesError{uint64(len(messages)), "have a sum that is none of answers: a device lied, or messages are missing or wrong"}
		}
		t.Sums, t.Reports = []int64{list[0].Units}, users
		return t, nil
	}
	return m
}
