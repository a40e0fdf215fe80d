package recipe

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/release"
)

// A Loss is a proved (Epsilon, Delta). Epsilon is +Inf, written null in JSON, where
// nothing is proved.
type Loss struct{ Epsilon, Delta float64 }

// NoPrivacy is the loss that bounds nothing.
var NoPrivacy = Loss{Epsilon: math.Inf(1), Delta: 1}

// Finite says whether the loss bounds anything.
func (l Loss) Finite() bool { return !math.IsInf(l.Epsilon, 1) && l.Delta < 1 }

func (l Loss) String() string {
	if !l.Finite() {
		return "no differential privacy"
	}
	return fmt.Sprintf("epsilon %s, delta %s", Above(l.Epsilon), Above(l.Delta))
}

// Above writes a bound with four digits, never below it: a number that reads back as x,
// and else the next above. So the float64 that stands for 10^-9, which is a hair above
// it, is written as everybody writes it and not as 1.001 times that.
func Above(x float64) string {
	if s := strconv.FormatFloat(x, 'e', 3, 64); x >= 0 {
		if d, err := ParseDecimal(s); err == nil && d.Float() == x {
			return d.String()
		}
	}
	d, err := DecimalAbove(x, 4)
	if err != nil {
		return fmt.Sprint(x)
	}
	return d.String()
}

