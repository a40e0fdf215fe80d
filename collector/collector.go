package collector

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// A Doer sends one HTTP request; *http.Client is one. It must be safe for concurrent use,
// and should follow no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Options configure a [Collector].
type Options struct {
	// Recipe is the recipe's bytes; required. It must hold.
	Recipe []byte
	// Checked, where it is not nil, is the recipe, which nobody checks again; it stands in
	// place of Recipe.
	Checked *recipe.Checked
	// Token proves to the leader who asks; required.
	Token string
	// Key opens the aggregate shares; required. Its public half is what leader and helper
	// were given.
	Key *sealed.KeyPair
	// Framing is the leader's; the zero value is that of DAP's drafts. Where jobs are
	// created under an id of the collector's choice, a job is saved before it is created.
	Framing dap.Framing
	// HTTP sends requests; nil is a client with a timeout of 30 s that follows no
	// redirects.
	HTTP Doer
	// Attempts bounds how often one request is sent while failures look temporary; zero
	// is 5.
	Attempts int
	// Poll is the least and MaxPoll the longest wait between two questions about a job;
	// zero is 1 s and 1 minute. In between, the leader's Retry-After counts.
	Poll, MaxPoll time.Duration
	// Progress, if not nil, is called before each such wait, by the goroutine that waits.
	Progress func(Progress)
	// Save, if not nil, is handed each new State and must make it durable; its error ends
	// the call that made the State.
	Save func(State) error
	// Releases is that of the newest [State] there is, whichever job it was of: the
	// furthest that was seen of what the leader has released. A leader that has forgotten
	// some of it then refuses. Optional.
	Releases string
}

// Progress is how far a job is.
type Progress struct {
	Polls int           // answers "not yet" so far
	Wait  time.Duration // until the next question
	For   Waiting       // what the leader says that it waits for
}

// Waiting is what a leader of ours says that a job waits for; empty is work of the
// servers' own, or a leader that does not say.
type Waiting string

// Events that jobs wait for.
const (
	// ForRound: the time that was asked for, or its grace, is not over.
	ForRound = Waiting(releases.ForRound)
	// ForReports: it is over with fewer reports than are released about, and no more are
	// on their way through the servers.
	ForReports = Waiting(releases.ForReports)
)

const (
	defaultAttempts = 5
	defaultPoll     = time.Second
	defaultMaxPoll  = time.Minute
	firstWait       = 500 * time.Millisecond
	requestTimeout  = 30 * time.Second
)

// Validate says whether a collector can be made; what the recipe itself says is for [New].
func (o *Options) Validate() error {
	switch {
	case (len(o.Recipe) == 0) == (o.Checked == nil):
		return errors.New("collector: no recipe")
	case o.Token == "":
		return errors.New("collector: no token")
	case o.Key == nil:
		return errors.New("collector: no HPKE key")
	case o.Attempts < 0 || o.Poll < 0 || o.MaxPoll < 0:
		return errors.New("collector: Attempts, Poll and MaxPoll must not be negative")
	}
	return nil
}

// The ways in which a request fails, beside *[dap.Problem]. Every request may be made
// again.
type (
	// StatusError is an error status without a problem document; 401 and 403 speak of the
	// token.
	StatusError = exchange.StatusError
	// UnavailableError: every attempt failed in a way that may pass.
	UnavailableError = exchange.UnavailableError
)

var (
	// ErrBusy: the last leader-selected job has not been deleted.
	ErrBusy = errors.New("collector: another job of this task is not finished")
	// ErrAnswer: the leader's answer makes no sense.
	ErrAnswer = exchange.ErrAnswer
	// ErrSealed: a share is sealed to another key than the collector's. Nothing is lost:
	// where the server that sealed it is given the right key, the same job has the same
	// share sealed to that one. It is an [ErrAnswer].
	ErrSealed = fmt.Errorf("%w: not sealed to the collector's key", ErrAnswer)
	// ErrQuery: the query does not fit the recipe; errors.As finds a *recipe.BatchError
	// where its interval is no batch.
	ErrQuery = errors.New("collector: query does not fit the recipe")
	// ErrState: a saved state is damaged or of another recipe.
	ErrState = errors.New("collector: unusable state")
)

// A Collector asks for the results of one recipe. Its methods may be called concurrently.
type Collector struct {
	o       Options
	checked *recipe.Checked
	recipe  *recipe.Recipe // that was checked
	id      recipe.ID
	task    *dap.TaskConfiguration
	taskID  dap.TaskID
	vdaf    vdaf.VDAF
	mode    dap.BatchMode
	leader  *url.URL
	retry   exchange.Retry

	mu   sync.Mutex
	live *Job // leader-selected: the job that is not deleted yet
	seen releases.Seen
}

