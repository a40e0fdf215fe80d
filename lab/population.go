package lab

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Names of the questions that a lab asks of a population.
const (
	// Visits asks everybody for the number of visits, as the plain lab does.
	Visits = "visits"
	// Needles asks who saw a doctor often, about one in eleven, and samples them more
	// often than the rest ("counting needles", paper 000 section 3.1).
	Needles = "needles"
)

// Bounds of a population.
const (
	MinPopulation     = 400
	MaxPopulation     = 1_000_000
	MaxRounds         = 100
	MaxCounted        = 100_000 // whose devices have credentials
	defaultPopulation = 60_000

	// often is how many visits a needle has at least; 1,851 of the 20,190 rows have as
	// many.
	often = 8
	// needleShare is the number of people for each needle, as the author of the recipe
	// would know it beforehand.
	needleShare = 11
)

// populationDomain begins every hash that resamples the table.
const populationDomain = "starling lab population v1"

// A question is what devices are asked.
type question struct {
	name, description string
	least             int // fewer visits than this are the default answer, the zero vector
}

func (o *Options) question() question {
	if o.Recipe == Needles {
		return question{"Who sees a doctor often",
			"Did you see a doctor 8 times or more in the past year, and if so how often: 8, 9, ..., 19, or 20 and more?", often}
	}
	return question{"Visits to a doctor in a year",
		"How many times did you see a doctor in the past year: 0, 1, ..., 19, or 20 and more?", 0}
}

// labels names the places of an answer's vector.
func (q question) labels() []string { return randhie.Labels()[q.least:] }

// place is where a number of visits counts, or -1 for the default answer.
func (q question) place(visits int) int { return max(randhie.Bucket(visits)-q.least, -1) }

// value is the answer of a device.
func (q question) value(place int) client.Value {
	v := make([]uint64, randhie.Buckets-q.least)
	if place >= 0 {
		v[place] = 1
	}
	return client.Vector(v)
}

// draw is a number that looks random and is the same in every lab.
func draw(of string, i, j int) uint64 {
	b := append([]byte(populationDomain), of...)
	b = binary.BigEndian.AppendUint64(b, uint64(i))
	h := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(j)))
	return binary.BigEndian.Uint64(h[:])
}

// order returns 0..n-1 in an order that looks random and is the same in every lab.
func order(n int, of string, salt int) []int {
	keys, list := make([]uint64, n), make([]int, n)
	for i := range n {
		keys[i], list[i] = draw(of, salt, i), i
	}
	slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	return list
}

// resample makes a population of n of the table's rows: each as often as any other, but
// for one more of some.
func resample(visits []int, n int) []int {
	population := make([]int, 0, n)
	for range n / len(visits) {
		population = append(population, visits...)
	}
	for _, row := range order(len(visits), "rows", 0)[:n%len(visits)] {
		population = append(population, visits[row])
	}
	mixed := make([]int, n)
	for i, from := range order(n, "devices", 0) {
		mixed[i] = population[from]
	}
	return mixed
}

// rate is the probability of reporting an answer that is not the default, and of the
// default one.
func (o *Options) rates() (other, usual recipe.Rational, err error) {
	if o.Recipe != Needles {
		return o.Sampling, o.Sampling, nil
	}
	if o.Sampling.Den >= 1<<32 || o.Sampling.Num >= 1<<32 {
		return other, usual, fmt.Errorf("lab: sampling %s has too many digits", o.Sampling)
	}
	if usual, err = recipe.NewRational(o.Sampling.Num, 2*o.Sampling.Den); err != nil {
		return other, usual, err
	}
	if other, err = recipe.NewRational(needleShare*o.Sampling.Num, 2*o.Sampling.Den); err != nil {
		return other, usual, err
	}
	if other.Rat().Cmp(maxNeedleRate.Rat()) > 0 {
		return other, usual, fmt.Errorf("lab: sampling %s would sample needles at %s; want at most %s, so that a coin hides each",
			o.Sampling, other, maxNeedleRate)
	}
	return other, usual, nil
}

// maxNeedleRate keeps some of the coin: at 1, a needle would be sure to report.
var maxNeedleRate = recipe.Rational{Num: 19, Den: 20}

// asked returns for each device in which rounds it decides. Coins are tossed in every
// round; a sample that is known takes each device once before any twice.
func (o *Options) asked() [][]int {
	list := make([][]int, o.Population)
	if !o.KnownSample {
		all := make([]int, o.Rounds)
		for i := range all {
			all[i] = i
		}
		for i := range list {
			list[i] = all
		}
		return list
	}
	m := o.sample()
	per := o.Population / m // rounds until the devices are used up
	var devices []int
	for round := range o.Rounds {
		if round%per == 0 {
			devices = order(o.Population, "sample", round/per)
		}
		for _, i := range devices[round%per*m : (round%per+1)*m] {
			list[i] = append(list[i], round)
		}
	}
	return list
}

// sample is the size of a known sample.
func (o *Options) sample() int { return int(float64(o.Population) * o.Sampling.Float()) }

