package agent

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
)

// Errors of a contribution, all from before a coin was tossed, beside *[PolicyError],
// *[VectorError], *[RoundError] and what package participate fails with.
var (
	// ErrUnknown: no task of the agent has that name.
	ErrUnknown = errors.New("agent: it answers no such recipe")
	// ErrContributed: the round was paid for already, by another update or in another life
	// of the agent.
	ErrContributed = errors.New("agent: something was contributed to this round already")
	// ErrNoRounds: as many rounds were paid for as the recipe's guarantee covers.
	ErrNoRounds = errors.New("agent: the recipe has no more rounds for this device")
	// ErrNoModel: nothing was announced that the round's updates could be made on.
	ErrNoModel = errors.New("agent: no model is announced")
)

// A RoundError is a contribution to another round than the one that runs.
type RoundError struct {
	Asked, Now uint64 // rounds, as [session.Round] counts
}

func (e *RoundError) Error() string {
	if e.Asked < e.Now {
		return fmt.Sprintf("agent: round %d is over, and it is round %d: an update on an old model counts for nothing", e.Asked, e.Now)
	}
	return fmt.Sprintf("agent: round %d has not begun, and it is round %d", e.Asked, e.Now)
}

// A Task is a recipe that an agent answers.
type Task struct {
	// Sender says how; its Client.Checked is required, and of a vector recipe.
	Sender sender.Options
	// Remote is where models come from; required for the recipe of a training, and for no
	// other.
	Remote training.Remote
	Policy Policy
}

// Options make an agent.
type Options struct {
	// Home is where the ledger is. Required.
	Home sender.Home
	// Tasks are one at least.
	Tasks []Task
	// Log is told of what goes wrong, and of nothing else; default none.
	Log *slog.Logger
}

const (
	// MaxTasks bounds [Options.Tasks].
	MaxTasks = 64
	// bornFile holds when the ledger was made, and which one, so that a new one is known.
	bornFile = "born"
	// fresh is for how long an announcement is not asked for again.
	fresh = time.Second
	// awaits is how long what is on its way is waited for at the end.
	awaits = 10 * time.Second
)

// Validate says what is wrong with options.
func (o *Options) Validate() error {
	if len(o.Tasks) < 1 || len(o.Tasks) > MaxTasks {
		return fmt.Errorf("agent: %d tasks, want 1 to %d", len(o.Tasks), MaxTasks)
	}
	for _, t := range o.Tasks {
		c := t.Sender.Client.Checked
		if c == nil {
			return errors.New("agent: a task without a recipe")
		}
		if err := t.Policy.Validate(); err != nil {
			return err
		}
		r := c.Recipe()
		if _, ok := r.Vector(); !ok {
			return fmt.Errorf("agent: %q asks for no vectors", r.Name)
		}
		if (r.Training != nil) != (t.Remote.URL != "") {
			return fmt.Errorf("agent: %q: models come from somewhere exactly where the recipe is of a training", r.Name)
		}
	}
	return nil
}

// An Agent takes part in recipes. It is safe for concurrent use.
type Agent struct {
	o       Options
	account *sender.Account
	files   *disk.OSFS // of the home, beside the ledger
	born    time.Time
	key     [32]byte // by which updates are told apart, of this life
	tasks   map[recipe.ID]*task
	order   []recipe.ID
	bodies  *body.Budget
	failed  chan error // has room for one
	flying  sync.WaitGroup
	ending  context.Context
	end     context.CancelFunc

	mu     sync.Mutex
	last   time.Time         // of the last contribution
	counts map[string]uint64 // of contributions, by outcome
}

type task struct {
	Task
	files    disk.FS
	log      *slog.Logger
	id       recipe.ID
	recipe   *recipe.Recipe
	follower *training.Follower // nil: no training
	person   *sender.Person     // nil where it is refused
	refused  error

	shown atomic.Pointer[named] // nil: none

	mu   sync.Mutex // one contribution at a time
	seen map[uint64][sha256.Size]byte
	wake wake
	// Of what was fetched last; guarded by mu.
	newest  *session.Announcement
	asked   time.Time
	trouble error
	told    string // of what was logged last
	model   *session.Model
}

// A wake is the slot of a round in which the device decides, where it draws from those that
// begin next.
type wake struct{ round, slot uint64 }

