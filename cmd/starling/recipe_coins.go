package main

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// coinFlags are the flags of `recipe new` about who takes part, and how that is hidden.
type coinFlags struct {
	sample, needles, donate, dummies, cover, relay, gateway, kem, draft, randomizer, target, certificate *string
	devices                                                                                              *uint64
	roundFlags
}

const coinHelp = `
Devices decide by secret coins with one of --sample, --needles and --donate; --devices says how many decide in each round.
Behind a --relay that amplifies privacy, with dummies that are chosen unless given. --target asks only devices with public
attributes, counted before: --certificate names the recipe, the log entry, the lower bound and the least population.`

func newCoinFlags(flags *flag.FlagSet) *coinFlags {
	return &coinFlags{
		sample:      flags.String("sample", "", "each device reports with probability `Q`, as 1/10"),
		needles:     flags.String("needles", "", "it reports the zero vector with probability D, others with O: `D:O`"),
		donate:      flags.String("donate", "", "it reports with probability Q in a random one of M slots of L units: `Q:M:L`"),
		devices:     flags.Uint64("devices", 0, "how many devices decide in a round: `N`"),
		roundFlags:  newRoundFlags(flags),
		dummies:     flags.String("dummies", "", "the others send a dummy with probability Q, N honest devices at least, at most A in a batch: `Q:N:A`"),
		cover:       flags.String("cover", "", "`Q` of all devices upload a report or a no-op, as 1"),
		relay:       flags.String("relay", "", "`URL` of a relay that hides who sends"),
		gateway:     flags.String("gateway", "", "`URL` of the gateway behind it"),
		kem:         flags.String("kem", "x25519", "what encrypts reports, x25519 or x-wing: `KEM`"),
		draft:       flags.String("dap", dap.Draft18.String(), "the draft of DAP that the task speaks: `DRAFT`"),
		randomizer:  flags.String("randomizer", "", "krr:E, rappor:E, pgr:E, or gaussian[:VARIANCE] for vectors, on the device and instead of the servers' noise: `R`"),
		target:      flags.String("target", "", "ask only devices with these attributes, as platform=ios,linux;language=de: `WHO`"),
		certificate: flags.String("certificate", "", "the evidence that enough have them: `RECIPE:ENTRY:LOWER:LEAST`"),
	}
}

// roundFlags are the flags about rounds of `recipe new` and `recipe plan`.
type roundFlags struct {
	round *uint64
	grace *string
}

func newRoundFlags(flags *flag.FlagSet) roundFlags {
	return roundFlags{
		round: flags.Uint64("round", 0, "length of a round in units of the precision; by default 1, or all slots of --donate: `N`"),
		grace: flags.String("grace", "", "release a round this `DURATION` after its end; by default 5m with --relay, and else 0s"),
	}
}

// set fills in the length of a round and the grace, once the participation is known.
func (f roundFlags) set(o *account.Options) error {
	o.RoundUnits = max(1, *f.round)
	if o.Participation != nil && o.Participation.Units() != 0 {
		slots := o.Participation.Units()
		if *f.round != 0 && *f.round != slots {
			return fmt.Errorf("--round is %d, but the slots of --donate are %d units", *f.round, slots)
		}
		o.RoundUnits = slots
	}
	if *f.grace == "" {
		return nil
	}
	grace, err := time.ParseDuration(*f.grace)
	if err != nil || grace < 0 || grace%time.Second != 0 {
		return fmt.Errorf("--grace is %q, want whole seconds as 5m or 0s", *f.grace)
	}
	if o.Grace = grace; grace == 0 {
		o.Grace = -1
	}
	return nil
}

// set fills in the options.
func (f *coinFlags) set(o *account.Options) (err error) {
	if o.Participation, err = f.participation(); err != nil {
		return err
	}
	if err := f.roundFlags.set(o); err != nil {
		return err
	}
	if *f.devices > 0 {
		o.Rate = &recipe.Rate{Devices: *f.devices, Units: o.RoundUnits}
	}
	if *f.dummies != "" {
		parts, rates, err := split("--dummies", *f.dummies, 3, 1)
		if err != nil {
			return err
		}
		o.Dummies = &recipe.Dummies{Rate: rates[0], Senders: parts[0], Allowance: parts[1]}
	}
	if *f.cover != "" {
		rate, err := recipe.ParseRational(*f.cover)
		if err != nil {
			return fmt.Errorf("--cover: %w", err)
		}
		o.Cover = &recipe.Cover{Rate: rate}
	}
	if (*f.relay == "") != (*f.gateway == "") {
		return errors.New("--relay and --gateway go together")
	}
	if *f.relay != "" {
		o.Relay = &recipe.Relay{URL: *f.relay, Gateway: *f.gateway}
	}
	switch *f.kem {
	case recipe.X25519.String():
	case recipe.XWing.String():
		o.KEM = recipe.XWing
	default:
		return fmt.Errorf("--kem is %q, want x25519 or x-wing", *f.kem)
	}
	if o.DAP.UnmarshalText([]byte(*f.draft)) != nil {
		return fmt.Errorf("--dap is %q, want %v or %v", *f.draft, dap.Draft18, dap.Draft19)
	}
	if o.Randomizer, err = parseRandomizer(*f.randomizer); err != nil {
		return err
	}
	o.Targeting, err = parseTargeting(*f.target, *f.certificate)
	return err
}

