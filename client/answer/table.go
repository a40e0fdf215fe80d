package answer

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
)

// maxLine is the longest line that [Lines] reads, in bytes.
const maxLine = 1 << 20

// Lines reads the lines of a file that are not empty, without the space around them.
func Lines(in io.Reader) ([]string, error) {
	var lines []string
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, s.Err()
}

// Column reads one column of a CSV file, by its name in the first line, and behind it with
// a comma between, where group is not empty, another.
func Column(in io.Reader, column, group string) ([]string, error) {
	rows, head, err := open(in)
	if err != nil {
		return nil, err
	}
	at, err := find(head, column)
	if err != nil {
		return nil, err
	}
	also := -1
	if group != "" {
		if also, err = find(head, group); err != nil {
			return nil, err
		}
	}
	var values []string
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		values = append(values, strings.Clone(answerOf(row, at, also)))
	}
}

// answerOf is the answer in a row, whose group stands in another column unless that is -1.
func answerOf(row []string, value, group int) string {
	if group < 0 {
		return row[value]
	}
	return row[value] + "," + row[group]
}

// open reads the first line of a CSV file.
func open(in io.Reader) (rows *csv.Reader, head []string, err error) {
	rows = csv.NewReader(bufio.NewReader(in))
	rows.ReuseRecord = true
	if head, err = rows.Read(); err != nil {
		return nil, nil, fmt.Errorf("its first line: %w", err)
	}
	return rows, slices.Clone(head), nil
}

// find is where a column stands.
func find(head []string, column string) (int, error) {
	at := slices.Index(head, column)
	if at < 0 {
		return at, fmt.Errorf("no column %q; it has %s", column, strings.Join(head, ", "))
	}
	return at, nil
}

// EachRow is the Unit of a [Table] whose every row is of a unit of its own.
const EachRow = "-"

// A Table is a CSV file of records, by unit.
type Table struct {
	// File is what errors call it.
	File string
	// Column holds the answers. Group, if not empty, holds the groups behind them.
	Column, Group string
	// Unit holds the names of the recipe's privacy units, or is [EachRow].
	Unit string
	// Person, if not empty, holds the names of persons: one with more units than the
	// recipe says is refused.
	Person string
}

// A Tally says what became of a table's records.
type Tally struct{ Records, Units, LeftOut uint64 }

// A Fault is why a table is refused; a closed set.
type Fault int

const (
	FaultFile      Fault = iota // it cannot be read, or is no CSV file
	FaultColumn                 // it lacks a column
	FaultValue                  // a record is no answer to the recipe
	FaultUnnamed                // a record names no unit
	FaultPerson                 // a person has more units than the recipe says
	FaultTwoOwners              // one unit belongs to two persons
	FaultRecords                // a unit has several records, of which the recipe takes one
	FaultReduce                 // a unit's records make no answer
	FaultEmpty                  // it has no records
)

// A TableError says why and at which line a table is refused, never what stands there.
type TableError struct {
	Fault Fault
	err   error
}

func (e *TableError) Error() string { return e.err.Error() }
func (e *TableError) Unwrap() error { return e.err }

func faultf(f Fault, format string, args ...any) error {
	return &TableError{f, fmt.Errorf(format, args...)}
}

// Read makes one value of each unit, in the order in which units come first. It fails
// with *[TableError].
func (x *Table) Read(in io.Reader, r *recipe.Recipe) ([]client.Value, Tally, error) {
	var tally Tally
	units, err := x.records(in, r)
	if err != nil {
		return nil, tally, err
	}
	u := r.PrivacyUnit()
	values := make([]client.Value, len(units))
	for i, records := range units {
		values[i], err = client.Reduce(r, records)
		if several := new(client.RecordsError); errors.As(err, &several) {
			return nil, tally, faultf(FaultRecords, "%s has %d records of one %s, and the recipe takes one and does not say which; nothing was sent",
				x.File, several.Records, u.Name)
		} else if err != nil {
			return nil, tally, faultf(FaultReduce, "%s: the records of %s %d: %w; nothing was sent", x.File, u.Name, i+1, err)
		}
		tally.Records += uint64(len(records))
		tally.LeftOut += uint64(max(0, len(records)-int(u.Records)))
	}
	tally.Units = uint64(len(units))
	if len(values) == 0 {
		return nil, tally, faultf(FaultEmpty, "there are no values")
	}
	return values, tally, nil
}

// columns is where a table's columns stand; -1 for one that it has not.
type columns struct{ value, group, unit, person int }

func (x *Table) columns(head []string) (at columns, err error) {
	at = columns{-1, -1, -1, -1}
	for _, c := range []struct {
		name string
		use  bool
		at   *int
	}{{x.Column, true, &at.value}, {x.Group, x.Group != "", &at.group}, {x.Unit, x.Unit != EachRow, &at.unit}, {x.Person, x.Person != "", &at.person}} {
		if !c.use {
			continue
		}
		if *c.at, err = find(head, c.name); err != nil {
			return at, faultf(FaultColumn, "%s: %w", x.File, err)
		}
	}
	return at, nil
}

// records reads the table's rows, by unit.
func (x *Table) records(in io.Reader, r *recipe.Recipe) ([][]client.Value, error) {
	rows, head, err := open(in)
	if err != nil {
		return nil, faultf(FaultFile, "%s: %w", x.File, err)
	}
	at, err := x.columns(head)
	if err != nil {
		return nil, err
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
			return nil, faultf(FaultFile, "%s: %w", x.File, err)
		}
		line, _ := rows.FieldPos(0)
		v, ok := Parse(r, answerOf(row, at.value, at.group))
		if !ok {
			return nil, faultf(FaultValue, "%s:%d: no answer to the recipe: %s; want %s; nothing was sent", x.File, line, r.Given(), Wanted(r))
		}
		i := len(units)
		if at.unit >= 0 {
			name := row[at.unit]
			if name == "" {
				return nil, faultf(FaultUnnamed, "%s:%d: column %q is empty; nothing was sent", x.File, line, x.Unit)
			}
			if known, ok := place[name]; ok {
				i = known
			} else {
				place[strings.Clone(name)] = i
			}
		}
		if i == len(units) {
			units = append(units, nil)
			if at.person >= 0 {
				person := strings.Clone(row[at.person])
				belongs[i] = person
				if persons[person]++; persons[person] > u.PerPerson {
					return nil, faultf(FaultPerson, "%s:%d: a person with more than the %d of the recipe's unit, %s; nothing was sent", x.File, line, u.PerPerson, u.Name)
				}
			}
		} else if at.person >= 0 && belongs[i] != row[at.person] {
			return nil, faultf(FaultTwoOwners, "%s:%d: one %s of two persons; nothing was sent", x.File, line, u.Name)
		}
		units[i] = append(units[i], v)
	}
}
