package answer

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
)

func TestParse(t *testing.T) {
	histogram, vector := recipe.Histogram{Length: 3}, recipe.SumVec{Length: 2, Max: 9}
	for _, c := range []struct {
		q    recipe.Query
		text string
		want client.Value
	}{
		{recipe.Count{}, "Yes", client.Bool(true)}, {recipe.Count{}, "0", client.Bool(false)},
		{recipe.Vector{Dimension: 2}, "-0.5, 1e-3", client.Reals([]float64{-0.5, 0.001})},
		{recipe.Sum{Max: 9}, " 7 ", client.Number(7)}, {histogram, "2", client.Bucket(2)},
		{recipe.GroupSums{Min: -9, Max: 9, Groups: 3}, " -7, 2", client.InGroup(-7, 2)},
	} {
		if got, ok := Parse(&recipe.Recipe{Query: c.q}, c.text); !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v, %q: not read", c.q, c.text)
		}
	}
	for _, c := range []struct {
		q    recipe.Query
		text string
	}{
		{recipe.Count{}, "maybe"}, {recipe.Sum{Max: 9}, "-1"}, {recipe.Sum{Max: 9}, "1.5"}, {histogram, "3"}, {histogram, ""},
		{vector, "1"}, {vector, "1,2,3"}, {vector, "1,x"},
		{recipe.GroupSums{Max: 9, Groups: 3}, "7"}, {recipe.GroupSums{Max: 9, Groups: 3}, "7,"}, {recipe.GroupSums{Max: 9, Groups: 3}, ",1"},
		{recipe.GroupSums{Max: 9, Groups: 3}, "7,3"}, {recipe.GroupSums{Max: 9, Groups: 3}, "7.5,1"}, {recipe.GroupSums{Max: 9, Groups: 3}, "7,1,1"},
	} {
		if _, ok := Parse(&recipe.Recipe{Query: c.q}, c.text); ok {
			t.Errorf("%v, %q: accepted", c.q, c.text)
		}
	}
	if _, ok := Parse(&recipe.Recipe{Query: vector}, "1, 2"); !ok {
		t.Error("a vector is not read")
	}
}

// TestTyped: the first bad value is named by its place, and what it says is not repeated.
func TestTyped(t *testing.T) {
	r := &recipe.Recipe{Query: recipe.Histogram{Length: 3}, Labels: []string{"rare", "often", "never"}}
	values, err := Typed(r, []string{"often", "0"})
	if want := []client.Value{client.Bucket(1), client.Bucket(0)}; err != nil || !reflect.DeepEqual(values, want) {
		t.Errorf("%v", err)
	}
	byName := &recipe.Recipe{Query: recipe.GroupSums{Max: 9, Groups: 2}, Labels: []string{"cat", "dog, or fox"}}
	values, err = Typed(byName, []string{"3,dog, or fox", "4,0"})
	if want := []client.Value{client.InGroup(3, 1), client.InGroup(4, 0)}; err != nil || !reflect.DeepEqual(values, want) {
		t.Errorf("%v", err)
	}
	if _, err := Typed(byName, []string{"3,cow"}); err == nil || !strings.Contains(err.Error(), "a comma and a group: cat, dog, or fox, or a number from 0 to 1") {
		t.Errorf("%v", err)
	}
	_, err = Typed(r, []string{"often", "SECRET", "x"})
	bad := new(ValueError)
	if !errors.As(err, &bad) || bad.Place != 2 || bad.Of != 3 || strings.Contains(err.Error(), "SECRET") ||
		!strings.Contains(err.Error(), "number 2 of the 3 values") || !strings.Contains(err.Error(), "rare, often, never, or a number from 0 to 2") {
		t.Errorf("%v", err)
	}
	if _, err := Typed(r, []string{"SECRET"}); err == nil || !strings.HasPrefix(err.Error(), "the value does not answer") {
		t.Errorf("%v", err)
	}
}

