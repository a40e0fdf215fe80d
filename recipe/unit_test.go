package recipe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// visits protects visits, of which a person has at most four.
func visits() *Recipe {
	r := doctor()
	r.Unit = &Unit{Name: UnitVisit, Records: 1, Reduce: LastRecord, PerPerson: 4}
	return r
}

func TestUnitRefused(t *testing.T) {
	for name, c := range map[string]struct {
		unit  Unit
		field string
	}{
		"the default, written":            {DefaultUnit, "unit"},
		"no name":                         {Unit{"", 1, FirstRecord, 2}, "unit.name"},
		"a long name":                     {Unit{strings.Repeat("a", 33), 1, FirstRecord, 2}, "unit.name"},
		"a name that looks like another":  {Unit{"p\u0435rson", 1, FirstRecord, 2}, "unit.name"},
		"a capital":                       {Unit{"Person", 1, FirstRecord, 0}, "unit.name"},
		"a sentence":                      {Unit{"person and more", 1, FirstRecord, 0}, "unit.name"},
		"a name that begins with a digit": {Unit{"2-persons", 1, FirstRecord, 0}, "unit.name"},
		"two first records":               {Unit{UnitVisit, 2, FirstRecord, 0}, "unit.records"},
		"no record":                       {Unit{UnitVisit, 0, LastRecord, 0}, "unit.records"},
		"a sum of one":                    {Unit{UnitVisit, 1, ClippedSum, 0}, "unit.records"},
		"a sum of very many":              {Unit{UnitVisit, MaxUnitRecords + 1, ClippedSum, 0}, "unit.records"},
		"a person of many persons":        {Unit{UnitPerson, 1, FirstRecord, 2}, "unit.per_person"},
		"too many a person":               {Unit{UnitVisit, 1, FirstRecord, MaxPerPerson + 1}, "unit.per_person"},
		"no reduction":                    {Unit{UnitVisit, 1, 0, 0}, "unit.reduce"},
	} {
		r := doctor()
		r.Query, r.Unit = Sum{Max: 5}, &c.unit
		errs := r.UnitErrors()
		if invalid := new(InvalidError); len(errs) != 1 || !errors.As(errs[0], &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v, want %s alone", name, errs, c.field)
		}
	}
	r := doctor() // a histogram
	r.Unit = &Unit{UnitPerson, 3, ClippedSum, 0}
	if invalid := new(InvalidError); !errors.As(account.Validate(r), &invalid) || invalid.Field != "unit.reduce" {
		t.Errorf("a sum of buckets: %v", account.Validate(r))
	}
}

