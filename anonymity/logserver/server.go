package logserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/signed"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// Failpoints of a log, beside those of its file.
const (
	failBeforeAppend = "log.before-entry"
	failBeforeAnswer = "log.after-entry-before-answer"
	failBeforeAsk    = "log.after-sign-before-witnesses"
	failBeforeShown  = "log.after-witnesses-before-record"
	failBeforeShow   = "log.after-record-before-show"
)

// Failpoints lists the failpoints of a log, beside disk.LogFailpoints.
func Failpoints() []string {
	return []string{failBeforeAppend, failBeforeAnswer, failBeforeAsk, failBeforeShown, failBeforeShow}
}

// bodyTime is how long the sender of an entry may take.
const bodyTime = 15 * time.Second

// A Server is a log. It is an [http.Handler] and safe for concurrent use; [Server.Run]
// must run.
type Server struct {
	o         Options
	door      *door.Door
	witnesses []*witness
	wake      chan struct{} // something was appended

	mu    sync.Mutex
	store *store // guarded by mu
	// hour is when the entries that are counted in taken, and in of by who signed them,
	// began to come; guarded by mu
	hour   time.Time
	taken  int
	of     map[signed.PublicKey]int
	broken error // the disk failed: nothing is appended until a restart; guarded by mu
	now    *front
	record shown
	counts map[string]uint64 // by outcome; guarded by mu
	tried  error             // why the last checkpoint could not be shown; guarded by mu
	since  time.Time         // since when; guarded by mu
}

// A front is what the log shows.
type front struct {
	note   []byte
	c      tlog.Checkpoint
	at     time.Time // at which it was shown
	tree   *store    // a view
	bundle []byte    // nil: none
	// Of the bundle: when it was shown first, the place of its set of entries, and when its
	// period begins.
	bundled time.Time
	active  int64
	begin   time.Time
	holds   int // entries in the bundle
}

// New opens a log and reads all of it. It fails with *[StateError] where what is there
// would make it show two trees.
func New(o Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	x, err := readShown(&o)
	if err != nil {
		return nil, err
	}
	st, err := openStore(&o)
	if err != nil {
		return nil, err
	}
	if err := x.hold(&o, st); err != nil {
		return nil, errors.Join(err, st.close())
	}
	s := &Server{o: o, store: st, record: *x, wake: make(chan struct{}, 1), counts: make(map[string]uint64),
		door: door.New(o.Limits.Requests, int64(o.Limits.Requests)*tlog.MaxEntry, tlog.MaxEntry, bodyTime)}
	for _, p := range o.Policy.Witnesses() {
		if p.URL != "" {
			s.witnesses = append(s.witnesses, &witness{Party: p})
		}
	}
	if len(x.note) > 0 {
		c, err := tlog.TextOf(x.note)
		if err == nil && s.record.add(c.Size, o.Now()) { // that of the bundle that it begins with
			err = s.record.save(&s.o)
		}
		if err != nil {
			return nil, errors.Join(err, st.close())
		}
		if err := s.show(x.note, o.Now()); err != nil {
			return nil, errors.Join(err, st.close())
		}
	}
	return s, nil
}

// Close closes the log's files.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.close()
}

// Errors of an entry that is not taken, to branch on with errors.Is, beside the judge's and
// the register's.
var (
	// ErrFull: the log holds as much as it may.
	ErrFull = errors.New("logserver: the log is full")
	// ErrRate: too many entries have come in this hour, in all or of one owner.
	ErrRate = errors.New("logserver: too many entries in an hour")
	// ErrBroken: the disk failed, and whether an entry is there is not known. After a
	// restart it may be sent again, and gets the place that it has.
	ErrBroken = errors.New("logserver: the disk failed; send the entry again after a restart")
	// ErrJudged is what an entry is refused with for what it says.
	ErrJudged = errors.New("logserver: the entry is refused")
	// ErrTime: the statement was made too long ago, or in the future.
	ErrTime = errors.New("logserver: the entry was signed at another time")
)

