package participate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
)

// LedgerFile is the name of the ledger in its directory.
const LedgerFile = "ledger"

// Errors to branch on with errors.Is.
var (
	// ErrDecided: the device has decided in this round, or in as many rounds as the
	// recipe has. It tosses no second coin.
	ErrDecided = errors.New("participate: this round is decided already")
	// ErrTooSoon is what every *SeparationError matches.
	ErrTooSoon = errors.New("participate: too soon after the last round")
	// ErrBudget is what every *BudgetError matches.
	ErrBudget = errors.New("participate: over the budget")
	// ErrLedger: the ledger cannot be trusted or written. Nothing is tossed; open it
	// again.
	ErrLedger = errors.New("participate: the ledger cannot be used")
)

// A SeparationError: the device decided too few rounds ago for the recipe's noise to
// cover it again. Nothing was tossed or charged.
type SeparationError struct {
	Last, Round uint64 // the round decided last, and the one that is too close
	Separation  uint64 // that the recipe wants between them
}

func (e *SeparationError) Error() string {
	return fmt.Sprintf("participate: too soon: round %d was decided, and the recipe's guarantee allows the next in round %d, not in %d",
		e.Last, e.Last+e.Separation, e.Round)
}

// Is reports whether target is ErrTooSoon.
func (e *SeparationError) Is(target error) bool { return target == ErrTooSoon }

// A BudgetError: deciding would cost more than is left. Nothing was tossed or charged.
type BudgetError struct {
	Spent  Spent         // so far, over all recipes
	Price  recipe.Loss   // of this round
	Budget LedgerOptions // that would be exceeded
	// Conditional: even if all is true that only authors of recipes say.
	Conditional bool
}

func (e *BudgetError) Error() string {
	even := ""
	if e.Conditional {
		even = ", even if all is true that recipes' authors say"
	}
	return fmt.Sprintf("participate: over the budget%s: %s of epsilon %.4g is spent, and this round costs %s more",
		even, recipe.Above(e.Spent.Epsilon), e.Budget.MaxEpsilon, recipe.Above(e.Price.Epsilon))
}

// Is reports whether target is ErrBudget.
func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

// LedgerOptions are the person's limits. The zero value is refused: a limit is chosen.
type LedgerOptions struct {
	// MaxEpsilon and MaxDelta bound what all recipes together may cost; required, above
	// 0. An infinite MaxEpsilon also takes recipes without differential privacy.
	MaxEpsilon float64 `json:"max_epsilon"`
	MaxDelta   float64 `json:"max_delta"`
	// Counter is outside of the directory, so that a ledger that is put back as a whole is
	// found out; nil is none. Optional.
	Counter Counter `json:"-"`
}

// Validate says whether a ledger can be opened.
func (o *LedgerOptions) Validate() error {
	if !(o.MaxEpsilon > 0) || !(o.MaxDelta > 0 && o.MaxDelta <= 1) {
		return fmt.Errorf("participate: a budget of epsilon %v and delta %v, want both above 0", o.MaxEpsilon, o.MaxDelta)
	}
	return nil
}

// Spent is a sum of losses. Epsilon is +Inf once a recipe without differential privacy
// was answered.
type Spent struct{ Epsilon, Delta float64 }

// An Entry is what the ledger holds about one recipe.
type Entry struct {
	Recipe recipe.ID `json:"recipe"`
	// Bytes of the recipe, as it was seen.
	Bytes []byte `json:"-"`
	// Name of it, if the bytes can be read.
	Name string `json:"name"`
	// First and Last are the days (UTC) on which it was seen first and decided or refused
	// last.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Rounds is how often the device decided.
	Rounds uint32 `json:"rounds"`
	// Loss is what that cost; the zero Loss before the first decision.
	Loss recipe.Loss `json:"loss"`
	// Unconditional is what it cost on none of Conditions.
	Unconditional recipe.Loss `json:"-"`
	// Conditions are what Loss counts on and only the recipe's author says; see
	// [recipe.Recipe.Conditions].
	Conditions []string `json:"conditions,omitempty"`
	// Refused is why the device refused the recipe, last; empty if it did not.
	Refused string `json:"refused,omitempty"`

	last          uint64 // the last round decided
	charged, open charge // open: on none of the conditions
}

// charge is a loss in units that add up without rounding: 10^-9 of epsilon and 10^-18 of
// delta, rounded up.
type charge struct{ epsilon, delta uint64 }

const (
	epsilonUnit = 1e-9
	deltaUnit   = 1e-18
	unbounded   = math.MaxUint64 // no differential privacy
)

