package collector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
)

// ReaderOptions configure a [Reader].
type ReaderOptions struct {
	// Checked is the recipe; required, and of a path without proofs.
	Checked *recipe.Checked
	// Token proves to the analyzer who asks; required.
	Token string
	// HTTP sends requests; nil is a client with a timeout of 30 s that follows no
	// redirects.
	HTTP Doer
	// Now is the clock, for rounds that are collected in independent batches: time.Now when
	// nil.
	Now func() time.Time
	// Attempts bounds how often one request is sent while failures look temporary; zero
	// is 5.
	Attempts int
}

// Validate says whether a reader can be made; what the recipe itself says is for [NewReader].
func (o *ReaderOptions) Validate() error {
	switch {
	case o.Checked == nil:
		return errors.New("collector: no recipe")
	case o.Token == "":
		return errors.New("collector: no token")
	case o.Attempts < 0:
		return errors.New("collector: Attempts must not be negative")
	}
	return nil
}

// ErrNoResult: the analyzer has no result of the round: it is not over, or fewer than the
// least batch contributed to it, or it lies too far back.
var ErrNoResult = errors.New("collector: the analyzer has no result of that round")

// A RuinedError: contributions came, and nothing can be said of them. It will not pass: the
// messages are destroyed.
type RuinedError struct {
	Round         uint64
	Contributions uint64
	// Messages is how many they had, and Missing how many of these did not come to be added
	// up.
	Messages, Missing uint64
	Problem           recipe.Problem
}

func (e *RuinedError) Error() string {
	if e.Problem == recipe.MessagesMissing {
		return fmt.Sprintf("collector: round %d is ruined: of the %d messages of %d contributions %d are missing, each a share without which the sum is a number like any other",
			e.Round, e.Messages, e.Contributions, e.Missing)
	}
	return fmt.Sprintf("collector: round %d is ruined: the messages of %d contributions add up to no answers", e.Round, e.Contributions)
}

// A Reader reads the results of one recipe of the shuffled or the direct path from its
// analyzer: of each round, alone, once it is over. To read one changes nothing. Its
// methods may be called concurrently.
type Reader struct {
	o         ReaderOptions
	recipe    *recipe.Recipe
	shuffle   *onion.Shuffle
	messenger *recipe.Messenger
	analyzer  *url.URL
	retry     exchange.Retry
}

// NewReader fails where the recipe is of a path with proofs.
func NewReader(o ReaderOptions) (*Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &Reader{o: o, recipe: o.Checked.Recipe()}
	var err error
	if r.shuffle, err = r.recipe.Shuffle(); err == nil {
		r.messenger, err = r.recipe.Messenger()
	}
	if err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	parties := r.recipe.Parties()
	if r.analyzer, err = dap.BaseURL([]byte(parties[len(parties)-1].URL)); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	if r.o.HTTP == nil {
		r.o.HTTP = exchange.DefaultDoer(requestTimeout)
	}
	if r.o.Now == nil {
		r.o.Now = time.Now
	}
	if r.o.Attempts == 0 {
		r.o.Attempts = defaultAttempts
	}
	r.retry = exchange.Retry{Attempts: r.o.Attempts, First: firstWait, Longest: defaultMaxPoll}
	return r, nil
}

// Recipe is the recipe that is asked about; not to be changed.
func (r *Reader) Recipe() *recipe.Recipe { return r.recipe }

// RoundAt is the round of a time, with its begin, its end, and from when on there may be a
// result of it.
func (r *Reader) RoundAt(t time.Time) (round uint64, begin, end, due time.Time) {
	n := r.round(t)
	return n, r.begin(n), r.begin(n + 1), r.due(n)
}

// length of a round, in which devices answer.
func (r *Reader) length() time.Duration {
	return time.Duration(r.recipe.RoundUnits()*uint64(r.recipe.TimePrecision)) * time.Second
}

func (r *Reader) round(t time.Time) uint64 {
	return uint64(max(t.Unix(), 0)) / uint64(r.length()/time.Second)
}

func (r *Reader) begin(n uint64) time.Time {
	return time.Unix(int64(n*uint64(r.length()/time.Second)), 0).UTC()
}

// due is when the last batch of a round is flushed.
func (r *Reader) due(n uint64) time.Time {
	_, end := r.recipe.PartRounds(n)
	return r.shuffle.Flush(end - 1)
}