// New reads the recipe, which must be valid.
func New(o Options) (*Collector, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	checked := o.Checked
	if checked == nil {
		var err error
		if checked, err = recipe.Open(o.Recipe, account.Prover); err != nil {
			return nil, fmt.Errorf("collector: %w", err)
		}
	}
	r := checked.Recipe()
	path, ok := r.Path.(recipe.TwoServer)
	if !ok {
		return nil, fmt.Errorf("collector: no leader on path %v", r.Path)
	}
	c := &Collector{o: o, checked: checked, recipe: r, id: checked.ID(), mode: path.BatchMode}
	if c.o.HTTP == nil {
		c.o.HTTP = exchange.DefaultDoer(requestTimeout)
	}
	if c.o.Attempts == 0 {
		c.o.Attempts = defaultAttempts
	}
	if c.o.Poll == 0 {
		c.o.Poll = defaultPoll
	}
	if c.o.MaxPoll == 0 {
		c.o.MaxPoll = max(defaultMaxPoll, c.o.Poll)
	}
	if c.o.MaxPoll < c.o.Poll {
		return nil, errors.New("collector: MaxPoll is below Poll")
	}
	if err := c.remember(o.Releases); err != nil {
		return nil, err
	}
	c.retry = exchange.Retry{Attempts: c.o.Attempts, First: firstWait, Longest: c.o.MaxPoll}
	if err := c.derive(); err != nil {
		return nil, fmt.Errorf("collector: %w", err)
	}
	return c, nil
}

// derive fills in what follows from the recipe.
func (c *Collector) derive() (err error) {
	c.taskID, c.task = c.checked.Task()
	if err := (dap.Dialect{Version: c.task.Version, Framing: c.o.Framing}).Validate(); err != nil {
		return err
	}
	if c.vdaf, err = c.task.VDAF(); err != nil {
		return err
	}
	c.leader, err = dap.BaseURL(c.task.Leader)
	return err
}

// remember takes note of how far the leader's releases are. A release once seen is never
// forgotten.
func (c *Collector) remember(text string) error {
	if text == "" {
		return nil
	}
	seen, err := releases.ParseSeen(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen.Length > c.seen.Length {
		c.seen = seen
	}
	return nil
}

// remembered is what remember has noted, or "".
func (c *Collector) remembered() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen.Length == 0 {
		return ""
	}
	return c.seen.String()
}

// Recipe is the recipe that is asked about; not to be changed.
func (c *Collector) Recipe() *recipe.Recipe { return c.recipe }

// Task is its DAP task.
func (c *Collector) Task() (dap.TaskID, *dap.TaskConfiguration) { return c.taskID, c.task }

// NextBatch is the query of a leader-selected recipe.
func (c *Collector) NextBatch() dap.Query { return dap.Query{Mode: dap.LeaderSelected} }

// Interval is the query of a time-interval recipe for reports from one instant up to
// another, not including it. Both must stand on the recipe's time precision: [ErrQuery].
// That it is a batch of the recipe, see recipe.Recipe.CheckBatch, is checked where it is
// asked for.
func (c *Collector) Interval(from, to time.Time) (dap.Query, error) {
	p := c.recipe.TimePrecision
	start, err1 := p.At(from)
	end, err2 := p.At(to)
	if err := errors.Join(err1, err2); err != nil {
		return dap.Query{}, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	for _, t := range []time.Time{from, to} {
		if t.Nanosecond() != 0 || uint64(t.Unix())%uint64(p) != 0 {
			return dap.Query{}, fmt.Errorf("%w: %v is not a multiple of %d seconds%s", ErrQuery, t, p, c.around(t))
		}
	}
	length, ok := end.Sub(start)
	if !ok || length == 0 {
		return dap.Query{}, fmt.Errorf("%w: the interval is empty", ErrQuery)
	}
	return dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: start, Duration: length}}, nil
}

// around names the round, or slot, in which an instant lies.
func (c *Collector) around(t time.Time) string {
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return ""
	}
	first := c.recipe.ReportTime(unit)
	from, err1 := c.recipe.TimePrecision.Begin(first)
	to, err2 := c.recipe.TimePrecision.Begin(first + dap.Time(c.recipe.BatchUnits()))
	if err1 != nil || err2 != nil {
		return ""
	}
	return fmt.Sprintf("; it is in the round from %s to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
}

// check holds a query to the recipe before the leader does.
func (c *Collector) check(q dap.Query) error {
	if q.Mode != c.mode {
		return fmt.Errorf("%w: it asks for %v batches, the recipe has %v ones", ErrQuery, q.Mode, c.mode)
	}
	if q.Mode == dap.TimeInterval && !q.Interval.Valid() {
		return fmt.Errorf("%w: the interval is empty or without end", ErrQuery)
	}
	if q.Mode == dap.TimeInterval {
		if err := c.recipe.CheckBatch(q.Interval); err != nil {
			return fmt.Errorf("%w: %w", ErrQuery, err)
		}
	}
	return nil
}

// maxResponse bounds a collection job's answer: two sealed shares and room for what is
// around them.
func (c *Collector) maxResponse() int64 {
	const around = 8 << 10
	hi, n := bits.Mul64(uint64(c.vdaf.Sizes().AggShare), 2)
	if hi != 0 || n > 1<<40 {
		panic("collector: internal error: aggregate shares without bound")
	}
	return int64(n) + around
}