func newCharge(l recipe.Loss) charge {
	if !l.Finite() {
		return charge{unbounded, 0}
	}
	// Exactly, so that an epsilon of 1 fits a budget of 1.
	units := func(x float64, each int64) uint64 {
		if !(x*float64(each) < 1<<62) {
			return unbounded
		}
		u := new(big.Rat).SetFloat64(max(x, 0))
		u.Mul(u, new(big.Rat).SetInt64(each))
		q, rest := new(big.Int).QuoRem(u.Num(), u.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		return q.Uint64()
	}
	return charge{units(l.Epsilon, 1e9), units(l.Delta, 1e18)}
}

func (c charge) loss() recipe.Loss {
	if c.epsilon == unbounded {
		return recipe.NoPrivacy
	}
	return recipe.Loss{Epsilon: float64(c.epsilon) * epsilonUnit, Delta: float64(c.delta) * deltaUnit}
}

// A Ledger is a device's durable account over all recipes. Its methods may be called
// concurrently; one process at a time may have it open, which the caller sees to
// (disk.OSFS.Lock). The caller must Close it.
type Ledger struct {
	o    LedgerOptions
	fsys disk.FS // nil in memory, as log
	log  *disk.Log

	mu       sync.Mutex // held over the append, so that checking, charging and writing are one step
	id       recipe.ID  // its own
	entries  map[recipe.ID]*Entry
	draws    map[drawKey]draw
	drawsAre digest   // of their file; zero is none
	at       position // the end of the log
	mark     mark     // as it stands on the disk
	marked   bool     // there is one
	unmarked int      // charges behind the mark
	broken   error    // once set, nothing is charged any more
}

// OpenLedger reads the ledger in a directory, and makes it if there is none. A record
// torn by a loss of power was never acted on and is dropped. Where a charge that was
// acted on is damaged or gone, or the directory's three files are not of one ledger and
// one time, the error matches [ErrLedger], and they stay as they are.
func OpenLedger(fsys disk.FS, o LedgerOptions) (*Ledger, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := &Ledger{o: o, fsys: fsys, entries: make(map[recipe.ID]*Entry), draws: make(map[drawKey]draw)}
	err := l.load(fsys)
	// A charge behind the mark is the last record: nothing follows it before its mark
	// stands.
	if err == nil && l.unmarked > 1 {
		err = fmt.Errorf("%s was put back: %d charges came after it", MarkFile, l.unmarked)
	}
	if err == nil {
		err = l.loadDraws()
	}
	if err == nil {
		err = l.outside()
	}
	if err == nil {
		l.log, _, err = disk.OpenLog(fsys, LedgerFile, disk.LogOptions{MaxRecord: maxRecord}, func([]byte) error { return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLedger, err)
	}
	if err := errors.Join(l.begin(), l.settleDraws()); err != nil {
		return nil, errors.Join(err, l.log.Close())
	}
	return l, nil
}

// ReadLedger reads what a ledger says, for showing it, while no device has it open or
// even while one has. It fails with fs.ErrNotExist where there is none.
func ReadLedger(fsys disk.FS) ([]Entry, Spent, error) {
	l := &Ledger{entries: make(map[recipe.ID]*Entry)}
	err := l.load(fsys)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrLedger, err)
	} else if !l.marked {
		_, err = fsys.Stat(LedgerFile)
	}
	return l.Entries(), l.Spent(), err
}

// MemoryLedger returns a ledger that forgets everything with the process: for simulated
// devices, never for a person's.
func MemoryLedger(o LedgerOptions) (*Ledger, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Ledger{o: o, entries: make(map[recipe.ID]*Entry), draws: make(map[drawKey]draw)}, nil
}

// Close ends the ledger.
func (l *Ledger) Close() error {
	if l.log == nil {
		return nil
	}
	return l.log.Close()
}

// ID is the ledger's own, 32 bytes drawn when it was made: another ledger in its place has
// another. It is of zeros in memory.
func (l *Ledger) ID() [32]byte { return l.id }

// Budget is what it was opened with.
func (l *Ledger) Budget() LedgerOptions { return l.o }

// Entries lists all recipes, the first seen first.
func (l *Ledger) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(a.First.Compare(b.First), slices.Compare(a.Recipe[:], b.Recipe[:]))
	})
	return list
}

// Spent adds up all recipes.
func (l *Ledger) Spent() Spent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spent().public()
}

// sum is wide enough for any number of charges.
type sum struct {
	epsilon, delta float64
	unbounded      bool
}

