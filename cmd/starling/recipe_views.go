package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// viewFlags are the flags of `recipe new` about several granularities of one collection.
type viewFlags struct {
	views *string
	keep  *uint
}

func newViewFlags(flags *flag.FlagSet) *viewFlags {
	return &viewFlags{
		views: flags.String("views", "", "release each round in wider spans too, all under one price: `VIEWS`, as day,week=7,month=28; the first is one round"),
		keep:  flags.Uint("views-keep", 0, "for how many `ROUNDS` after the widest span views may be asked for; by default as many as that span has"),
	}
}

const viewHelp = `VIEWS are names with commas between them: of the round, and of each wider span with its length in rounds, a multiple of the one
before. Each has noise of its own, as much as a round; week=7:900 states it, as a variance or scale. The guarantee counts every
view. The servers keep the sums of rounds for the widest span and --views-keep.
`

// set fills in the options.
func (f *viewFlags) set(o *account.Options) error {
	if *f.views == "" {
		if *f.keep != 0 {
			return fmt.Errorf("--views-keep is for --views")
		}
		return nil
	}
	v := new(recipe.Views)
	for i, part := range strings.Split(*f.views, ",") {
		name, span, wide := strings.Cut(strings.TrimSpace(part), "=")
		if wide == (i == 0) {
			return fmt.Errorf("--views is %q, want the name of the view of one round and then name=ROUNDS for each wider one, as day,week=7", *f.views)
		}
		if i == 0 {
			v.Round = name
			continue
		}
		span, parameter, stated := strings.Cut(span, ":")
		rounds, err := strconv.ParseUint(span, 10, 32)
		if err != nil {
			return fmt.Errorf("--views: %q is no number of rounds", span)
		}
		w := recipe.View{Name: name, Rounds: uint32(rounds)}
		if stated {
			if w.Parameter, err = recipe.ParseRational(parameter); err != nil {
				return fmt.Errorf("--views %s: %w", name, err)
			}
		}
		v.Wider = append(v.Wider, w)
	}
	if v.Keep = uint32(*f.keep); v.Keep == 0 && len(v.Wider) > 0 {
		v.Keep = v.Wider[len(v.Wider)-1].Rounds
	}
	o.Views = v
	return nil
}