// TestMadeUp: what is made up answers each kind of query that can be typed.
func TestMadeUp(t *testing.T) {
	for _, q := range []recipe.Query{
		recipe.Count{}, recipe.Sum{Max: 2}, recipe.Mean{Max: 2}, recipe.Histogram{Length: 2}, recipe.Multihot{Length: 3, MaxWeight: 1},
		recipe.SumVec{Length: 2, Max: 1}, recipe.L1BoundSum{Length: 2, Max: 3}, recipe.Vector{Dimension: 4},
		recipe.Quantiles{Min: 3, Max: 9, Width: 1, Branching: 2}, recipe.GroupSums{Min: -3, Max: 9, Groups: 3},
		recipe.Hierarchy{Places: []recipe.TreePlace{{Depth: 1, Label: "a"}, {Depth: 1, Label: "b"}}},
		recipe.HeavyHitters{Alphabet: "ab", Letters: 3, Step: 1, Checks: 1, Width: 5},
		recipe.Distinct{Keyed: recipe.Keyed{Width: 4}}, recipe.Norm{Keyed: recipe.Keyed{Width: 4}},
	} {
		r := &recipe.Recipe{Query: q}
		for range 100 {
			if v := MadeUp(r); reflect.DeepEqual(v, client.Value{}) || reflect.DeepEqual(v, client.NoValue()) {
				t.Fatalf("%v: no answer", q)
			}
		}
	}
}

func TestLinesAndColumns(t *testing.T) {
	lines, err := Lines(strings.NewReader("\n 3 \n\n4"))
	if err != nil || !reflect.DeepEqual(lines, []string{"3", "4"}) {
		t.Errorf("lines: %q, %v", lines, err)
	}
	if _, err := Lines(strings.NewReader(strings.Repeat("x", maxLine+1))); err == nil {
		t.Error("a line without end was read")
	}
	const table = "who,cost\nann,3\nbob,\"4\"\n"
	column, err := Column(strings.NewReader(table), "cost", "")
	if err != nil || !reflect.DeepEqual(column, []string{"3", "4"}) {
		t.Errorf("a column: %q, %v", column, err)
	}
	both, err := Column(strings.NewReader(table), "cost", "who")
	if err != nil || !reflect.DeepEqual(both, []string{"3,ann", "4,bob"}) {
		t.Errorf("two columns: %q, %v", both, err)
	}
	if got, err := Column(strings.NewReader(table), "cost", "place"); err == nil {
		t.Errorf("a column that is not there: %q", got)
	}
	for name, in := range map[string]string{"price": table, "cost": table + "cleo\n", "who": ""} {
		if got, err := Column(strings.NewReader(in), name, ""); err == nil {
			t.Errorf("column %s of %q: %q", name, in, got)
		}
	}
}

// costs is a recipe of sums, whose unit is a visit of which a person may have two.
func costs(reduce recipe.Reduction, records uint32) *recipe.Recipe {
	return &recipe.Recipe{Query: recipe.Sum{Max: 9}, Unit: &recipe.Unit{Name: "visit", Records: records, Reduce: reduce, PerPerson: 2}}
}

// TestTable: each unit becomes one value, in the order in which units come first.
func TestTable(t *testing.T) {
	const rows = "who,visit,cost\nann,a,3\nbob,b,4\nann,a,5\nann,c,1\n"
	visits := Table{File: "rows.csv", Column: "cost", Unit: "visit", Person: "who"}
	for _, c := range []struct {
		table  Table
		recipe *recipe.Recipe
		want   []uint64
		tally  Tally
	}{
		{visits, costs(recipe.FirstRecord, 1), []uint64{3, 4, 1}, Tally{4, 3, 1}},
		{visits, costs(recipe.LastRecord, 1), []uint64{5, 4, 1}, Tally{4, 3, 1}},
		{visits, costs(recipe.ClippedSum, 2), []uint64{8, 4, 1}, Tally{4, 3, 0}},
		{Table{File: "rows.csv", Column: "cost", Unit: EachRow}, costs(recipe.FirstRecord, 1), []uint64{3, 4, 5, 1}, Tally{4, 4, 0}},
	} {
		values, tally, err := c.table.Read(strings.NewReader(rows), c.recipe)
		var want []client.Value
		for _, n := range c.want {
			want = append(want, client.Number(n))
		}
		if err != nil || tally != c.tally || !reflect.DeepEqual(values, want) {
			t.Errorf("%+v of %v: not the values wanted, or %+v; %v", c.table, c.recipe.Unit, tally, err)
		}
	}
}

