package round

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/disk"
)

// Errors to branch on.
var (
	// ErrBusy: a round is under way.
	ErrBusy = errors.New("round: a round is under way")
	// ErrEnded: all rounds of the training were announced, or the recipe's time is over.
	ErrEnded = errors.New("round: the training has no more rounds")
	// ErrManual: rounds begin by themselves.
	ErrManual = errors.New("round: rounds of this controller begin by themselves")
	// ErrUnasked: a place at which devices are shown announcements does not say which.
	ErrUnasked = errors.New("round: the newest announcement that is published is not known")
	// ErrNone: there is no such round, or nothing of it is kept any more.
	ErrNone = errors.New("round: no such round")
)

// A DivergedError says that a step left the finite numbers.
type DivergedError struct{ Index uint32 }

func (e *DivergedError) Error() string {
	return fmt.Sprintf("round: after step %d a parameter is not a finite number of 32 bits: the model has diverged; a smaller learning rate is another training", e.Index)
}

// Places at which a test fails the controller.
const (
	failModel    = "round.before-model"
	failAnnounce = "round.after-model-before-journal"
	failRecord   = "round.after-journal-before-record"
	failShow     = "round.after-record-before-published"
	failSum      = "round.before-sum"
	failCollect  = "round.after-sum-before-journal"
	failState    = "round.before-state"
	failStep     = "round.after-state-before-journal"
	failSweep    = "round.before-sweep"
)

// A Controller is one training under way. [Controller.Run] moves it on; all else may be
// called at any time, by many.
type Controller struct {
	o     Options
	hash  session.Hash
	bytes []byte // of the session
	begin chan beginning
	done  chan struct{} // closed when Run has returned

	// writing is held while an event becomes durable and true, so that the journal has the
	// order in which things happened. mu may be taken under it.
	writing sync.Mutex

	mu    sync.Mutex // guards what follows
	book  book
	shown []byte // the newest announcement that is published
	blob  []byte // its model, of the name blobName, so that nobody has the disk read for each device

	blobName session.Hash
	ended    string // why no more rounds come; empty while some do
}

type beginning struct {
	parameters []float32
	done       chan begun
}

type begun struct {
	index uint32
	err   error
}

// Open reads the journal, or begins one. It fails with what wraps [ErrJournal], and with
// *[PutBackError] where the record knows more than the journal. The store is closed where
// it fails, and else by [Controller.Close].
func Open(ctx context.Context, o Options) (*Controller, error) {
	c, err := open(ctx, o)
	if err != nil && o.Store != nil {
		err = errors.Join(err, o.Store.Close())
	}
	return c, err
}

