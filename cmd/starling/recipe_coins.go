package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// coinFlags are the flags of `recipe new` about who takes part, and how that is hidden.
type coinFlags struct {
	sample, needles, donate, checkin, dummies, cover, relay, gateway, kem, draft, randomizer, target, certificate *string
	devices                                                                                                       *uint64
	roundFlags
}

const coinHelp = `
Devices decide by secret coins with one of --sample, --needles, --donate and --checkin; --devices says how many decide in each round.
Behind a --relay that amplifies privacy, with dummies that are chosen unless given. --target asks only devices with public
attributes, counted before: --certificate names the recipe, the log entry, the lower bound and the least population.`

func newCoinFlags(flags *flag.FlagSet) *coinFlags {
	return &coinFlags{
		sample:  flags.String("sample", "", "each device reports with probability `Q`, as 1/10"),
		needles: flags.String("needles", "", "it reports the zero vector with probability D, others with O: `D:O`"),
		donate:  flags.String("donate", "", "it reports with probability Q in a random one of M slots of L units: `Q:M:L`"),
		checkin: flags.String("checkin", "", "it reports with probability Q in a uniform one of M slots of L units, fixed:Q:M:L or averaged:Q:M:L, or of the "+
			"W that begin next, sliding:Q:M:W:L, whose secret counts for the guarantee: `KIND`"),
		devices:     flags.Uint64("devices", 0, "how many devices decide in a round: `N`"),
		roundFlags:  newRoundFlags(flags),
		dummies:     flags.String("dummies", "", "the others send a dummy with probability Q, N honest devices at least, at most A in a batch: `Q:N:A`"),
		cover:       flags.String("cover", "", "`Q` of all devices upload a report or a no-op, as 1"),
		relay:       flags.String("relay", "", "`URL` of a relay that hides who sends"),
		gateway:     flags.String("gateway", "", "`URL` of the gateway behind it"),
		kem:         flags.String("kem", "x25519", "what encrypts reports, x25519 or x-wing: `KEM`"),
		draft:       flags.String("dap", dap.Draft18.String(), "the draft of DAP that the task speaks: `DRAFT`"),
		randomizer:  flags.String("randomizer", "", "krr:E, rappor:E, pgr:E, cloak, or gaussian[:VARIANCE] for vectors, on the device and instead of the servers' noise: `R`"),
		target:      flags.String("target", "", "ask only devices with these attributes, as platform=ios,linux;language=de: `WHO`"),
		certificate: flags.String("certificate", "", "the evidence that enough have them: `RECIPE:LOWER:LEAST`; the census of the log follows from it, or stands before LOWER"),
	}
}

// roundFlags are the flags about rounds of `recipe new` and `recipe plan`.
type roundFlags struct {
	round *uint64
	grace *string
}

func newRoundFlags(flags *flag.FlagSet) roundFlags {
	return roundFlags{
		round: flags.Uint64("round", 0, "length of a round in units of the precision; by default 1, or all slots of --donate and --checkin: `N`"),
		grace: flags.String("grace", "", "release a round this `DURATION` after its end; by default 5m with --relay, and else 0s"),
	}
}

// set fills in the length of a round and the grace, once the participation is known.
func (f roundFlags) set(o *account.Options) error {
	o.RoundUnits = max(1, *f.round)
	if o.Participation != nil && o.Participation.Units() != 0 {
		slots := o.Participation.Units()
		if *f.round != 0 && *f.round != slots {
			return fmt.Errorf("--round is %d, but all slots are %d units", *f.round, slots)
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
		if o.Dummies, err = recipe.ParseDummies(*f.dummies); err != nil {
			return fmt.Errorf("--dummies: %w", err)
		}
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

func (f *coinFlags) participation() (p recipe.Participation, err error) {
	name := ""
	for _, way := range []struct {
		flag, value string
		parse       func(string) (recipe.Participation, error)
	}{
		{"--sample", *f.sample, recipe.ParseBernoulli}, {"--needles", *f.needles, recipe.ParseImportance},
		{"--donate", *f.donate, recipe.ParseDonationTime}, {"--checkin", *f.checkin, recipe.ParseCheckIn},
	} {
		if way.value == "" {
			continue
		}
		if name != "" {
			return nil, errors.New("--sample, --needles, --donate and --checkin exclude each other")
		}
		name = way.flag
		if p, err = way.parse(way.value); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
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
	var err error
	if t.Clauses, err = recipe.ParseClauses(who); err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	if t.Certificate, err = recipe.ParseCertificate(certificate); err != nil {
		return nil, fmt.Errorf("--certificate: %w", err)
	}
	if t.Certificate.Entry == (recipe.Hash{}) {
		if t.Certificate.Entry, err = t.Census().Hash(); err != nil {
			return nil, fmt.Errorf("--target: %w", err)
		}
	}
	return t, nil
}
