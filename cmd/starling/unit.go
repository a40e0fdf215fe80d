package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

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
		reduce:    flags.String("reduce", "first", "a report is made of WHO's first or last record, or of the sum of N, cut to an answer; of shared, of N of WHO at a site: `first|last|sum:N|shared:N`"),
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
	case sum && kind == "shared":
		n, err := strconv.ParseUint(records, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("--reduce: %q is not a whole number", records)
		}
		u.Records, u.Reduce = uint32(n), recipe.SharedSum
	default:
		return nil, fmt.Errorf("--reduce is %q, want first, last, sum:N or shared:N", *f.reduce)
	}
	return u, nil
}