// awake says whether a device decides by now. In sliding windows the guarantee counts on
// devices that decide evenly over a round, so that each slot is in enough windows; processes
// are there from the first slot on. When a device wakes is no secret. In the round in which
// the agent began it does at once. t.mu must be held.
func (t *task) awake(unit dap.Time) (bool, error) {
	slots, _ := t.recipe.Slotted()
	if slots.Window == 0 {
		return true, nil
	}
	round := t.recipe.Round(unit)
	if t.wake.round != round {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(slots.Count)))
		if err != nil {
			return false, err
		}
		t.wake = wake{round, n.Uint64()}
	}
	return (uint64(unit)-round*t.recipe.RoundUnits())/uint64(slots.Length) >= t.wake.slot, nil
}

// Open opens an agent's home and holds each recipe against its policy; a recipe that is
// refused is shown as such, and answered by nobody. It fails as [sender.Home.Open].
func Open(ctx context.Context, o Options) (*Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	account, err := o.Home.Open()
	if err != nil {
		return nil, err
	}
	a := &Agent{o: o, account: account, tasks: make(map[recipe.ID]*task), counts: make(map[string]uint64), failed: make(chan error, 1)}
	rand.Read(a.key[:])
	a.ending, a.end = context.WithCancel(context.Background())
	if err := a.open(ctx); err != nil {
		if a.files != nil {
			err = errors.Join(err, a.files.Close())
		}
		return nil, errors.Join(err, account.Close())
	}
	return a, nil
}

func (a *Agent) open(ctx context.Context) (err error) {
	fsys, err := disk.OS(a.o.Home.Dir)
	if err != nil {
		return err
	}
	a.files = fsys
	if a.born, err = bornAt(fsys, a.account.Ledger().ID(), time.Now()); err != nil {
		return err
	}
	longest := int64(0)
	for _, in := range a.o.Tasks {
		c := in.Sender.Client.Checked
		t := &task{Task: in, files: fsys, log: a.o.Log, id: c.ID(), recipe: c.Recipe(), seen: make(map[uint64][sha256.Size]byte)}
		if a.tasks[t.id] != nil {
			return fmt.Errorf("agent: two tasks of the recipe %v", t.id)
		}
		unit, err := t.recipe.TimePrecision.At(time.Now())
		if err != nil {
			return err
		}
		t.wake.round = t.recipe.Round(unit)
		in.Sender.Client.Shares = t.recipe.Shares() > 0 // for this agent cuts
		t.refused = in.Policy.allows(t.recipe)
		if t.refused == nil {
			t.person, t.refused = a.account.Answer(ctx, in.Sender)
		}
		if t.refused == nil && t.recipe.Training != nil {
			if t.newest, err = seenOf(fsys, t.id); err != nil {
				return err
			}
			t.follower, t.refused = training.Follow(t.recipe, in.Remote, t.newest, nil)
		}
		if errors.Is(t.refused, participate.ErrLedger) {
			return t.refused
		}
		if t.refused != nil {
			a.o.Log.Warn("a recipe is not answered", "recipe", t.recipe.Name, "error", t.refused)
		}
		a.tasks[t.id], a.order = t, append(a.order, t.id)
		longest = max(longest, t.longest())
	}
	a.bodies = body.NewBudget(max(leastBodies, 2*longest))
	return nil
}

// bornAt is when the ledger of a home was first met: now, where the file is about another
// ledger, which was here before, or about none.
func bornAt(fsys disk.FS, ledger [32]byte, now time.Time) (time.Time, error) {
	b, err := disk.ReadFile(fsys, bornFile, 1<<10)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, err
	}
	if at, of, ok := strings.Cut(string(b), " "); ok && of == hex.EncodeToString(ledger[:]) {
		return time.Parse(time.RFC3339, at)
	}
	now = now.UTC().Truncate(time.Second)
	return now, disk.WriteFile(fsys, bornFile, fmt.Appendf(nil, "%s %x", now.Format(time.RFC3339), ledger))
}

// seenFile is where the newest announcement of a recipe is that was seen, so that a
// controller that tells another story after a restart is found out.
func seenFile(id recipe.ID) string { return "seen-" + id.String() }