func open(ctx context.Context, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Controller{o: o, begin: make(chan beginning), done: make(chan struct{})}
	var err error
	if c.bytes, err = o.Session.Append(nil); err != nil {
		return nil, err
	}
	if c.hash, err = o.Session.Hash(); err != nil {
		return nil, err
	}
	c.book.session = c.hash
	if err := c.replay(ctx); err != nil {
		return nil, err
	}
	if err := c.opened(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// opened begins a journal that is empty, and holds one that is not to what is beside it.
func (c *Controller) opened(ctx context.Context) error {
	recorded, err := c.recorded()
	if err != nil {
		return err
	}
	switch {
	case recorded != nil && !c.book.knows(recorded):
		return &PutBackError{Where: "the record", Published: *recorded, Rounds: len(c.book.rounds)}
	case recorded == nil && len(c.book.rounds) > 0 && len(c.o.Published) == 0:
		c.o.Log.Warn("the record is empty, and begins anew with the newest announcement of the journal: that the journal was not put back is not known")
	}
	if !c.book.created {
		first := &training{clip: c.o.Session.Terms.Clipping.Norm, parameters: make([]float64, c.o.Session.Terms.Dimension())}
		for i, x := range c.o.Initial {
			first.parameters[i] = float64(x)
		}
		first.optimizer = optimizer.New(c.o.Optimizer, len(first.parameters)).State()
		state, err := c.keep(ctx, statesDir, first.append(nil))
		if err != nil {
			return err
		}
		if err := c.write(ctx, &event{kind: created, session: c.hash, state: state, batch: uint32(c.o.Batch)}); err != nil {
			return err
		}
	}
	if c.book.batch != uint32(c.o.Batch) {
		return fmt.Errorf("round: steps of %d rounds, and the training began with %d", c.o.Batch, c.book.batch)
	}
	t, err := c.training(ctx)
	if err != nil {
		return err
	}
	if err := optimizer.New(c.o.Optimizer, len(t.parameters)).Restore(t.optimizer); err != nil {
		return fmt.Errorf("round: the training began with another optimizer: %w", err)
	}
	for i := range c.book.rounds {
		if err := c.o.Session.Verify(&c.book.rounds[i].Announcement); err != nil {
			return fmt.Errorf("%w: %w", ErrJournal, err)
		}
	}
	if last := c.book.last(); last != nil {
		blob, err := c.read(ctx, modelsDir, last.Model)
		if err != nil {
			return err
		}
		if len(c.o.Published) == 0 {
			return c.show(last, blob)
		}
		c.blob, c.blobName = blob, last.Model
	}
	return nil
}

// again publishes the newest announcement of the journal, once it is known that
// devices were shown no later one.
func (c *Controller) again(ctx context.Context) error {
	for {
		err := c.check(ctx)
		if !errors.Is(err, ErrUnasked) || ctx.Err() != nil {
			if last := c.book.last(); err == nil && last != nil {
				return c.show(last, c.blob)
			}
			return err
		}
		c.o.Log.Warn("nothing is published", "error", err)
		timer := c.o.Clock.NewTimer(c.o.Retry)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

// Close gives the store up. Run must have returned.
func (c *Controller) Close() error { return c.o.Store.Close() }

// recorded reads the record, which may be missing: nil.
func (c *Controller) recorded() (*session.Announcement, error) {
	b, err := disk.ReadFile(c.o.Record, recordFile, session.AnnouncementBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: record: %w", ErrJournal, err)
	}
	a, err := session.ReadAnnouncement(b)
	if err != nil {
		return nil, fmt.Errorf("%w: record: %w", ErrJournal, err)
	}
	return a, nil
}

// show puts an announcement that is in the journal into the record, and then publishes it
// and its model.
func (c *Controller) show(a *session.Announcement, blob []byte) error {
	b := a.Append(nil)
	if err := disk.WriteFile(c.o.Record, recordFile, b); err != nil {
		return fmt.Errorf("round: record: %w", err)
	}
	if err := c.o.Failpoints.Hit(failShow); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.blob, c.blobName = b, blob, a.Model
	return nil
}

// training reads the parameters and the optimizer's state.
func (c *Controller) training(ctx context.Context) (*training, error) {
	now := func() session.Hash {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.book.state
	}
	h := now()
	b, err := c.read(ctx, statesDir, h)
	for errors.Is(err, fs.ErrNotExist) && now() != h { // it was replaced meanwhile
		h = now()
		b, err = c.read(ctx, statesDir, h)
	}
	if err != nil {
		return nil, err
	}
	t, err := readTraining(b)
	if err == nil && len(t.parameters) != c.o.Session.Terms.Dimension() {
		err = errShape
	}
	return t, err
}

// Run begins rounds, has them collected and steps the model, until all rounds are stepped
// or the recipe's time is over: nil. Else it returns with the context's error, with
// *[PutBackError], *[ContradictionError] or *[DivergedError], with what wraps [ErrJournal],
// or with an error of the store, such as [ErrLost], or of the disk; opened again, a
// controller goes on where it was. It runs once.
func (c *Controller) Run(ctx context.Context) error {
	defer close(c.done)
	if err := c.again(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var crew sync.WaitGroup
	defer crew.Wait()
	defer cancel()
	var collecting bool
	came := make(chan error, 1)
	for {
		if moved, err := c.step(ctx); err != nil {
			return err
		} else if moved {
			continue
		}
		wait, err := c.announce(ctx)
		if err != nil {
			return err
		}
		if !collecting {
			r, due := c.due()
			switch {
			case r == nil && c.over():
				return nil
			case r != nil && due <= 0:
				collecting = true
				crew.Go(func() { came <- c.collect(ctx, r) })
			case r != nil:
				wait = min(wait, due)
			}
		}
		timer := c.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		case err := <-came:
			if collecting = false; err != nil {
				timer.Stop()
				return err
			}
		case <-c.o.Store.Lost():
			timer.Stop()
			return ErrLost
		case b := <-c.begin:
			index, err := c.began(ctx, b.parameters)
			b.done <- begun{index, err}
		}
		timer.Stop()
	}
}

// never is a wait for something else.
const never = time.Duration(math.MaxInt64)

// Begin begins a round, with other parameters than the optimizer's where they are not nil,
// and returns its index. [Controller.Run] must be running. It fails with [ErrBusy],
// [ErrEnded], [ErrManual] and [session.ErrModel].
func (c *Controller) Begin(ctx context.Context, parameters []float32) (uint32, error) {
	if !c.o.Manual {
		return 0, ErrManual
	}
	b := beginning{parameters, make(chan begun, 1)}
	select {
	case c.begin <- b:
	case <-c.done:
		return 0, ErrEnded
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case x := <-b.done:
		return x.index, x.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (c *Controller) began(ctx context.Context, parameters []float32) (uint32, error) {
	c.mu.Lock()
	index, busy, ended := uint32(len(c.book.rounds)), c.book.open() >= c.o.Ahead, c.ended
	full := index >= c.o.Session.Terms.Rounds
	c.mu.Unlock()
	switch {
	case full || ended != "":
		return 0, ErrEnded
	case busy:
		return 0, ErrBusy
	}
	if err := c.check(ctx); err != nil {
		return 0, err
	}
	if parameters != nil {
		if err := c.give(ctx, parameters); err != nil {
			return 0, err
		}
	}
	r, _, ok := c.next()
	if !ok {
		return 0, ErrEnded
	}
	return index, c.sign(ctx, r)
}

// give takes parameters from outside, and has the optimizer begin anew with them.
func (c *Controller) give(ctx context.Context, parameters []float32) error {
	t, err := c.training(ctx)
	if err != nil {
		return err
	}
	if len(parameters) != len(t.parameters) {
		return fmt.Errorf("%w: %d parameters, the session's models have %d", session.ErrModel, len(parameters), len(t.parameters))
	}
	for i, x := range parameters {
		if t.parameters[i] = float64(x); math.IsNaN(t.parameters[i]) || math.IsInf(t.parameters[i], 0) {
			return fmt.Errorf("%w: parameter %d is not finite", session.ErrModel, i)
		}
	}
	t.optimizer = optimizer.New(c.o.Optimizer, len(t.parameters)).State()
	state, err := c.keep(ctx, statesDir, t.append(nil))
	if err != nil {
		return err
	}
	return c.write(ctx, &event{kind: given, state: state})
}

// over says whether no round is under way and none comes.
func (c *Controller) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended != "" && c.book.waiting() == nil
}

// check holds what is published to the journal.
func (c *Controller) check(ctx context.Context) error {
	for _, p := range c.o.Published {
		a, err := p.Ask(ctx)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUnasked, p.Where, err)
		}
		if a == nil || c.o.Session.Verify(a) != nil { // of others, who are not believed
			continue
		}
		c.mu.Lock()
		known, rounds := c.book.knows(a), len(c.book.rounds)
		c.mu.Unlock()
		if !known {
			return &PutBackError{Where: p.Where, Published: *a, Rounds: rounds}
		}
	}
	return nil
}

// time begins a round.
func (c *Controller) time(round uint64) (time.Time, error) {
	return c.o.Recipe.TimePrecision.Begin(dap.Time(round * c.o.Recipe.BatchUnits()))
}