// lifetime is in how many rounds one device may be.
func (o *Options) lifetime() uint32 {
	if !o.KnownSample {
		return uint32(o.Rounds)
	}
	per := o.Population / o.sample()
	return uint32((o.Rounds + per - 1) / per)
}

// fewDeviations is by how many standard deviations a batch may fall short of what is
// expected and still be released; less comes once in 5 * 10^7 batches.
const fewDeviations = 5.5

// No recipe here has fewer dummies: 50 times the narrowest variance that is calibrated,
// of which leastAllowance or more are in a batch at least once in 10^9.
const leastDummies, leastAllowance = 15, 40

// roomForAnswers refuses what [population.withDummies] is sure to, before anything is
// computed.
func (o *Options) roomForAnswers(usual recipe.Rational) error {
	n, u := float64(o.Population), usual.Float()
	expected := n*u + leastDummies*(1-u)
	if expected-fewDeviations*math.Sqrt(expected)-leastAllowance < recipe.SampledBatchFloor {
		return fmt.Errorf("lab: a population of %d at sampling %s is too few to hide among: about %.0f reports; want more of either",
			o.Population, o.Sampling, expected)
	}
	return nil
}

// pose implements scenario.
func (p *population) pose(f *frame, a *deploy.Addresses) (*recipe.Recipe, error) {
	window, err := f.window(p.o.Rounds)
	if err != nil {
		return nil, err
	}
	q := p.o.question()
	o := account.Options{
		Name: q.name, Description: q.description,
		Population: &recipe.Population{
			Statement: "devices made up from the participants of the RAND Health Insurance Experiment, 1974 to 1982",
			Expected:  uint64(p.o.Population),
		},
		Query:  recipe.Multihot{Length: uint32(len(q.labels())), MaxWeight: 1},
		Leader: a.LeaderURL(), Helper: a.HelperURL(),
		BatchMode: dap.TimeInterval, TimePrecision: dap.TimePrecision(f.o.Precision / time.Second), Window: window,
		Kind: account.GaussianNoise, Epsilon: f.o.Epsilon, Delta: f.o.Delta, Rounds: p.o.lifetime(),
		Relay: &recipe.Relay{URL: f.front.RelayURL(), Gateway: f.front.GatewayURL()}, Grace: grace,
	}
	if p.o.KnownSample {
		o.MinBatch = uint64(p.o.sample() / 2)
		o.Rate = &recipe.Rate{Devices: uint64(p.o.sample()), Units: 1}
		return account.New(o)
	}
	other, usual, err := p.o.rates()
	if err != nil {
		return nil, err
	}
	o.Participation = recipe.Bernoulli{Rate: other}
	if p.o.Recipe == Needles {
		o.Participation = recipe.Importance{Default: usual, Other: other}
	}
	o.Rate = &recipe.Rate{Devices: uint64(p.o.Population), Units: 1}
	made, err := p.withDummies(o, usual)
	for _, fewer := range fewerDummies {
		if err == nil || errors.Is(err, release.ErrNoGuarantee) {
			break
		}
		rate, fault := recipe.NewRational(uint64(fewer), uint64(p.o.Population))
		if fault != nil {
			return nil, fault
		}
		o.Dummies = &recipe.Dummies{Rate: rate, Senders: uint64(p.o.Population), Allowance: atMost(float64(fewer), recipe.DummyMiss)}
		made, err = p.withDummies(o, usual)
	}
	if err != nil {
		return nil, fmt.Errorf("lab: %d devices at sampling %s: %w", p.o.Population, p.o.Sampling, err)
	}
	return made, nil
}

// fewerDummies are numbers of dummies a round to try where those that cost next to no
// epsilon do not leave room for answers: fewer dummies need more noise.
var fewerDummies = []int{400, 200}

// atMost is an upper quantile of a sum of coins with such a mean, by Bernstein's
// inequality.
func atMost(mean, miss float64) uint64 {
	l := math.Log(1 / miss)
	return uint64(math.Ceil(mean + l/3 + math.Sqrt(l*l/9+2*l*mean)))
}

// withDummies makes the recipe with as large a least batch as leaves room for its dummies
// and for chance.
func (p *population) withDummies(o account.Options, usual recipe.Rational) (*recipe.Recipe, error) {
	o.MinBatch = recipe.SampledBatchFloor
	draft, err := account.New(o) // neither noise nor dummies depend on the batch
	if err != nil {
		return nil, err
	}
	expected, _, _ := draft.Expected(1)
	b := min(float64(p.o.Population)*usual.Float()/2,
		expected-fewDeviations*math.Sqrt(expected)-float64(draft.Dummies.Allowance))
	if b < recipe.SampledBatchFloor {
		return nil, fmt.Errorf("too few answers to hide: %d dummies may be among %.0f reports", draft.Dummies.Allowance, expected)
	}
	o.MinBatch, o.Noise, o.Dummies = uint64(b), draft.Noise, draft.Dummies
	return account.New(o)
}
