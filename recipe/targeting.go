package recipe

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// Targeting asks only devices with certain declared, public attributes, never one person:
// the attributes are of a closed list, and a private histogram taken before shows that
// enough people have them (paper 000 section 5.5).
type Targeting struct {
	// Clauses must all hold; 1 to MaxClauses, attributes rising.
	Clauses []Clause `json:"clauses"`
	// Certificate is the evidence that the predicate holds for enough people.
	Certificate Certificate `json:"certificate"`
}

// A Clause holds for a device whose attribute is one of the values.
type Clause struct {
	Attribute Attribute `json:"attribute"`
	// Values are 1 to MaxValues strings of 1 to MaxValue bytes, rising.
	Values []string `json:"values"`
}

// An Attribute is a declared property of a device that is not sensitive.
type Attribute uint16

// The attributes that a predicate may name. Numbers from 0x8000 are attributes that may
// never be named.
const (
	Platform    Attribute = 1 // "android", "ios", "linux", ...
	OSVersion   Attribute = 2 // the major version
	AppVersion  Attribute = 3 // major.minor
	Channel     Attribute = 4 // "release", "beta", ...
	Language    Attribute = 5 // of the interface, a BCP 47 primary language
	DeviceClass Attribute = 6 // "phone", "tablet", "desktop", ...
)

// MarshalText is the name.
func (a Attribute) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAttribute reads the name of an attribute that a predicate may use.
func ParseAttribute(s string) (Attribute, error) {
	for _, c := range codepoints {
		if c.Registry == "attribute" && c.Known && c.Name == s {
			return Attribute(c.Value), nil
		}
	}
	return 0, fmt.Errorf("recipe: %q is no attribute that a predicate may use", s)
}

// Hash is a SHA-256 hash.
type Hash [32]byte

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText is lower-case hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (a Attribute) String() string {
	if name := nameOf("attribute", uint16(a)); name != "" {
		return name
	}
	return fmt.Sprintf("attribute %d", uint16(a))
}

// A Certificate names an earlier private histogram over the attributes. It is the
// author's word until somebody has looked it up: nothing in a recipe shows that a log holds
// it. A device that follows the recipe's log looks itself (client/logbook).
type Certificate struct {
	// Recipe is the id of the histogram's recipe.
	Recipe ID `json:"recipe"`
	// Entry is the hash of the [Census] that leader and helper have logged. A recipe that names
	// no log may have any here, for a person to look up.
	Entry Hash `json:"entry"`
	// LowerBound is how many devices satisfy the predicate at least, with the result's
	// noise taken off at 99.9999 %.
	LowerBound uint64 `json:"lower_bound"`
	// MinPopulation is what the lower bound must exceed; at least TargetFloor.
	MinPopulation uint64 `json:"min_population"`
}

// Bounds of a targeted recipe.
const (
	MaxClauses = 3
	MaxValues  = 16
	MaxValue   = 64
	// TargetFloor is the least population that may be targeted.
	TargetFloor = 1000
)

// MaxTargetedRate is the largest probability of reporting in a targeted recipe: nobody
// who fits the predicate is sure to be in the result.
var MaxTargetedRate = Rational{Num: 1, Den: 2}

func (t *Targeting) String() string {
	return fmt.Sprintf("only devices whose %s; the author says that at least %d of them were counted (recipe %s)",
		inWords(t.Clauses), t.Certificate.LowerBound, t.Certificate.Recipe)
}

// inWords are clauses for people, after "devices whose".
func inWords(list []Clause) string {
	var parts []string
	for _, c := range list {
		parts = append(parts, fmt.Sprintf("%s is %s", c.Attribute, strings.Join(c.Values, " or ")))
	}
	return strings.Join(parts, " and whose ")
}

// Holds says whether a device with these attributes is asked. An attribute that the
// device does not declare fits nothing.
func (t *Targeting) Holds(of map[Attribute]string) bool {
	for _, c := range t.Clauses {
		if v, ok := of[c.Attribute]; !ok || !slices.Contains(c.Values, v) {
			return false
		}
	}
	return true
}

