package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
)

// unitFlags say whose data a recipe or a plan protects.
type unitFlags struct {
	name, reduce *string
	perPerson    *uint
}

const unitHelp = `
--unit names whose data is protected: person, device (the default), visit, site, or a word of your own. --reduce says how several
records of one become an answer. --per-person has a second guarantee computed, for a person with as many of them.`

func newUnitFlags(flags *flag.FlagSet) *unitFlags {
	return &unitFlags{
		name:      flags.String("unit", "", "protect one `WHO`, as person or visit"),
		reduce:    flags.String("reduce", "first", "a report is made of WHO's first or last record, or of the sum of N, cut to an answer: `first|last|sum:N`"),
		perPerson: flags.Uint("per-person", 0, "a person has at most `K` of WHO"),
	}
}

// unit is nil where none is named.
func (f *unitFlags) unit() (*recipe.Unit, error) {
	if *f.name == "" {
		if *f.reduce != "first" || *f.perPerson != 0 {
			return nil, errors.New("--reduce and --per-person go with --unit")
		}
		return nil, nil
	}
	u := &recipe.Unit{Name: *f.name, Records: 1, PerPerson: uint32(min(*f.perPerson, recipe.MaxPerPerson+1))}
	switch kind, records, sum := strings.Cut(*f.reduce, ":"); {
	case !sum && kind == "first":
		u.Reduce = recipe.FirstRecord
	case !sum && kind == "last":
		u.Reduce = recipe.LastRecord
	case sum && kind == "sum":
		n, err := strconv.ParseUint(records, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--reduce: %q is not a whole number", records)
		}
		u.Records, u.Reduce = uint32(n), recipe.ClippedSum
	default:
		return nil, fmt.Errorf("--reduce is %q, want first, last or sum:N", *f.reduce)
	}
	return u, nil
}

// eachRow is the --unit of a table whose every row is of a unit of its own.
const eachRow = "-"

// A unitTable is a CSV file of records, by unit.
type unitTable struct {
	file, column string
	unit, person string // columns; unit may be eachRow, person empty
}

// unitTally says what became of a table's records.
type unitTally struct{ Records, Units, LeftOut uint64 }

// read makes one value of each unit, in the order in which they come first.
func (x *unitTable) read(r *recipe.Recipe) ([]client.Value, unitTally, error) {
	var tally unitTally
	f, err := os.Open(x.file)
	if err != nil {
		return nil, tally, ofInput(err, "starling send --help")
	}
	defer f.Close()
	units, err := x.records(f, r)
	if err != nil {
		return nil, tally, err
	}
	u := r.PrivacyUnit()
	values := make([]client.Value, len(units))
	for i, records := range units {
		values[i], err = client.Reduce(r, records)
		if several := new(client.RecordsError); errors.As(err, &several) {
			return nil, tally, failf(exitInput, "a recipe says which by starling recipe new --unit "+u.Name+" --reduce first",
				"%s has %d records of one %s, and the recipe takes one and does not say which; nothing was sent", x.file, several.Records, u.Name)
		} else if err != nil {
			return nil, tally, failf(exitInput, "starling recipe show", "%s: the records of %s %d: %w; nothing was sent", x.file, u.Name, i+1, err)
		}
		tally.Records += uint64(len(records))
		tally.LeftOut += uint64(max(0, len(records)-int(u.Records)))
	}
	tally.Units = uint64(len(units))
	if len(values) == 0 {
		return nil, tally, failf(exitInput, "starling send --help", "there are no values")
	}
	return values, tally, nil
}

// records reads the table's rows. What it refuses it names by its line, never by what
// stands there.
func (x *unitTable) records(in io.Reader, r *recipe.Recipe) ([][]client.Value, error) {
	rows := csv.NewReader(bufio.NewReader(in))
	rows.ReuseRecord = true
	head, err := rows.Read()
	if err != nil {
		return nil, failf(exitInput, "", "%s: its first line: %w", x.file, err)
	}
	at := map[string]int{}
	columns := []string{x.column}
	if x.unit != eachRow {
		columns = append(columns, x.unit)
	}
	if x.person != "" {
		columns = append(columns, x.person)
	}
	for _, name := range columns {
		if at[name] = slices.Index(head, name); at[name] < 0 {
			return nil, failf(exitInput, "starling send --help", "%s: no column %q; it has %s", x.file, name, strings.Join(head, ", "))
		}
	}
	u := r.PrivacyUnit()
	var units [][]client.Value
	place := map[string]int{}      // of a unit
	belongs := map[int]string{}    // a unit to a person
	persons := map[string]uint32{} // how many units each has
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return units, nil
		}
		if err != nil {
			return nil, failf(exitInput, "", "%s: %w", x.file, err)
		}
		line, _ := rows.FieldPos(0)
		v, ok := parseValue(r, row[at[x.column]])
		if !ok {
			return nil, failf(exitInput, "starling recipe show", "%s:%d: no answer to the recipe: %s; want %s; nothing was sent", x.file, line, r.Given(), wanted(r))
		}
		i := len(units)
		if x.unit != eachRow {
			name := row[at[x.unit]]
			if name == "" {
				return nil, failf(exitInput, "every row names its unit, or --unit "+eachRow+" says that each is one", "%s:%d: column %q is empty; nothing was sent", x.file,
					line, x.unit)
			}
			if known, ok := place[name]; ok {
				i = known
			} else {
				place[strings.Clone(name)] = i
			}
		}
		if i == len(units) {
			units = append(units, nil)
			if x.person != "" {
				person := strings.Clone(row[at[x.person]])
				belongs[i] = person
				if persons[person]++; persons[person] > u.PerPerson {
					return nil, failf(exitCheck, "what a person with more would have, nobody has computed", "%s:%d: a person with more than the %d of the recipe's unit, %s; "+
						"nothing was sent", x.file, line, u.PerPerson, u.Name)
				}
			}
		} else if x.person != "" && belongs[i] != row[at[x.person]] {
			return nil, failf(exitInput, "", "%s:%d: one %s of two persons; nothing was sent", x.file, line, u.Name)
		}
		units[i] = append(units[i], v)
	}
}

// validate says which of a recipe and of flags do not go together.
func (x *unitTable) validate(r *recipe.Recipe) error {
	u := r.PrivacyUnit()
	switch {
	case x.file == "" && (x.unit != "" || x.person != ""):
		return usageOf("send", errors.New("--unit and --person name columns of the --csv file"))
	case x.file != "" && x.column == "":
		return usageOf("send", errors.New("--csv needs --column, the name of a column in the file's first line"))
	case x.file != "" && x.unit == "" && r.Unit != nil:
		return failf(exitUsage, "--unit COLUMN says whose each row is, --unit "+eachRow+" that each is of another "+u.Name,
			"this recipe protects one %s, whatever the number of its rows, and --unit is missing", u.Name)
	case x.person != "" && u.PerPerson == 0:
		return usageOf("send", fmt.Errorf("the recipe says nothing of how many of its unit, %s, a person has: --person has nothing to hold", u.Name))
	}
	return nil
}
