package main

import (
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func recipeCommand(sub ...*command) *command {
	return &command{
		name:  "recipe",
		short: "Make or read a recipe: what is asked, how, and what it guarantees",
		sub:   sub,
	}
}

// showRecipe writes what a recipe asks and guarantees, for people or for programs.
func (e *env) showRecipe(r *recipe.Recipe, asJSON bool) error {
	said, err := account.Of(r)
	if err != nil {
		return err
	}
	return e.show(r, said, asJSON)
}

// show writes what a recipe asks, and what was computed about it.
func (e *env) show(r *recipe.Recipe, said recipe.Particulars, asJSON bool) error {
	if !asJSON {
		said.Width = e.prose()
		return r.Describe(e.stdout, said)
	}
	b, err := r.JSON(said)
	if err != nil {
		return err
	}
	return e.json(b)
}

func recipeShow() *command {
	return &command{
		name: "show", args: "[--json] [FILE]",
		short: "Say in words what a recipe asks and what it guarantees",
		long:  "The guarantee is computed from the recipe's choices, as every device computes it. FILE is recipe.starling by default.",
		examples: [][2]string{
			{"starling recipe show recipe.starling", "for people"},
			{"starling recipe show --json recipe.starling", "for programs"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				path, err := oneFile("recipe show", args, deploy.RecipeFile)
				if err != nil {
					return err
				}
				checked, err := deploy.OpenRecipe(path)
				if err != nil {
					return ofInput(err, noRecipe)
				}
				return e.show(checked.Recipe(), account.About(checked), *asJSON)
			}
		},
	}
}

func recipeNew() *command {
	return &command{
		name: "new", args: "--name TEXT --query QUERY --leader URL --helper URL --min-batch B (--epsilon E | --no-noise) [FILE]",
		short: "Make a recipe whose guarantee is computed",
		long: `QUERY is one of
  count             how many say yes
  sum:MAX           the sum of numbers from 0 to MAX
  mean:MAX          their mean
  histogram:N       how many in each of N buckets
  multihot:N:MAX    how many have each of N properties, at most MAX of them at once
  sumvec:N:MAX      the sum of vectors of N numbers from 0 to MAX
  l1:N:MAX          the sum of vectors of N numbers from 0 on that add up to at most MAX
  quantiles:MIN:MAX:WIDTH:BRANCHING
                    how numbers are distributed, with their deciles; from MIN to MAX, beyond which they count as the nearest,
                    in bins of WIDTH numbers under a tree. BRANCHING is that of its nodes; 0 chooses it for Gaussian noise
  groups:MIN:MAX:N  the sum, the size and the mean of each of N groups, of which each device is in one, of numbers from MIN,
                    which may be below 0, to MAX; neither number nor group shows
  hierarchy:[FLOOR:]TREE
                    how many are at each place of a tree, in tables that add up. TREE is names with commas between them, each
                    with what is below it in brackets, and * before one that holds everything else: north(east,west),*elsewhere;
                    counts below FLOOR are not shown. hierarchy:@FILE reads all that from FILE
  hitters:ALPHABET:LETTERS:MOST
                    which texts are frequent, without a list of them, and how many have each; of up to LETTERS letters out of
                    ALPHABET, as a-z0-9, where up to MOST texts are frequent. hitters:ALPHABET:LETTERS:STEP:CHECKS:WIDTH:SEED
                    states the sketch: letters that a row tells more, rows of whole texts, cells of a row, seed of the hash
  distinct:CELLS    how many different texts there are, told by which of CELLS a hash leaves empty; with --noise discrete-laplace
  norm:CELLS        the root of the summed squares of how many have each text: how much texts repeat
  vector:N:NORM:BITS[:PROOF]
                    the sum of vectors of N real numbers, of length (L2 norm) at most NORM, to BITS binary places. PROOF is
                    pine32, pine40, pine64, pine128, l2fixed16 or l2fixed32; by default the smallest pine with room
With --projection M a device sends M numbers that a public random projection makes of its vector, and the result is estimated
from their sum: fewer bytes for more error, which recipe plan and recipe show tell.
The servers' noise is calibrated so that one honest server is enough for epsilon and delta.
FILE is recipe.starling by default and must not exist.` + "\n" + viewHelp + coinHelp + unitHelp + pathHelp,
		examples: [][2]string{
			{"starling recipe new --name 'Favourite bird' --query histogram:12 --leader https://leader.example/ " +
				"--helper https://helper.example/ --min-batch 1000 --epsilon 1", "a histogram with epsilon 1"},
			{"starling recipe new --name 'Way to work' --query histogram:3 --names walk,bike,bus --leader https://leader.example/ " +
				"--helper https://helper.example/ --min-batch 1000 --epsilon 1", "the same of answers that have names: starling send FILE bike"},
			{"starling recipe new --name Crashes --query multihot:40:1 --needles 1/100:1/2 --devices 60000 --relay https://relay.example/ " +
				"--gateway https://leader.example/gateway --leader https://leader.example/ --helper https://helper.example/ --min-batch 100 " +
				"--epsilon 1", "rare errors, reported by half of those who have one, in secret"},
			{"starling recipe new --name 'Minutes on the way' --query quantiles:0:239:1:0 --leader https://leader.example/ " +
				"--helper https://helper.example/ --min-batch 1000 --epsilon 1", "the deciles of numbers, without a guess where they lie"},
			{"starling recipe new --name 'Hours of sleep' --query groups:0:24:3 --names never,shifts,nights --noise discrete-laplace " +
				"--leader https://leader.example/ --helper https://helper.example/ --min-batch 1000 --epsilon 1",
				"sums and means by group: starling send FILE 7,shifts"},
			{"starling recipe new --name Steps --query sum:20000 --path shuffled --hop1 https://one.example/ --hop1-key one --hop2 https://two.example/ " +
				"--hop2-key two --analyzer https://three.example/ --analyzer-key three --randomizer cloak:modern:5000 --min-batch 1000 --epsilon 1",
				"a sum by way of a shuffler"},
			{"starling recipe new --name 'Where birds breed' --query 'hierarchy:coast(dunes,cliffs),inland(woods,*other)' --leader " +
				"https://leader.example/ --helper https://helper.example/ --min-batch 1000 --epsilon 1", "tables of regions and their parts, which add up"},
			{"starling recipe new --name Symptoms --query histogram:5 --precision 24h --views day,week=7,month=28 --leader https://leader.example/ " +
				"--helper https://helper.example/ --min-batch 1000 --epsilon 1", "each answer counts in a day, a week and four weeks, for one price"},
			{"starling recipe new --name 'Unknown birds' --query hitters:a-z:12:20 --leader https://leader.example/ " +
				"--helper https://helper.example/ --min-batch 10000 --epsilon 1", "frequent names, without a list of them"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print the recipe as one JSON object")
			name := flags.String("name", "", "what is asked, in a few words: `TEXT`")
			description := flags.String("description", "", "what is asked and why: `TEXT`")
			query := flags.String("query", "", "what is computed: `QUERY`")
			names := flags.String("names", "", "name the buckets of a histogram or the groups of sums by group, from 0 on: `WORDS` with commas between them, as walk,bike,bus")
			leader := flags.String("leader", "", "base `URL` of the leader")
			helper := flags.String("helper", "", "base `URL` of the helper")
			minBatch := flags.Uint64("min-batch", 0, "release nothing about fewer than `B` reports")
			noise := newNoiseFlags(flags)
			rounds := flags.Uint("rounds", 1, "in how many batches one unit may be: `N`")
			mode := flags.String("batches", "time-interval", "time-interval or leader-selected: `MODE`")
			precision := flags.Duration("precision", time.Hour, "cut report times to this `DURATION`")
			from := flags.String("from", "", "take reports from this `TIME`, as 2026-01-31T00:00:00Z")
			to := flags.String("to", "", "take reports up to this `TIME`")
			projection := flags.Uint("projection", 0, "send `M` numbers of a public random projection in place of each vector")
			coins := newCoinFlags(flags)
			unit := newUnitFlags(flags)
			views := newViewFlags(flags)
			training := newTrainingFlags(flags)
			keys := newKeyFlags(flags)
			way := newPathFlags(flags)
			return func(_ context.Context, e *env, args []string) error {
				path, err := oneFile("recipe new", args, deploy.RecipeFile)
				if err != nil {
					return err
				}
				o := account.Options{Name: *name, Description: *description, Leader: *leader, Helper: *helper, MinBatch: *minBatch, Rounds: uint32(*rounds)}
				if o.Query, err = parseQuery(*query); err != nil {
					return usageOf("recipe new", err)
				}
				if o.Labels, err = parseNames(*names); err != nil {
					return usageOf("recipe new", err)
				}
				if *projection > 0 {
					if o.Query, o.Projection, err = projected(o.Query, *projection); err != nil {
						return usageOf("recipe new", err)
					}
				}
				if o.TimePrecision, err = parsePrecision(*precision); err != nil {
					return usageOf("recipe new", err)
				}
				switch *mode {
				case "time-interval":
					o.BatchMode = dap.TimeInterval
				case "leader-selected":
					o.BatchMode = dap.LeaderSelected
				default:
					return usageOf("recipe new", fmt.Errorf("--batches is %q, want time-interval or leader-selected", *mode))
				}
				if o.Window, err = parseWindow(*from, *to, o.TimePrecision); err != nil {
					return usageOf("recipe new", err)
				}
				if err := coins.set(&o); err != nil {
					return usageOf("recipe new", err)
				}
				if o.Unit, err = unit.unit(); err != nil {
					return usageOf("recipe new", err)
				}
				if err := noise.set(&o); err != nil {
					return usageOf("recipe new", err)
				}
				if err := views.set(&o); err != nil {
					return usageOf("recipe new", err)
				}
				if err := training.set(&o); err != nil {
					return usageUnless("recipe new", err)
				}
				if other, err := way.set(&o, keys); err != nil {
					return usageUnless("recipe new", err)
				} else if !other {
					if err := keys.set(&o); err != nil {
						return err
					}
				}
				r, err := account.New(o)
				if err != nil {
					return usageOf("recipe new", err)
				}
				size, err := writeRecipe(r, path)
				if err != nil {
					return err
				}
				warnLoose(e.stderr, r)
				warnOver(e.stderr, r, time.Now())
				if *asJSON {
					return e.showRecipe(r, true)
				}
				err = e.showRecipe(r, false)
				fmt.Fprintf(e.stderr, "wrote %s, %d bytes\n", path, size)
				warnKeyless(e, r)
				return err
			}
		},
	}
}

// warnKeyless says where devices will refuse a recipe for want of signing keys.
func warnKeyless(e *env, r *recipe.Recipe) {
	if _, none := r.Claim.(recipe.NoClaim); r.Path.Proofs() && r.ServerKeys == nil && !none && !r.OnLoopback() {
		fmt.Fprintf(e.stderr, "It names no signing keys, so devices refuse it unless they are told to take any: --leader-key and what goes with it\n")
	}
}

// warnOver says where nobody can answer a recipe any more.
func warnOver(w io.Writer, r *recipe.Recipe, now time.Time) {
	between, ok := r.Window.(recipe.Between)
	if !ok {
		return
	}
	if end, err := r.TimePrecision.Begin(between.End); err == nil && !now.Before(end) {
		fmt.Fprintf(w, "Its time ended at %s, so no device answers it, and a recipe never changes: make another with a later --to\n", end.Format(time.RFC3339))
	}
}

// writeRecipe writes a recipe with its certificate to a new file, and says how long that is
// in bytes.
func writeRecipe(r *recipe.Recipe, path string) (size int, err error) {
	b, err := deploy.RecipeFileOf(r)
	if errors.Is(err, recipe.ErrNoCertificate) {
		return 0, failf(exitUsage, "starling recipe new --help", "no device could check what it claims: %w", err)
	} else if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return 0, failf(exitInput, "a recipe never changes; name another file", "%s exists", path)
	}
	if err != nil {
		return 0, ofInput(err, "name a file in a directory that can be written to")
	}
	return len(b), fillNew(f, b)
}

// usageUnless is usageOf for an error that says no better what to do.
func usageUnless(path string, err error) error {
	if said := new(failure); errors.As(err, &said) {
		return err
	}
	return usageOf(path, err)
}

func usageOf(path string, err error) error {
	return &failure{exitUsage, err, "starling " + path + " --help"}
}

// mostTyped bounds a file of texts or of a query, in bytes.
const mostTyped = 1 << 20

// readSmall reads a file of at most mostTyped bytes.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostTyped+1))
	if err == nil && len(b) > mostTyped {
		err = fmt.Errorf("%s is longer than %d bytes", path, mostTyped)
	}
	return b, err
}