func seenOf(fsys disk.FS, id recipe.ID) (*session.Announcement, error) {
	b, err := disk.ReadFile(fsys, seenFile(id), session.AnnouncementBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seen, err := session.ReadAnnouncement(b)
	if err != nil {
		return nil, fmt.Errorf("agent: %s: %w; put its newest copy back", seenFile(id), err)
	}
	return seen, nil
}

// Close waits a moment for what is on its way, and closes the home. A report that was not
// sent is lost, and was paid for.
func (a *Agent) Close() error {
	done := make(chan struct{})
	go func() { a.flying.Wait(); close(done) }()
	timer := time.NewTimer(awaits)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	a.end()
	<-done
	return errors.Join(a.files.Close(), a.account.Close())
}

// A Contribution is an update, or one of each of several persons.
type Contribution struct {
	// Round is the one that it is for, as [session.Round] counts.
	Round uint64
	// Data says what it was made of, for the policy.
	Data string
	// Updates are of one person each.
	Updates [][]float32
}

// digest tells contributions apart, in this life of the agent.
func (a *Agent) digest(c *Contribution) [sha256.Size]byte {
	h := hmac.New(sha256.New, a.key[:])
	fmt.Fprintf(h, "%d %q %d\n", c.Round, c.Data, len(c.Updates))
	for _, u := range c.Updates {
		h.Write(session.AppendFloats(nil, u))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// contributed says whether an update was taken for a round, whatever its coin said: of the
// newest round that one was taken for in this life of the agent, and of none before. It
// fails with [ErrUnknown].
func (a *Agent) contributed(id recipe.ID, round uint64) (bool, error) {
	t := a.tasks[id]
	if t == nil {
		return false, ErrUnknown
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, was := t.seen[round]
	return was, nil
}

// give takes an update for the round that runs. It returns nil once the round is paid
// for, whatever its coin says, and before anything is sent; every error is from before that.
func (a *Agent) give(ctx context.Context, id recipe.ID, c *Contribution) error {
	err := a.contribute(ctx, id, c)
	a.mu.Lock()
	a.counts[outcomeOf(err)]++
	a.mu.Unlock()
	if errors.Is(err, participate.ErrLedger) {
		select {
		case a.failed <- err:
		default: // the first is enough
		}
	}
	return err
}

// Failed has the error by which the ledger came to an end, at most one: nothing is taken any
// more until the agent is opened again, which says whether the ledger can be trusted.
func (a *Agent) Failed() <-chan error { return a.failed }

func (a *Agent) contribute(ctx context.Context, id recipe.ID, c *Contribution) error {
	t := a.tasks[id]
	switch {
	case t == nil:
		return ErrUnknown
	case t.refused != nil:
		return t.refused
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Now() // of all that follows: the round may end meanwhile
	unit, err := t.recipe.TimePrecision.At(at)
	if err != nil {
		return err
	}
	if now := session.Round(t.recipe, unit); c.Round != now {
		return &RoundError{c.Round, now}
	}
	digest := a.digest(c)
	if was, ok := t.seen[c.Round]; ok {
		if was != digest {
			return ErrContributed
		}
		return nil
	}
	vector, err := t.vector(ctx, c)
	if err != nil {
		return err
	}
	undo, err := a.allowed(t, c, at)
	if err != nil {
		return err
	}
	if awake, err := t.awake(unit); err != nil || !awake {
		if err == nil {
			clear(t.seen)
			t.seen[c.Round] = digest
		}
		return err
	}
	value := client.Reals(vector)
	decision, err := t.person.DecideAt(ctx, value, at)
	if errors.Is(err, participate.ErrDecided) {
		err = ErrContributed
		if q, quoted := t.person.Quote(); quoted == nil && q.Over {
			err = ErrNoRounds
		}
	}
	if err != nil {
		undo()
		return err
	}
	clear(t.seen) // of rounds that are over
	t.seen[c.Round] = digest
	if err := t.person.DecideNext(ctx, value, decision, at); err != nil {
		t.log.Warn("the next round is not drawn for yet", "recipe", t.recipe.Name, "error", err)
	}
	a.flying.Add(1)
	go func() {
		defer a.flying.Done()
		a.send(t, decision, at)
	}()
	return nil
}

// allowed holds a contribution against the policy, and has it count as the last one from
// now on, so that none to another recipe is let in beside it; undo takes that back. How many
// are on their way limits nothing and is told to nobody: that would tell coins. There is one
// a round of each task.
func (a *Agent) allowed(t *task, c *Contribution, now time.Time) (undo func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := t.Policy.takes(c.Data, len(c.Updates), a.born, a.last, now); err != nil {
		return nil, err
	}
	before := a.last
	a.last = now
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.last.Equal(now) {
			a.last = before
		}
	}, nil
}

// send carries out a decision about an update that was given at a time. Its outcome is told
// by no count and no log line: they would tell the coin.
func (a *Agent) send(t *task, d *participate.Decision, at time.Time) {
	if _, waits := t.recipe.Slotted(); !waits {
		d.Send(a.ending)
		return
	}
	if from, _, ok := d.Slot(); ok && at.Before(from) { // it may have come meanwhile
		d.Pass(a.ending, at)
		return
	}
	t.person.SendDue(a.ending, d)
}

// Tasks are the recipes, in the order of the options.
func (a *Agent) Tasks() []recipe.ID { return slices.Clone(a.order) }
