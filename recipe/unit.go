package recipe

import (
	"fmt"
	"github.com/starling-agg/starling/dp/release"
	"math"
	"slices"
	"strconv"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/internal/outward"
)

// A Unit is whose data the guarantee protects: the neighbours that it tells apart differ
// in what is reported of one unit. The servers see reports and no units. That no two
// reports of a round are of one unit, and that a report is made as the unit says, is up
// to who makes the reports.
type Unit struct {
	// Name is person, device, visit, site or a word of its own: 1 to MaxUnitName small
	// letters, digits and hyphens of ASCII, beginning with a letter, so that no word
	// looks like another.
	Name string `json:"name"`
	// Records is how many records of one unit may be in a report: 1 of FirstRecord and
	// LastRecord, and 2 to MaxUnitRecords of ClippedSum. Others of the same unit are left
	// out. Of SharedSum it is how many units a report may have, 2 to MaxShares.
	Records uint32 `json:"records"`
	// Reduce makes them one answer.
	Reduce Reduction `json:"reduce"`
	// PerPerson is how many units of the recipe one person has at most, over all rounds;
	// 0 leaves it unsaid, as for the unit person. It is for [Guarantee.Person] only:
	// nothing enforces it.
	PerPerson uint32 `json:"per_person"`
}

// DefaultUnit is that of a recipe that names none: what one device reports in a round, of
// one record. Nothing is said of a person with several devices. It is never written.
var DefaultUnit = Unit{Name: "device", Records: 1, Reduce: FirstRecord}

// The units with a meaning of their own; any other word is its author's.
const (
	UnitPerson = "person"
	UnitDevice = "device"
	UnitVisit  = "visit"
	UnitSite   = "site"
)

// Bounds of a [Unit].
const (
	MaxUnitName    = 32
	MaxUnitRecords = 1 << 16
	MaxPerPerson   = 1 << 16
	MaxShares      = 1 << 10
	// maxSharedBound, in units of the last place, is what a binary32 tells apart.
	maxSharedBound = 1 << 24
	// sharedSlack, in such units, is for the quotient's fraction, 1, sums that are made in
	// binary32, 2, and binary64, 1, and norms that are whole units, 2.
	sharedSlack = 6
)

// A Reduction is how the records of one unit become one answer.
type Reduction uint8

const (
	// FirstRecord takes the first of them.
	FirstRecord Reduction = 1
	// LastRecord takes the last.
	LastRecord Reduction = 2
	// ClippedSum adds them up, and cuts the sum to what is an answer. Histograms and
	// sums by group have none.
	ClippedSum Reduction = 3
	// SharedSum adds up the vectors of several units of one site, each held to its share of
	// the bound, so that the guarantee is about a share. The servers verify the sum alone:
	// the site is trusted with that. Only [Vector] queries have it.
	SharedSum Reduction = 4
)

func (z Reduction) String() string { return nameOf("reduction", uint16(z)) }

// MarshalText is the name.
func (z Reduction) MarshalText() ([]byte, error) { return []byte(z.String()), nil }

// ParseReduction reads a name.
func ParseReduction(s string) (Reduction, error) {
	for _, z := range []Reduction{FirstRecord, LastRecord, ClippedSum, SharedSum} {
		if z.String() == s {
			return z, nil
		}
	}
	return 0, fmt.Errorf("recipe: %q is no way to reduce records: want %v, %v, %v or %v", s, FirstRecord, LastRecord, ClippedSum, SharedSum)
}

// PrivacyUnit is the recipe's unit: [DefaultUnit] where it names none.
func (r *Recipe) PrivacyUnit() Unit {
	if r.Unit == nil {
		return DefaultUnit
	}
	return *r.Unit
}

func (u Unit) String() string {
	text := "one " + u.Name
	switch {
	case u == DefaultUnit:
		text += ", as the recipe names no unit: a report is made of one record"
	case u.Reduce == FirstRecord:
		text += ": a report is made of its first record alone"
	case u.Reduce == LastRecord:
		text += ": a report is made of its last record alone"
	case u.Reduce == ClippedSum:
		text += fmt.Sprintf(": a report is made of the sum of at most %d of its records, cut to what may be answered", u.Records)
	case u.Reduce == SharedSum:
		text += fmt.Sprintf(": a report is a site's, the sum of at most %d of them, each held to its share of the bound by the site", u.Records)
	}
	switch {
	case u.Name == UnitPerson:
		return text
	case u.PerPerson == 0:
		return text + "; nothing is said of a person with several"
	}
	return text + fmt.Sprintf("; a person is said to have at most %d", u.PerPerson)
}