// TestTableOfGroups: the group stands in a column of its own; a row whose group is none is
// refused by its line.
func TestTableOfGroups(t *testing.T) {
	x := Table{File: "rows.csv", Column: "cost", Group: "kind", Unit: EachRow}
	r := &recipe.Recipe{Query: recipe.GroupSums{Max: 9, Groups: 2}, Labels: []string{"cat", "dog"}}
	values, _, err := x.Read(strings.NewReader("kind,cost\ndog,3\ncat,4\n"), r)
	if want := []client.Value{client.InGroup(3, 1), client.InGroup(4, 0)}; err != nil || !reflect.DeepEqual(values, want) {
		t.Errorf("%v", err)
	}
	for rows, fault := range map[string]Fault{"kind,cost\nSECRET,3\n": FaultValue, "kind,cost\ndog,SECRET\n": FaultValue, "sort,cost\ndog,3\n": FaultColumn} {
		_, _, err := x.Read(strings.NewReader(rows), r)
		if bad := new(TableError); !errors.As(err, &bad) || bad.Fault != fault || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", rows, err)
		}
	}
}

// TestTableRefused: a bad table has nothing read from it, and is told by its line, not by
// what stands there.
func TestTableRefused(t *testing.T) {
	visits := Table{File: "rows.csv", Column: "cost", Unit: "visit", Person: "who"}
	one := &recipe.Recipe{Query: recipe.Sum{Max: 9}}
	for _, c := range []struct {
		rows, says string
		fault      Fault
		recipe     *recipe.Recipe
		change     func(*Table)
	}{
		{"", "its first line", FaultFile, nil, nil},
		{"SECRET,a,3\nSECRET,a\n", "rows.csv: ", FaultFile, nil, nil},
		{"SECRET,a,3\n", `no column "price"; it has who, visit, cost`, FaultColumn, nil, func(x *Table) { x.Column = "price" }},
		{"SECRET,a,3\n", `no column "-"`, FaultColumn, nil, func(x *Table) { x.Person = EachRow }},
		{"ann,a,3\nbob,b,SECRET\n", "rows.csv:3: no answer to the recipe", FaultValue, nil, nil},
		{"SECRET,a,3\nSECRET,,3\n", `rows.csv:3: column "visit" is empty`, FaultUnnamed, nil, nil},
		{"SECRET,a,3\nSECRET,b,3\nSECRET,c,3\n", "rows.csv:4: a person with more than the 2", FaultPerson, nil, nil},
		{"ann,SECRET,3\nbob,SECRET,3\n", "rows.csv:3: one visit of two persons", FaultTwoOwners, nil, nil},
		{"ann,SECRET,3\nann,SECRET,3\n", "2 records of one device", FaultRecords, one, func(x *Table) { x.Person = "" }},
		{"", "there are no values", FaultEmpty, nil, nil},
	} {
		table, r, head := visits, costs(recipe.FirstRecord, 1), "who,visit,cost\n"
		if c.recipe != nil {
			r = c.recipe
		}
		if c.change != nil {
			c.change(&table)
		}
		if c.fault == FaultFile && c.rows == "" {
			head = ""
		}
		values, _, err := table.Read(strings.NewReader(head+c.rows), r)
		bad := new(TableError)
		if !errors.As(err, &bad) || bad.Fault != c.fault || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") || values != nil {
			t.Errorf("%q: fault %+v, want %d; %v", c.rows, bad, c.fault, err)
		}
	}
}

// FuzzTable: whatever a file holds, a value comes of each unit, or an error.
func FuzzTable(f *testing.F) {
	f.Add([]byte("who,visit,cost\nann,a,3\nbob,b,4\nann,a,5\n"))
	f.Add([]byte("who,visit,cost\n\"ann\",,3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		table := Table{File: "rows.csv", Column: "cost", Unit: "visit"}
		values, tally, err := table.Read(bytes.NewReader(b), costs(recipe.FirstRecord, 1))
		if (err == nil) != (len(values) > 0) || uint64(len(values)) != tally.Units {
			t.Errorf("%d values of %+v: %v", len(values), tally, err)
		}
	})
}