// Rounds are those from one time up to another, which are the ends of rounds; at most
// recipe.MaxBatches. It fails with [ErrQuery].
func (r *Reader) Rounds(from, to time.Time) ([]uint64, error) {
	first, last := r.round(from), r.round(to)
	switch {
	case from.Before(time.Unix(0, 0)) || !r.begin(first).Equal(from) || !r.begin(last).Equal(to):
		return nil, fmt.Errorf("%w: a batch is a round of %v, and %s to %s are not whole ones; the first of them are in that from %s on", ErrQuery, r.length(),
			from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339), r.begin(first).Format(time.RFC3339))
	case first >= last:
		return nil, fmt.Errorf("%w: the interval is empty", ErrQuery)
	case last-first > recipe.MaxBatches:
		return nil, fmt.Errorf("%w: %d rounds at once, want at most %d", ErrQuery, last-first, recipe.MaxBatches)
	}
	list := make([]uint64, 0, last-first)
	for n := first; n < last; n++ {
		list = append(list, n)
	}
	return list, nil
}

// maxSum bounds a sum in what an analyzer writes, in bytes.
const maxSum = 24

// Round reads the result of a round: what the analyzer has signed, and behind hops both
// of them, of MinBatch contributions or more. It fails with [ErrNoResult];
// *[RuinedError]; [ErrAnswer], beside it an error of packages onion, signed or recipe,
// for what is not such a result; and as requests do.
//
// A round that is collected in independent batches has the result of those that can be
// used, and [Result.LeftOut] names the others: more than half of them, or it fails with a
// *[RuinedError].
func (r *Reader) Round(ctx context.Context, n uint64) (*Result, error) {
	from, end := r.recipe.PartRounds(n)
	if end == from+1 {
		said, outcome, err := r.outcome(ctx, from)
		if err != nil {
			return nil, err
		}
		if outcome.Tally == nil {
			return nil, &RuinedError{n, said.Contributions, said.Messages, said.Missing(), outcome.Problem}
		}
		t := outcome.Tally
		return r.result(n, &recipe.Joined{Tally: *t, All: t.Reports})
	}
	if due := r.due(n); r.o.Now().Before(due) {
		return nil, fmt.Errorf("%w: its last batch is due at %s", ErrNoResult, due.Format(time.RFC3339))
	}
	var parts []recipe.Part
	ruined, there := RuinedError{Round: n, Problem: recipe.MessagesUnusable}, false
	for at := from; at < end; at++ {
		said, outcome, err := r.outcome(ctx, at)
		switch {
		case errors.Is(err, ErrNoResult):
			parts = append(parts, recipe.Part{Number: int(at - from), Why: recipe.LeftNone})
			continue
		case err != nil:
			return nil, err
		}
		there = true
		ruined.Contributions, ruined.Messages, ruined.Missing = ruined.Contributions+said.Contributions, ruined.Messages+said.Messages, ruined.Missing+said.Missing()
		parts = append(parts, recipe.PartOf(int(at-from), said.Contributions, outcome))
	}
	if !there {
		return nil, ErrNoResult
	}
	joined, err := r.recipe.Join(parts)
	if odd := new(recipe.MessagesError); errors.As(err, &odd) {
		return nil, &ruined
	} else if err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	return r.result(n, joined)
}

// outcome reads what the analyzer says of a round of the shuffle, and how many contributions
// and messages the hops signed.
func (r *Reader) outcome(ctx context.Context, n uint64) (c onion.Counts, _ recipe.Outcome, _ error) {
	answer, err := exchange.Do(ctx, r.o.HTTP, exchange.Request{
		Method: http.MethodGet, URL: dap.ResourceURL(r.analyzer, onion.ResultPath(r.shuffle.Recipe, n)), Token: r.o.Token,
		Want: dap.Media(onion.ResultMedia), MaxBody: int64(r.messenger.Sums())*maxSum + onion.MaxManifest + 4<<10,
	}, r.retry)
	if p := new(dap.Problem); errors.As(err, &p) && p.Type == onion.ProblemNoRound {
		return c, recipe.Outcome{}, fmt.Errorf("%w: %w", ErrNoResult, err)
	}
	if err != nil {
		return c, recipe.Outcome{}, err
	}
	said, err := onion.OpenResult(answer.Body, r.shuffle, n)
	if err != nil {
		return c, recipe.Outcome{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	if c = said.Counts; c.Missing() > 0 && r.messenger.Splits() {
		return c, recipe.Outcome{Problem: recipe.MessagesMissing}, nil // whatever the analyzer makes of it
	}
	outcome, err := r.messenger.ReadOutcome(said.Tally, c.Contributions, c.Tallied())
	if err != nil {
		return c, recipe.Outcome{}, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return c, outcome, nil
}

func (r *Reader) result(n uint64, j *recipe.Joined) (*Result, error) {
	id, units := r.o.Checked.ID(), r.recipe.RoundUnits()
	x := &Result{
		RecipeID: id, TaskID: dap.TaskID(id), ReportCount: j.Reports, Raw: j.Sums, From: r.begin(n), To: r.begin(n + 1), LeftOut: j.Left,
		Interval: dap.Interval{Start: dap.Time(n * units), Duration: dap.Duration(units)}, joined: j,
	}
	if err := x.fill(r.o.Checked); err != nil {
		return nil, err
	}
	return x, nil
}