func (s sum) public() Spent {
	if s.unbounded {
		return Spent{math.Inf(1), s.delta * deltaUnit}
	}
	return Spent{s.epsilon * epsilonUnit, s.delta * deltaUnit}
}

func (s *sum) add(c charge) {
	if c.epsilon == unbounded {
		s.unbounded = true
		return
	}
	s.epsilon += float64(c.epsilon)
	s.delta += float64(c.delta)
}

func (l *Ledger) spent() (s sum) {
	for _, id := range slices.SortedFunc(maps.Keys(l.entries), func(a, b recipe.ID) int { return slices.Compare(a[:], b[:]) }) {
		s.add(l.entries[id].charged)
	}
	return s
}

// See records that the device has met a recipe, once. It is durable on return.
func (l *Ledger) See(ctx context.Context, id recipe.ID, bytes []byte, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.entries[id]; ok {
		return nil
	}
	return l.append(ctx, record{kind: kindSeen, day: day(now), recipe: id, bytes: bytes})
}

// Refuse records why the device does not take part in a recipe that it has seen. It is
// durable on return.
func (l *Ledger) Refuse(ctx context.Context, id recipe.ID, reason string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[id]; !ok || e.Refused == reason {
		return nil
	}
	return l.append(ctx, record{kind: kindRefused, day: day(now), recipe: id, bytes: []byte(reason)})
}

// Unconditional is what the rounds that were decided have cost where none of the entries'
// Conditions are counted on.
func Unconditional(entries []Entry) Spent {
	var s sum
	for _, e := range entries {
		if e.Rounds > 0 {
			s.add(e.open)
		}
	}
	return s.public()
}

// Conditions are what the rounds that were decided count on and only the recipes' authors
// say, each with the name of its recipe.
func Conditions(entries []Entry) []string {
	list := []string{}
	for _, e := range entries {
		if e.Rounds == 0 {
			continue
		}
		for _, condition := range e.Conditions {
			list = append(list, e.Name+": "+condition)
		}
	}
	return list
}

// A Price says what the first rounds of a recipe, 1 or more, cost in all, and what they
// cost on none of its conditions: [recipe.Checked.LossAfter] and UnconditionalAfter.
type Price func(rounds uint32) (loss, unconditional recipe.Loss, err error)

// PriceOf is the price of a recipe that was checked.
func PriceOf(c *recipe.Checked) Price {
	return func(rounds uint32) (loss, unconditional recipe.Loss, err error) {
		if loss, err = c.LossAfter(rounds); err == nil {
			unconditional, err = c.UnconditionalAfter(rounds)
		}
		return loss, unconditional, err
	}
}

// Charge pays for one round of a recipe that was seen: after it, rounds rounds of the
// recipe have been decided, and the price says what they cost. The rule is the
// recipe's: how often, and how many rounds apart. The charge and the mark behind it are
// durable on return; only then may a coin be tossed. It fails with [ErrDecided],
// *[SeparationError], *[BudgetError], [ErrLedger] or the context's error, and then
// nothing may be tossed. Rounds come in rising order.
func (l *Ledger) Charge(ctx context.Context, id recipe.ID, round uint64, rule recipe.DeviceRule, now time.Time, price Price) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return fmt.Errorf("%w: %w", ErrLedger, l.broken)
	}
	e, ok := l.entries[id]
	if !ok {
		return fmt.Errorf("%w: the recipe has not been seen", ErrLedger)
	}
	if e.Rounds >= rule.Rounds || e.Rounds > 0 && round <= e.last {
		return ErrDecided
	}
	if e.Rounds > 0 && round-e.last < rule.Separation {
		return &SeparationError{Last: e.last, Round: round, Separation: rule.Separation}
	}
	loss, open, err := price(e.Rounds + 1)
	if err != nil {
		return err
	}
	after, before, t := l.weigh(e, loss)
	if t.Epsilon > l.o.MaxEpsilon || t.Delta > l.o.MaxDelta {
		step := recipe.Loss{Epsilon: t.Epsilon - before.Epsilon, Delta: t.Delta - before.Delta}
		if math.IsInf(before.Epsilon, 1) {
			step.Epsilon = loss.Epsilon
		}
		conditional := len(e.Conditions) > 0
		for _, other := range l.entries {
			conditional = conditional || other.Rounds > 0 && len(other.Conditions) > 0
		}
		return &BudgetError{Spent: before, Price: step, Budget: l.o, Conditional: conditional}
	}
	if err := l.append(ctx, record{kind: kindCharge, day: day(now), recipe: id, round: round, charge: after,
		open: newCharge(open)}); err != nil {
		return err
	}
	return l.setMark(l.mark)
}