func (f *coinFlags) participation() (recipe.Participation, error) {
	given := 0
	for _, s := range []string{*f.sample, *f.needles, *f.donate} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return nil, errors.New("--sample, --needles and --donate exclude each other")
	}
	switch {
	case *f.sample != "":
		q, err := recipe.ParseRational(*f.sample)
		if err != nil {
			return nil, fmt.Errorf("--sample: %w", err)
		}
		return recipe.Bernoulli{Rate: q}, nil
	case *f.needles != "":
		_, rates, err := split("--needles", *f.needles, 2, 2)
		if err != nil {
			return nil, err
		}
		return recipe.Importance{Default: rates[0], Other: rates[1]}, nil
	case *f.donate != "":
		n, rates, err := split("--donate", *f.donate, 3, 1)
		if err != nil {
			return nil, err
		}
		if n[0] > recipe.MaxSlots || n[1] > 1<<20 {
			return nil, fmt.Errorf("--donate: %s has too many or too long slots", *f.donate)
		}
		return recipe.DonationTime{Rate: rates[0], Slots: uint32(n[0]), Length: uint32(n[1])}, nil
	}
	return nil, nil
}

// split reads so many parts with colons between them, the first of them fractions and the rest whole numbers.
func split(name, s string, parts, fractions int) (numbers []uint64, rates []recipe.Rational, err error) {
	list := strings.Split(s, ":")
	if len(list) != parts {
		return nil, nil, fmt.Errorf("%s: %q has %d parts, want %d with colons between them", name, s, len(list), parts)
	}
	for i, part := range list {
		if i < fractions {
			q, err := recipe.ParseRational(part)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			rates = append(rates, q)
			continue
		}
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %q is not a whole number", name, part)
		}
		numbers = append(numbers, n)
	}
	return numbers, rates, nil
}

func parseRandomizer(s string) (recipe.Randomizer, error) {
	if s == "" {
		return nil, nil
	}
	z, err := recipe.ParseRandomizer(s)
	if err != nil {
		return nil, fmt.Errorf("--randomizer: %w", err)
	}
	return z, nil
}

func parseTargeting(who, certificate string) (*recipe.Targeting, error) {
	if who == "" && certificate == "" {
		return nil, nil
	}
	if who == "" || certificate == "" {
		return nil, errors.New("--target and --certificate go together")
	}
	t := new(recipe.Targeting)
	for _, clause := range strings.Split(who, ";") {
		name, values, ok := strings.Cut(clause, "=")
		if !ok {
			return nil, fmt.Errorf("--target: %q is not ATTRIBUTE=VALUE,VALUE", clause)
		}
		a, err := recipe.ParseAttribute(name)
		if err != nil {
			return nil, fmt.Errorf("--target: %w", err)
		}
		list := strings.Split(values, ",")
		slices.Sort(list)
		t.Clauses = append(t.Clauses, recipe.Clause{Attribute: a, Values: list})
	}
	slices.SortFunc(t.Clauses, func(a, b recipe.Clause) int { return int(a.Attribute) - int(b.Attribute) })
	parts := strings.Split(certificate, ":")
	if len(parts) != 4 {
		return nil, fmt.Errorf("--certificate: %d parts, want RECIPE:ENTRY:LOWER:LEAST", len(parts))
	}
	id, err := recipe.ParseID(parts[0])
	if err != nil {
		return nil, fmt.Errorf("--certificate: %w", err)
	}
	entry, err := hex.DecodeString(parts[1])
	if err != nil || len(entry) != len(recipe.Hash{}) {
		return nil, errors.New("--certificate: the entry is not the hexadecimal SHA-256 of a log entry")
	}
	numbers, _, err := split("--certificate", parts[2]+":"+parts[3], 2, 0)
	if err != nil {
		return nil, err
	}
	t.Certificate = recipe.Certificate{Recipe: id, Entry: recipe.Hash(entry), LowerBound: numbers[0], MinPopulation: numbers[1]}
	return t, nil
}