// The unit is in the recipe's bytes, so another unit is another recipe; the default has
// one encoding, which is none.
func TestUnitIsBound(t *testing.T) {
	ids := map[ID]string{}
	for name, u := range map[string]*Unit{
		"none": nil, "person": {UnitPerson, 1, FirstRecord, 0}, "visit": {UnitVisit, 1, FirstRecord, 0},
		"last": {UnitVisit, 1, LastRecord, 0}, "five a person": {UnitVisit, 1, FirstRecord, 5}, "own": {"night", 1, FirstRecord, 0},
	} {
		r := doctor()
		r.Unit = u
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read(b)
		if err != nil || (again.Unit == nil) != (u == nil) || u != nil && *again.Unit != *u {
			t.Errorf("%s: read as %+v, %v", name, again.Unit, err)
		}
		if err := account.Validate(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		id, _ := r.ID()
		if other, ok := ids[id]; ok {
			t.Errorf("%s and %s are one recipe", name, other)
		}
		ids[id] = name
	}
}

// Who is protected is printed with every guarantee; for visits both lines are, and
// neither promises a person what one visit has.
func TestUnitIsPrinted(t *testing.T) {
	show := func(r *Recipe) string {
		var b bytes.Buffer
		if err := describe(r, &b); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	text := show(doctor())
	for _, want := range []string{"Protects one device, as the recipe names no unit:", "nothing is said of a person with several", "for one device (replace neighbours)"} {
		if !strings.Contains(text, want) {
			t.Errorf("without a unit, %q is not in\n%s", want, text)
		}
	}
	r := visits()
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	text = show(r)
	for _, want := range []string{"Protects one visit: a report is made of its last record alone; a person is said to have at most 4",
		"Guarantee " + g.Loss.String() + ", over 1 round, for one visit (replace neighbours)",
		g.Person.String() + ", for a person with at most 4 of them (group privacy)",
		"whatever is answered for one visit,", "one visit has one report at most, in one round"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "whatever one person") || strings.Contains(text, "one person's") {
		t.Errorf("a person is promised what one visit has:\n%s", text)
	}
	b, err := marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Unit struct {
			Name, Reduce string
			PerPerson    uint32 `json:"per_person"`
		}
		Guarantee struct {
			Unit           string
			UnitsPerPerson uint32 `json:"units_per_person"`
			Person         Loss
			Epsilon        float64
		}
	}
	if err := json.Unmarshal(b, &out); err != nil || out.Unit.Name != "visit" || out.Unit.Reduce != "last" || out.Unit.PerPerson != 4 {
		t.Errorf("%v: %+v", err, out)
	}
	if out.Guarantee.Unit != "visit" || out.Guarantee.UnitsPerPerson != 4 || out.Guarantee.Person != g.Person || out.Guarantee.Epsilon != g.Epsilon {
		t.Errorf("%+v", out.Guarantee)
	}
}

// What a person with k units has is never less than the truth: against the exact curve of
// a sum that moves k times as far, which is what k reports of one person in one batch do,
// and against the chain of k links written out in exact numbers.
func TestPersonIsNotOptimistic(t *testing.T) {
	delta := Decimal{1, 6}
	for _, sigma2 := range []uint64{100, 400, 2500} {
		at := func(max uint64, d Decimal) Loss {
			m := release.DiscreteGaussian{Variance: release.Rational{Num: sigma2, Den: 1}, Contribution: release.Interval(float64(max))}
			g, err := accountant.Epsilon([]release.Release{release.One(m)}, d.FloatDown(), release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			return Loss{Epsilon: g.Epsilon, Delta: d.Float()}
		}
		for _, k := range []uint32{1, 2, 3, 5, 8} {
			got, err := Group(k, delta, func(d Decimal) (Loss, error) { return at(3, d), nil })
			if err != nil {
				t.Fatal(err)
			}
			if truth := at(3*uint64(k), Decimal{uint64(math.Ceil(got.Delta * 1e15)), 15}); got.Epsilon < truth.Epsilon {
				t.Errorf("variance %d, %d units: %v, and the sum moved %d times as far has %v", sigma2, k, got, k, truth)
			}
			if got.Finite() && got.Epsilon > 2*float64(k)*at(3, delta).Epsilon {
				t.Errorf("variance %d, %d units: %v, far above %d times %v", sigma2, k, got, k, at(3, delta))
			}
		}
	}
	for _, c := range []struct {
		k       uint32
		epsilon float64
		delta   Decimal
	}{{2, 0.5, Decimal{1, 9}}, {5, 1, Decimal{1, 9}}, {4, 2.5, Decimal{1, 6}}, {3, 0, Decimal{1, 3}}, {30, 2, Decimal{1, 3}}, {7, 0.1, Decimal{2, 1}}} {
		// at is one mechanism, (epsilon, d) for every d.
		var asked []Decimal
		got, err := Group(c.k, c.delta, func(d Decimal) (Loss, error) {
			asked = append(asked, d)
			return Loss{c.epsilon, d.Float()}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		used := asked[len(asked)-1]
		sum, power := new(big.Float).SetPrec(200), new(big.Float).SetPrec(200).SetInt64(1)
		for range c.k {
			sum.Add(sum, power)
			power.Mul(power, new(big.Float).SetFloat64(math.Exp(c.epsilon)))
		}
		d := new(big.Float).SetPrec(200).SetRat(used.Rat())
		need, _ := d.Mul(d, sum).Float64()
		switch {
		case !got.Finite():
			if need*0.5 < 1 && c.epsilon*float64(c.k) < 40 {
				t.Errorf("%+v: nothing, and a chain of links gives delta %v", c, need)
			}
		case got.Epsilon < float64(c.k)*c.epsilon || got.Delta < need*(1-1e-12):
			t.Errorf("%+v: %v, want epsilon %v and delta %v at least", c, got, float64(c.k)*c.epsilon, need)
		}
	}
}