// parseQuery reads a query as the usage of `recipe new` describes it.
func parseQuery(s string) (recipe.Query, error) {
	if s == "" {
		return nil, errors.New("--query is missing: what is computed, as histogram:21")
	}
	// A tree is long enough for a file of its own.
	if name, file, ok := strings.Cut(s, ":@"); ok {
		b, err := readSmall(file)
		if err != nil {
			return nil, fmt.Errorf("--query: %w", err)
		}
		s = name + ":" + string(b)
	}
	q, err := recipe.ParseQuery(s)
	if err != nil {
		return nil, fmt.Errorf("--query: %w", err)
	}
	return q, nil
}

// parseNames reads a list with commas between its words; one in double quotes may hold
// commas of its own. It is nil where nothing was typed.
func parseNames(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	list := csv.NewReader(strings.NewReader(s))
	list.TrimLeadingSpace = true
	names, err := list.Read()
	if err != nil {
		return nil, fmt.Errorf("--names: %w", err)
	}
	for i := range names {
		names[i] = norm.NFC.String(strings.TrimSpace(names[i]))
	}
	return names, nil
}

// projected is the query for vectors of which m numbers are sent, by a projection of a
// seed that nobody chose.
func projected(q recipe.Query, m uint) (recipe.Query, *recipe.Projection, error) {
	v, p, err := recipe.NewProjection(q, m)
	if err != nil {
		return nil, nil, fmt.Errorf("--projection %w", err)
	}
	rand.Read(p.Seed[:])
	return v, p, nil
}

// parseWindow reads the two ends of a recipe's window; both empty is no window.
func parseWindow(from, to string, p dap.TimePrecision) (recipe.Window, error) {
	if from == "" && to == "" {
		return recipe.NoWindow{}, nil
	}
	if from == "" || to == "" {
		return nil, errors.New("--from and --to go together")
	}
	var ends [2]dap.Time
	for i, text := range []string{from, to} {
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a time such as 2026-01-31T00:00:00Z", text)
		}
		if ends[i], err = p.At(t); err != nil {
			return nil, err
		}
	}
	return recipe.Between{Start: ends[0], End: ends[1]}, nil
}