// add takes an entry and returns its place, durable; old says that it was there before.
func (s *Server) add(ctx context.Context, b []byte) (place int64, old bool, err error) {
	e, err := tlog.ReadEntry(b)
	if err != nil {
		return 0, false, err
	}
	if e.Kind == tlog.KindActive {
		return 0, false, fmt.Errorf("%w: only the log itself says what holds", ErrJudged)
	}
	claim, err := s.o.Judge(e)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrJudged, err)
	}
	if claim.About == [32]byte{} {
		return 0, false, fmt.Errorf("%w: it is about nothing", ErrJudged)
	}
	leaf, now := tlog.LeafHash(b), s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.store.held.Find(leaf); ok {
		return i, true, nil
	}
	if err := s.store.held.Check(leaf, claim); err != nil {
		return 0, false, err
	}
	if t := claim.Stated; !t.IsZero() && (now.Sub(t) > tlog.MaxAge || t.Sub(now) > tlog.Skew) {
		return 0, false, fmt.Errorf("%w: %s, and it is %s; sign it again", ErrTime, t.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if now.Sub(s.hour) >= time.Hour || now.Before(s.hour) {
		s.hour, s.taken, s.of = now, 0, make(map[signed.PublicKey]int)
	}
	by := signer(&claim)
	switch {
	case s.broken != nil:
		return 0, false, ErrBroken
	case s.store.size() >= int64(s.o.Limits.Entries) || s.store.end+int64(len(b)) > s.o.Limits.Bytes:
		return 0, false, ErrFull
	case s.of[by] >= share(s.o.Limits.PerHour-(s.taken-s.of[by])):
		return 0, false, ErrRate
	}
	if place, err = s.append(ctx, b, e, claim); err != nil {
		return 0, false, err
	}
	s.taken++
	s.of[by]++
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return place, false, s.o.Failpoints.Hit(failBeforeAnswer)
}

// signer is the owner to whom an entry is counted: one that has signed it, or anybody's
// entries would use up another's share. An entry that nobody understands has none.
func signer(c *tlog.Claim) signed.PublicKey {
	switch {
	case c.Withdraws != tlog.Hash{}:
		return c.By
	case len(c.Owners) > 0:
		return c.Owners[0]
	}
	return signed.PublicKey{}
}

// share is how many entries one owner may add in an hour, of those that the others have
// left: half, rounded up. So nobody uses up the hour for the others.
func share(left int) int { return (left + 1) / 2 }

// append makes an entry durable. s.mu must be held.
func (s *Server) append(ctx context.Context, b []byte, e tlog.Entry, c tlog.Claim) (int64, error) {
	if err := s.o.Failpoints.Hit(failBeforeAppend); err != nil {
		return 0, err
	}
	i, err := s.store.append(ctx, b, e, c)
	switch {
	case err == nil, ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return i, err
	case s.broken == nil:
		s.broken = err
		s.o.Log.Error("the disk failed: the log takes nothing until it starts again", slog.Any("error", err))
	}
	return 0, fmt.Errorf("%w: %w", ErrBroken, err)
}

// hold appends the active set of the period, if the last one is of an earlier. s.mu must be
// held.
func (s *Server) hold(ctx context.Context, now time.Time) error {
	begin, end := s.o.period(now)
	if s.store.last != nil && !s.store.last.Begin.Before(begin) {
		return nil // also where the clock went back
	}
	live := s.store.held.Live(begin, end.Add(s.o.Ahead))
	if len(live) > tlog.MaxActive {
		return fmt.Errorf("logserver: %d entries hold at one time, and a bundle has %d at most: withdraw some", len(live), tlog.MaxActive)
	}
	e, err := (&tlog.Active{Begin: begin, End: end, Entries: live}).Entry()
	if err != nil {
		return err
	}
	b, err := e.Append(nil)
	if err != nil {
		return err
	}
	_, err = s.append(ctx, b, e, tlog.Claim{})
	return err
}

// publish signs what is there, asks the witnesses, and shows it. Until that succeeds the
// log shows what it has shown.
func (s *Server) publish(ctx context.Context) error {
	s.mu.Lock()
	if s.broken == nil {
		if err := s.hold(ctx, s.o.Now()); err != nil && s.broken == nil {
			s.mu.Unlock()
			return err
		}
	}
	tree := s.store.first(s.store.size())
	s.mu.Unlock()
	if tree.size() == 0 {
		return ErrBroken
	}
	root, err := merkle.TreeHash(tree.size(), tree)
	if err != nil {
		return err
	}
	c := &tlog.Checkpoint{Origin: s.o.Key.Key().Name(), Size: tree.size(), Root: root}
	note, err := c.Sign(s.o.Key)
	if err != nil {
		return err
	}
	if err := s.o.Failpoints.Hit(failBeforeAsk); err != nil {
		return err
	}
	if note, err = s.gather(ctx, c, note, tree); err != nil {
		return err
	}
	if err := s.o.Failpoints.Hit(failBeforeShown); err != nil {
		return err
	}
	// The bundle's size is on the disk before anybody has it, or a device that had it could
	// not go on from it.
	next := shown{note: note, sizes: s.record.sizes}
	if now := s.o.Now(); !s.keeps(tree, now) {
		next.add(c.Size, now)
	}
	if err := next.save(&s.o); err != nil {
		return fmt.Errorf("logserver: keep what is shown: %w", err)
	}
	s.record = next
	if err := s.o.Failpoints.Hit(failBeforeShow); err != nil {
		return err
	}
	return s.show(note, s.o.Now())
}

// show makes a checkpoint that is durable, and its bundle, what the log shows. Only New and
// Run call it.
func (s *Server) show(note []byte, now time.Time) error {
	c, err := tlog.TextOf(note)
	if err != nil {
		return err
	}
	s.mu.Lock()
	tree := s.store.first(c.Size)
	s.mu.Unlock()
	f := &front{note: note, c: *c, at: now, tree: tree}
	if s.keeps(tree, now) {
		f.bundle, f.begin, f.holds, f.active, f.bundled = s.now.bundle, s.now.begin, s.now.holds, s.now.active, s.now.bundled
	} else if err = s.bundle(f); err != nil {
		return err
	}
	s.mu.Lock()
	s.now = f
	s.mu.Unlock()
	return nil
}

// keeps says whether the bundle that is shown stays: it is of the last set of entries,
// and signed not long ago. So all who fetch in one period have the same bytes, and a log
// that grows by an entry every few seconds does not push out the sizes that devices know.
func (s *Server) keeps(tree *store, now time.Time) bool {
	f := s.now
	if f == nil || f.bundle == nil || now.Sub(f.bundled) >= tlog.MaxAge/4 || now.Before(f.bundled) {
		return false
	}
	n := len(tree.actives)
	return n > 0 && tree.actives[n-1] == f.active
}

// bundle makes the bundle of the last active set that a checkpoint is over.
func (s *Server) bundle(f *front) error {
	active, i, err := f.tree.active()
	if err != nil || active == nil {
		return err
	}
	var sizes []int64
	for _, x := range s.record.sizes {
		if x.size < f.c.Size {
			sizes = append(sizes, x.size)
		}
	}
	b, err := tlog.MakeBundle(f.note, f.c.Size, sizes, append(slices.Clone(active.Entries), i), f.tree.entry, f.tree)
	if err != nil {
		return err
	}
	f.begin, f.holds, f.active, f.bundled = active.Begin, len(active.Entries), i, f.at
	f.bundle, err = b.Append(nil)
	return err
}

// shownNow is what the log shows; nil before the first checkpoint.
func (s *Server) shownNow() *front {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Run signs and shows checkpoints until the context ends.
func (s *Server) Run(ctx context.Context) error {
	var last time.Time // of the last try
	failures := 0
	for {
		now := s.o.Now()
		wait := s.due(now, last, failures)
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			case <-s.wake:
				timer.Stop()
			}
			continue
		}
		last = now
		err := s.publish(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			failures++
		} else {
			failures = 0
		}
		s.told(err, now)
	}
}

// told takes note of how the last try ended.
func (s *Server) told(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && s.tried != nil:
		s.o.Log.Info("the log shows new checkpoints again")
	case err != nil && s.tried == nil:
		s.since = now
		s.o.Log.Warn("no new checkpoint can be shown; everybody goes on with the last", slog.Any("error", err))
	}
	s.tried = err
}

// maxRetry is the longest time between two tries, of which most fail at a witness.
const maxRetry = time.Minute

// due is how long it is until the next try: at once where something is new, but not sooner
// than an interval after the last, and later after each failure.
func (s *Server) due(now, last time.Time, failures int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin, end := s.o.period(now)
	next := now
	if f := s.now; failures == 0 && f != nil && s.store.size() == f.c.Size && (s.broken != nil || !f.begin.Before(begin)) {
		next = f.at.Add(s.o.Republish)
		if s.broken == nil && end.Before(next) {
			next = end
		}
	}
	if !last.IsZero() {
		pause := s.o.Interval
		for range min(failures, 10) {
			pause = min(2*pause, max(maxRetry, s.o.Interval))
		}
		if earliest := last.Add(pause); earliest.After(next) {
			next = earliest
		}
	}
	return next.Sub(now)
}