// MarshalJSON writes {"epsilon":...,"delta":...}, with null for an epsilon that is not
// bounded.
func (l Loss) MarshalJSON() ([]byte, error) {
	out := struct {
		Epsilon *float64 `json:"epsilon"`
		Delta   float64  `json:"delta"`
	}{nil, l.Delta}
	if l.Finite() {
		out.Epsilon = &l.Epsilon
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Loss) UnmarshalJSON(b []byte) error {
	var in struct {
		Epsilon *float64 `json:"epsilon"`
		Delta   float64  `json:"delta"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*l = NoPrivacy
	if in.Epsilon != nil {
		*l = Loss{*in.Epsilon, in.Delta}
	}
	return nil
}

// A Guarantee is what the choices of a recipe give, computed.
type Guarantee struct {
	// Loss is the total over all rounds, under the assumptions; NoPrivacy if no noise is
	// added.
	Loss
	// PerRound is the loss of one round at the same delta.
	PerRound Loss
	// Rounds is in how many rounds one unit may have a report, one in each.
	Rounds uint32
	// Neighbours is the relation that the loss is about, between one unit's reports; 0 if
	// there is no loss to speak of.
	Neighbours release.Neighbours
	// Theorem names the result the loss rests on.
	Theorem string
	// Assumptions must hold for the loss to be true.
	Assumptions []string
	// Conditions must hold too, and are the word of the recipe's author, which no
	// independent party vouches for: numbers of devices, and of honest ones among those
	// that report. None if the loss counts on nobody's word.
	Conditions []string
	// Unconditional is the loss that counts on none of Conditions, over all rounds, and
	// UnconditionalNeighbours the relation that it is about: Loss and Neighbours, where
	// there are no conditions.
	Unconditional           Loss
	UnconditionalNeighbours release.Neighbours
	// Unit is whose data this is about. PerPerson is how many of them a person is said to
	// have, 0 if that is not said, and Person what such a person has on none of
	// Conditions, over all rounds: see [Group].
	Unit      string
	PerPerson uint32
	Person    Loss
	// Fallbacks say what is left when one does not.
	Fallbacks []Fallback
}

// A Fallback is what is left of a guarantee when an assumption fails.
type Fallback struct {
	Kind FallbackKind `json:"kind"`
	When string       `json:"when"`
	Loss Loss         `json:"loss"`
	Note string       `json:"note"`
}

// A FallbackKind names the assumption that fails; a closed set.
type FallbackKind string

const (
	OneServerFails   FallbackKind = "one-server-fails"
	ServersCollude   FallbackKind = "servers-collude"
	HopsCollude      FallbackKind = "hops-collude"
	FirstHopPads     FallbackKind = "first-hop-pads"
	RelayColludes    FallbackKind = "relay-colludes"
	EdgeWatched      FallbackKind = "network-edge"
	HalfAreDishonest FallbackKind = "half-dishonest"
	AttesterFails    FallbackKind = "attester-fails"
)

// Fallback returns what is left when an assumption fails, if the guarantee depends on it.
func (g *Guarantee) Fallback(k FallbackKind) (Fallback, bool) {
	for _, f := range g.Fallbacks {
		if f.Kind == k {
			return f, true
		}
	}
	return Fallback{}, false
}

// MarshalJSON writes the guarantee as one flat object. Its epsilon is that of Loss;
// conditions stand beside it.
func (g Guarantee) MarshalJSON() ([]byte, error) {
	out := struct {
		Epsilon       *float64   `json:"epsilon"`
		Delta         float64    `json:"delta"`
		Conditions    []string   `json:"conditions"`
		Unconditional Loss       `json:"unconditional"`
		Unit          string     `json:"unit"`
		PerPerson     uint32     `json:"units_per_person,omitempty"`
		Person        *Loss      `json:"person,omitempty"`
		PerRound      Loss       `json:"per_round"`
		Rounds        uint32     `json:"rounds"`
		Neighbours    string     `json:"neighbours,omitempty"`
		Theorem       string     `json:"theorem,omitempty"`
		Assumptions   []string   `json:"assumptions"`
		Fallbacks     []Fallback `json:"fallbacks"`
	}{nil, g.Delta, append([]string{}, g.Conditions...), g.Unconditional, g.Unit, g.PerPerson, nil, g.PerRound, g.Rounds, "", g.Theorem, g.Assumptions, g.Fallbacks}
	if g.Finite() {
		out.Epsilon = &g.Epsilon
		out.Neighbours = g.Neighbours.String()
	}
	if g.PerPerson > 0 {
		out.Person = &g.Person
	}
	return json.Marshal(out)
}

// ClaimError: the recipe promises more than its choices give.
type ClaimError struct {
	Claimed  ApproxDP
	Computed Loss
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("recipe: claim does not hold: epsilon %s at delta %s is claimed; the choices give %s",
		e.Claimed.Epsilon, e.Claimed.Delta, e.Computed)
}

// Neighbours is the relation that a claim about the recipe is about. Where coins count,
// it is AddRemove, about answers: a device's answer against the same device without one,
// which still tosses and may send a dummy. Otherwise the number of reports is public:
// ReplaceOne, and ZeroOut for RAPPOR.
func (r *Recipe) Neighbours() release.Neighbours {
	if r.Amplified() {
		return release.AddRemove
	}
	return r.KnownNeighbours()
}

// KnownNeighbours is the relation where it is known who takes part.
func (r *Recipe) KnownNeighbours() release.Neighbours {
	if z, ok := r.Randomizer.(LocalRandomizer); ok {
		if m, _, err := r.on().message(z, r.Query); err == nil {
			if is, err := m.Premise(); err == nil {
				return is.Neighbours
			}
		}
	}
	if r.Shares() > 0 {
		return release.ZeroOut // a site reports whether one of its people is there or not
	}
	return release.ReplaceOne
}

// Exact says whether results carry no noise at all.
func (r *Recipe) Exact() bool { return !r.Noisy() && !r.Randomized() }

// HonestServers is how many servers' noise counts for the claim.
func (r *Recipe) HonestServers(claim ApproxDP) int {
	if r.Noise.divided() {
		return int(claim.HonestServers)
	}
	return 1 // one server's draw is all that is stated; the other's is post-processing
}

// WithoutNoise is the guarantee of a recipe whose results are exact.
func (r *Recipe) WithoutNoise() *Guarantee {
	unit := r.PrivacyUnit()
	return &Guarantee{
		Loss:          NoPrivacy,
		Unconditional: NoPrivacy,
		PerRound:      NoPrivacy,
		Rounds:        1,
		Unit:          unit.Name,
		PerPerson:     unit.PerPerson,
		Person:        NoPrivacy,
		Assumptions:   append(r.on().assumptions(r, 0), r.Randomizer.conditions(r)...),
		Fallbacks:     r.Failures(),
	}
}

// count writes a number with its noun.
func count(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
