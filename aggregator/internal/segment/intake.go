package segment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
)

// Folders of the objects that an [Intake] makes: those in RowFolder are rows of the
// database, and all others lie in a payload store.
const (
	RowFolder    = "rows/"
	ObjectFolder = "slices/"
	objectSuffix = ".obj"
)

// A Refusal says why a report is not kept, by a code of dap.ReportError; 0: it is.
type Refusal uint16

// An Acknowledger has the rows of slices, for any number of machines.
type Acknowledger interface {
	// Acknowledge names the slices of a new object, durably: they wait to be claimed then.
	// The body is that of an object in RowFolder, durable with its row; nil where the object
	// lies elsewhere, and is durable already. Slices of batch buckets that take nothing
	// more, and of tasks that have ended, are refused; an object of which nothing is kept
	// goes. After an error nothing is named, or nobody knows. It is ErrBusy where the replica
	// was held dead since it took the reports, in the life of that name: the keys that they
	// are sealed to may be destroyed. Where none is named nobody asks.
	Acknowledge(ctx context.Context, life, object string, body [][]byte, slices []Slice) ([]Refusal, error)
}

// IntakeOptions tune an [Intake]. The zero value is good where all payload is in rows.
type IntakeOptions struct {
	// Objects has what is too large for a row; nil where nothing is.
	Objects payload.Store
	// RowBytes is the least size of a group commit that becomes an object; default 256 KiB.
	RowBytes int64
	// MaxReport is the largest report, in bytes; default 4 MiB.
	MaxReport int
	// MaxInFlight bounds the bytes of reports that are not durable yet; above it Put
	// returns ErrBusy. Default 64 MiB.
	MaxInFlight int64
	// A group commit is closed when it has CommitReports or CommitBytes, default 4096 and 6
	// MiB, or when Delay is over and one of Commits, those at one time, may begin; default 5
	// ms and 4.
	CommitReports int
	CommitBytes   int64
	Delay         time.Duration
	Commits       int
	// Timeout bounds one group commit; default 30 s.
	Timeout time.Duration
	// JobBytes and JobReports bound a slice: what a job takes; see [SorterOptions]. Default
	// the same.
	JobBytes, JobReports int
	// Clock is default [disk.SystemClock].
	Clock disk.Clock
}

// Validate fills in defaults and reports values that make no sense.
func (o *IntakeOptions) Validate() error {
	if o.RowBytes == 0 {
		o.RowBytes = 256 << 10
	}
	if o.MaxReport == 0 {
		o.MaxReport = 4 << 20
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 64 << 20
	}
	if o.CommitReports == 0 {
		o.CommitReports = DefaultReports
	}
	if o.CommitBytes == 0 {
		o.CommitBytes = DefaultBytes
	}
	if o.Delay == 0 {
		o.Delay = 5 * time.Millisecond
	}
	if o.Commits == 0 {
		o.Commits = 4
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.JobBytes == 0 {
		o.JobBytes = DefaultBytes
	}
	if o.JobReports == 0 {
		o.JobReports = DefaultReports
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.RowBytes < 0 || o.MaxReport < 0 || o.MaxInFlight < 0 || o.CommitReports < 0 || o.CommitBytes < 0 || o.Delay < 0 ||
		o.Commits < 0 || o.Timeout < 0 || o.JobBytes < 0 || o.JobReports < 0 {
		return errors.New("segment: negative limit of the intake")
	}
	if o.CommitBytes > payload.MaxObject/2 {
		return fmt.Errorf("segment: group commits of %d bytes, an object has at most %d", o.CommitBytes, payload.MaxObject)
	}
	return nil
}

// Intake is where uploads become durable where several machines share a store: what
// [Inbox] is on one. Uploads of all tasks that come at about one time are one object, cut
// into slices, and one transaction. The caller must Close it.
type Intake struct {
	opt   IntakeOptions
	to    Acknowledger
	turns chan struct{} // one for each commit at one time

	mu       sync.Mutex
	open     *groupCommit // that uploads join; nil where the next one begins another
	inFlight int64        // bytes
	ended    bool
	commits  sync.WaitGroup
}

// groupCommit is uploads that become durable together.
type groupCommit struct {
	life    string // in which all entries were taken
	entries []Entry
	size    int64
	full    chan struct{} // closed when nothing joins any more
	done    chan struct{} // closed when it is known what became of it
	refused map[place]Refusal
	err     error
}

// NewIntake returns an intake before the rows that to has.
func NewIntake(to Acknowledger, opt IntakeOptions) (*Intake, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Intake{opt: opt, to: to, turns: make(chan struct{}, opt.Commits)}, nil
}

// errEnded: the intake was closed.
var errEnded = errors.New("segment: the intake is closed")

// Put makes the entries, all of one life, durable and returns then. Some may be refused, and are named in
// their order; nil where none is. After an error none is acknowledged, and some may turn up
// all the same. The reports may be reused when it returns, for which it waits whatever
// becomes of ctx.
func (in *Intake) Put(ctx context.Context, entries []Entry) ([]Refusal, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	size := int64(0)
	for i := range entries {
		if n := len(entries[i].Report); n > in.opt.MaxReport {
			return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, in.opt.MaxReport)
		}
		size += int64(entries[i].encodedSize())
	}
	if size > payload.MaxObject/2 {
		return nil, fmt.Errorf("%w: %d bytes in one upload, at most %d", ErrTooLarge, size, payload.MaxObject/2)
	}
	g, err := in.join(entries, size)
	if err != nil {
		return nil, err
	}
	<-g.done
	in.mu.Lock()
	in.inFlight -= size
	in.mu.Unlock()
	if g.err != nil {
		return nil, g.err
	}
	var refused []Refusal
	for i := range entries {
		if why := g.refused[place{entries[i].TaskID, entries[i].Bucket}]; why != 0 {
			if refused == nil {
				refused = make([]Refusal, len(entries))
			}
			refused[i] = why
		}
	}
	return refused, nil
}

// join adds an upload to the group commit that is open, or to one that it begins.
func (in *Intake) join(entries []Entry, size int64) (*groupCommit, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.ended:
		return nil, errEnded
	case in.inFlight > 0 && in.inFlight+size > in.opt.MaxInFlight:
		return nil, fmt.Errorf("%w: %d bytes in flight", ErrBusy, in.inFlight)
	}
	in.inFlight += size
	life := entries[0].Life
	if g := in.open; g != nil && (g.size+size > in.opt.CommitBytes || g.life != life) {
		in.seal(g)
	}
	g := in.open
	if g == nil {
		g = &groupCommit{life: life, full: make(chan struct{}), done: make(chan struct{})}
		in.open = g
		in.commits.Go(func() { in.run(g) })
	}
	g.entries = append(g.entries, entries...)
	if g.size += size; len(g.entries) >= in.opt.CommitReports || g.size >= in.opt.CommitBytes {
		in.seal(g)
	}
	return g, nil
}