// clauses says whether they may be asked by.
func (v *validator) clauses(list []Clause) {
	v.between("targeting.clauses", uint64(len(list)), 1, MaxClauses)
	last := Attribute(0)
	for _, c := range list {
		name := nameOf("attribute", uint16(c.Attribute))
		switch {
		case c.Attribute >= 0x8000 && name != "":
			v.add("targeting.clauses", "name %s, which is banned: it is sensitive or tells people apart", name)
		case !isKnown("attribute", uint16(c.Attribute)):
			v.add("targeting.clauses", "name %v, which is not on the list", c.Attribute)
		case c.Attribute <= last:
			v.add("targeting.clauses", "are not in rising order")
		}
		last = c.Attribute
		v.between("targeting.values", uint64(len(c.Values)), 1, MaxValues)
		for i, s := range c.Values {
			v.text("targeting.values", s, 1, MaxValue, false)
			if i > 0 && s <= c.Values[i-1] {
				v.add("targeting.values", "are not in rising order")
			}
		}
	}
}

func (v *validator) targeting(r *Recipe) {
	t := r.Targeting
	if t == nil {
		return
	}
	v.clauses(t.Clauses)
	c := t.Certificate
	if c.Recipe == (ID{}) || c.Entry == (Hash{}) {
		v.add("targeting.certificate", "names no logged histogram")
	}
	if h, err := t.Census().Hash(); r.Log != nil && (err != nil || h != c.Entry) {
		v.add("targeting.certificate", "names %s in the log, and the census of its clauses and lower bound is %s", c.Entry, h)
	}
	if c.MinPopulation < TargetFloor {
		v.add("targeting.min_population", "is %d, want at least %d", c.MinPopulation, TargetFloor)
	}
	if c.LowerBound <= c.MinPopulation {
		v.add("targeting.lower_bound", "is %d, not above the minimum population of %d", c.LowerBound, c.MinPopulation)
	}
	if _, most := r.reportRates(); !r.Sampled() || most.Cmp(MaxTargetedRate.Rat()) > 0 {
		v.add("participation.rate", "is above %s in a targeted recipe", MaxTargetedRate)
	}
	if r.Relay == nil {
		v.add("relay", "is missing: a targeted recipe must not show who fits")
	}
	if d := r.Dummies; d != nil && d.Senders > c.LowerBound {
		v.add("dummies.senders", "is %d, but only %d are shown to fit", d.Senders, c.LowerBound)
	}
	if new(big.Int).SetUint64(r.MinBatch).Cmp(new(big.Int).SetUint64(c.LowerBound)) > 0 {
		v.add("min_batch", "is %d, but only %d are shown to fit", r.MinBatch, c.LowerBound)
	}
}

// ParseClauses reads the clauses of a [Targeting], as in platform=ios,linux;language=de,
// and puts them in order.
func ParseClauses(s string) ([]Clause, error) {
	var list []Clause
	for _, clause := range strings.Split(s, ";") {
		name, values, ok := strings.Cut(clause, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not ATTRIBUTE=VALUE,VALUE", clause)
		}
		a, err := ParseAttribute(name)
		if err != nil {
			return nil, err
		}
		c := Clause{Attribute: a, Values: strings.Split(values, ",")}
		slices.Sort(c.Values)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Clause) int { return int(a.Attribute) - int(b.Attribute) })
	return list, nil
}

// ParseCertificate reads the evidence of a [Targeting]: the id of the recipe that counted,
// the hash of the log entry, the lower bound and the least population, with colons between
// them. Without the hash it is that of the [Census] which follows, once Clauses are there.
func ParseCertificate(s string) (Certificate, error) {
	parts := strings.Split(s, ":")
	if len(parts) == 3 {
		parts = slices.Insert(parts, 1, Hash{}.String())
	}
	if len(parts) != 4 {
		return Certificate{}, fmt.Errorf("%d parts, want RECIPE:LOWER:LEAST or RECIPE:ENTRY:LOWER:LEAST", len(parts))
	}
	id, err := ParseID(parts[0])
	if err != nil {
		return Certificate{}, err
	}
	entry, err := hex.DecodeString(parts[1])
	if err != nil || len(entry) != len(Hash{}) {
		return Certificate{}, errors.New("the entry is not the hexadecimal SHA-256 of a log entry")
	}
	_, n, err := colons(parts[2]+":"+parts[3], 2, 0)
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{Recipe: id, Entry: Hash(entry), LowerBound: n[0], MinPopulation: n[1]}, nil
}