func (v *validator) unit(r *Recipe) {
	u := r.Unit
	if u == nil {
		return
	}
	if *u == DefaultUnit {
		v.add("unit", "is what it is for a recipe that names none; leave it out")
	}
	if len(u.Name) < 1 || len(u.Name) > MaxUnitName {
		v.add("unit.name", "has %d bytes, want 1 to %d", len(u.Name), MaxUnitName)
	}
	for i, c := range []byte(u.Name) {
		if letter := c >= 'a' && c <= 'z'; !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			v.add("unit.name", "is no word of small letters, digits and hyphens")
			break
		}
	}
	switch u.Reduce {
	case FirstRecord, LastRecord:
		v.between("unit.records", uint64(u.Records), 1, 1)
	case ClippedSum:
		v.between("unit.records", uint64(u.Records), 2, MaxUnitRecords)
		if r.Query != nil && slices.Contains([]Form{Bucket, Grouped, Text}, r.Query.Form()) {
			v.add("unit.reduce", "adds records up, and answers to this query have no sum")
		}
	case SharedSum:
		v.between("unit.records", uint64(u.Records), 2, MaxShares)
		if q, ok := r.Vector(); !ok && r.Query != nil {
			v.add("unit.reduce", "shares a bound on the length, which only vectors have")
		} else if ok && q.Bound > maxSharedBound {
			v.add("unit.reduce", "shares a bound of %d units of the last place, and what a site computes with tells no more than %d apart", q.Bound, maxSharedBound)
		}
		if r.Randomized() || r.Views != nil || r.Projection != nil || r.Cover != nil {
			v.add("unit.reduce", "shares a bound under the servers' noise, in each round alone: no randomizer, views, projection or cover")
		}
		if r.ByAnswer() {
			v.add("unit.reduce", "shares a bound, and whether a site sends at all may not depend on one of its people: no coins by answer")
		}
	default:
		v.add("unit.reduce", "is %d, want %d, %d, %d or %d", u.Reduce, FirstRecord, LastRecord, ClippedSum, SharedSum)
	}
	v.between("unit.per_person", uint64(u.PerPerson), 0, MaxPerPerson)
	if u.Name == UnitPerson && u.PerPerson != 0 {
		v.add("unit.per_person", "makes no sense where the unit is a person")
	}
}

func addUnit(b *cryptobyte.Builder, u *Unit) {
	b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(u.Name)) })
	b.AddUint32(u.Records)
	b.AddUint8(uint8(u.Reduce))
	b.AddUint32(u.PerPerson)
}

func readUnit(d *decoder) *Unit {
	return &Unit{Name: string(d.bytes8("unit")), Records: d.u32("unit"), Reduce: Reduction(d.known("reduction")), PerPerson: d.u32("unit")}
}

// Shares is how many units' vectors a report may have, of [SharedSum]; else 0.
func (r *Recipe) Shares() int {
	if r.Unit == nil || r.Unit.Reduce != SharedSum {
		return 0
	}
	return int(r.Unit.Records)
}

// Contribution is the most that one unit adds to the sum that is released: what a report
// does, or of [SharedSum] the share of one of several and what rounding their sum, and
// cutting what was rounded, adds (docs/proofs/units.md).
func (r *Recipe) Contribution() release.Contribution {
	q, ok := r.Vector()
	if n := uint64(r.Shares()); n > 0 && ok {
		rounding := 2 * uint64(math.Ceil(math.Sqrt(float64(q.Dimension))))
		// Two reports are twice the bound apart at most, and rounding may bring them there.
		return release.Ball(uint64(q.Dimension), float64(min(2*q.Bound, q.Bound/n+sharedSlack+rounding)))
	}
	return r.Query.Contribution()
}

// Group returns what a person with k units has at the delta, where at returns what one
// unit has at a delta. A chain of k neighbours leads from one person's units to any
// others, and (epsilon, d) for each link is (k epsilon, d (1 + e^epsilon + ... + e^((k-1)
// epsilon))) for the chain (docs/proofs/units.md), whatever the mechanism and however the
// units spread over batches. So d is made as small as brings the sum below delta; where
// none is found, the delta grows. All is rounded up.
func Group(k uint32, delta Decimal, at func(Decimal) (Loss, error)) (Loss, error) {
	one, err := at(delta)
	if err != nil || k <= 1 || !one.Finite() {
		return one, err
	}
	want := delta.FloatDown()
	if want == 0 { // the links of a chain add up
		return Loss{Epsilon: kTimes(k, one.Epsilon)}, nil
	}
	link, d := one, delta
	for range 8 {
		sum := outward.Rat(d.Rat()) * links(k, link.Epsilon)
		if sum <= want {
			return Loss{kTimes(k, link.Epsilon), delta.Float()}, nil
		}
		// Half of what would do: the loss of a link grows as its delta falls.
		if d, err = ParseDecimal(strconv.FormatFloat(d.Float()*(want/sum)/2, 'e', 3, 64)); err != nil || d.Coefficient == 0 {
			break
		}
		if link, err = at(d); err != nil || !link.Finite() {
			break // no theorem answers at so small a delta
		}
	}
	if sum := outward.Rat(delta.Rat()) * links(k, one.Epsilon); sum < 1 {
		return Loss{kTimes(k, one.Epsilon), sum}, nil
	}
	return NoPrivacy, nil
}

// chained bounds the relative error of links: that of k x, at most 700, moves e^(k x) by
// 700 times as much.
const chained = 1e-9

// links is 1 + e^x + ... + e^((k-1) x), rounded up.
func links(k uint32, x float64) float64 {
	if x < 1e-300 {
		return outward.Widened(float64(k), chained)
	}
	return outward.Widened(math.Expm1(float64(k)*x)/math.Expm1(x), chained)
}

// kTimes is k x, rounded up.
func kTimes(k uint32, x float64) float64 { return math.Nextafter(float64(k)*x, math.Inf(1)) }