// weigh is what a recipe will be charged once its rounds cost loss in all, and what all
// recipes cost before that and then.
func (l *Ledger) weigh(e *Entry, loss recipe.Loss) (after charge, before, then Spent) {
	after = newCharge(loss)
	after.epsilon, after.delta = max(after.epsilon, e.charged.epsilon), max(after.delta, e.charged.delta)
	total := l.spent()
	before = total.public()
	if e.charged.epsilon != unbounded {
		total.epsilon -= float64(e.charged.epsilon)
		total.delta -= float64(e.charged.delta)
	}
	total.add(after)
	return after, before, total.public()
}

// A Quote is what one more round of a recipe would cost.
type Quote struct {
	Rounds uint32      // that were decided
	Loss   recipe.Loss // of these
	Next   recipe.Loss // of these and one more; Loss where the recipe has no more
	Spent  Spent       // over all recipes
	Then   Spent       // after one more
	// Over: the recipe has no more rounds. Exceeds: the budget has no room for one more.
	Over, Exceeds bool
}

// Quote says what one more round of a recipe would cost, and charges nothing. It fails with
// [ErrLedger] and as price does.
func (l *Ledger) Quote(id recipe.ID, rule recipe.DeviceRule, price Price) (Quote, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return Quote{}, fmt.Errorf("%w: %w", ErrLedger, l.broken)
	}
	e := l.entries[id]
	if e == nil {
		e = new(Entry)
	}
	q := Quote{Rounds: e.Rounds, Loss: e.Loss, Next: e.Loss, Over: e.Rounds >= rule.Rounds}
	_, q.Spent, q.Then = l.weigh(e, e.Loss)
	if q.Over {
		return q, nil
	}
	loss, _, err := price(e.Rounds + 1)
	if err != nil {
		return Quote{}, err
	}
	q.Next = loss
	_, q.Spent, q.Then = l.weigh(e, loss)
	q.Exceeds = q.Then.Epsilon > l.o.MaxEpsilon || q.Then.Delta > l.o.MaxDelta
	return q, nil
}

// append writes a record and takes it into account. A failure that leaves it unknown
// whether it was written ends the ledger: to go on could charge too little.
func (l *Ledger) append(ctx context.Context, r record) error {
	if l.broken != nil {
		return fmt.Errorf("%w: %w", ErrLedger, l.broken)
	}
	if l.log == nil {
		return l.apply(r)
	}
	b, err := r.append(nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLedger, err)
	}
	switch err := l.log.Append(ctx, b); {
	case err == nil:
	case ctx.Err() != nil && !errors.Is(err, disk.ErrStateUnknown):
		return err
	default:
		l.broken = err
		return fmt.Errorf("%w: %w", ErrLedger, err)
	}
	l.at = l.at.after(b)
	return l.apply(r)
}

// read takes in one record of the file.
func (l *Ledger) read(payload []byte) error {
	r, err := readRecord(payload)
	if err != nil {
		return err
	}
	if (r.kind == kindBegun) != (l.at.records == 0) {
		return fmt.Errorf("%w: not one beginning", errRecord)
	}
	l.at = l.at.after(payload)
	if r.kind == kindCharge && l.at.records > l.mark.records {
		l.unmarked++
	}
	return l.apply(r)
}

func (l *Ledger) apply(r record) error {
	if r.kind == kindBegun {
		l.id = r.recipe
		return nil
	}
	e, ok := l.entries[r.recipe]
	if r.kind == kindSeen {
		if !ok {
			e = &Entry{Recipe: r.recipe, Bytes: r.bytes, First: date(r.day), Last: date(r.day)}
			if read, err := recipe.Read(r.bytes); err == nil {
				e.Name, e.Conditions = read.Name, read.Conditions()
			}
			l.entries[r.recipe] = e
		}
		return nil
	}
	if !ok {
		return fmt.Errorf("%w: a record about a recipe that was not seen", errRecord)
	}
	e.Last = date(r.day)
	switch r.kind {
	case kindRefused:
		e.Refused = string(r.bytes)
	case kindCharge:
		e.Rounds++
		e.last, e.charged, e.open, e.Refused = r.round, r.charge, r.open, ""
		e.Loss, e.Unconditional = r.charge.loss(), r.open.loss()
	}
	return nil
}

func day(t time.Time) uint32  { return uint32(max(0, t.Unix()) / 86400) }
func date(d uint32) time.Time { return time.Unix(int64(d)*86400, 0).UTC() }