// seal has nothing join a group commit any more. in.mu must be held.
func (in *Intake) seal(g *groupCommit) {
	if in.open == g {
		in.open = nil
		close(g.full)
	}
}

// run is one group commit. It stays open for as long as it waits for its turn.
func (in *Intake) run(g *groupCommit) {
	defer close(g.done)
	timer := in.opt.Clock.NewTimer(in.opt.Delay)
	select {
	case <-g.full:
	case <-timer.C():
	}
	timer.Stop()
	in.turns <- struct{}{}
	defer func() { <-in.turns }()
	in.mu.Lock()
	in.seal(g)
	in.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), in.opt.Timeout)
	defer cancel()
	g.err = in.keep(ctx, g)
}

// keep makes a group commit durable: first its object, where that is none of a row, and
// then the rows that name it.
func (in *Intake) keep(ctx context.Context, g *groupCommit) error {
	name := in.Place(g.size)
	stored := !strings.HasPrefix(name, RowFolder)
	parts, d, err := cutObject(name, g.entries, in.opt.JobBytes, in.opt.JobReports)
	if err != nil {
		return err
	}
	rows := make([]Slice, len(d))
	came := in.opt.Clock.Now().Unix()
	for i := range d {
		rows[i] = d[i].row(came)
	}
	if stored {
		if err := payload.Keep(ctx, in.opt.Objects, name, parts...); err != nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		parts = nil
	}
	refused, err := in.to.Acknowledge(ctx, g.life, name, parts, rows)
	if err != nil {
		return err
	}
	g.refused = make(map[place]Refusal)
	for i, why := range refused {
		if why != 0 {
			g.refused[place{rows[i].TaskID, rows[i].Bucket}] = why
		}
	}
	return nil
}

// Place names a new object of about that size in bytes, in the place where it belongs: a row,
// or the payload store.
func (in *Intake) Place(size int64) string {
	folder := RowFolder
	if in.opt.Objects != nil && size >= in.opt.RowBytes {
		folder = ObjectFolder
	}
	return ObjectName(strings.TrimSuffix(folder, "/"))
}

// InFlight is how many bytes of reports are not durable yet.
func (in *Intake) InFlight() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.inFlight
}

// Close lets the uploads under way finish and refuses later ones.
func (in *Intake) Close() error {
	in.mu.Lock()
	in.ended = true
	if in.open != nil {
		in.seal(in.open)
	}
	in.mu.Unlock()
	in.commits.Wait()
	return nil
}
