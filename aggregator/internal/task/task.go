// Package task is a provisioned task in the form that requests and workers use.
package task

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// A Task is immutable and safe for concurrent use.
type Task struct {
	ID           dap.TaskID
	Dialect      dap.Dialect
	Config       *dap.TaskConfiguration
	VDAF         vdaf.VDAF
	Context      []byte // of every VDAF call
	Keys         map[uint8]*[vdaf.VerifyKeySize]byte
	KeyID        uint8 // the one that new jobs use
	Peer         Token
	PeerSecret   string // the leader presents it
	Fence        string // and this with it, which says what it holds: agreement.FenceHeader
	Advert       string // and this, of taskprov.Header; empty where the leader does not bring the task
	Collector    Token
	Upload       Token
	CollectorID  uint8
	CollectorKey *sealed.PublicKey
	SealedTo     [sha256.Size]byte // digest of the collector's HPKE configuration
	Noise        noise.Sampler
	Suite        sealed.Suite            // of the recipe's devices; zero: whatever is offered
	Deployment   *keyset.Deployment      // of the recipe's signing keys; nil: it names none
	Series       *aggregator.Series      // nil where each release has noise of its own
	Calendar     *aggregator.Calendar    // nil where DAP's rules are all
	Credentials  *aggregator.Credentials // nil where reports show none
	Expected     aggregator.Expectation
	Rate         *aggregator.Rate // nil where nothing is sampled
	Helper       *url.URL         // routing copy
	Block        int              // reports that one worker verifies at a time
	Held         int              // blocks of one batch whose output shares stay in memory until its commit
	states       sync.Pool
	interval     dap.Interval
	bounded      bool
}

// blockBytes bounds the scratch of one block: batches of large vectors are short.
// heldBytes bounds, to a small factor, the output shares that a batch keeps: of a larger
// one the rest is computed again when it is committed.
const (
	blockBytes = 8 << 20
	maxBlock   = 64
	credited   = 256 // reports at most whose credentials are verified together
	heldBytes  = 64 << 20
)

// New makes the working form of t.
func New(t *aggregator.Task, role dap.Role) (*Task, error) {
	if err := t.Validate(role); err != nil {
		return nil, err
	}
	cfg, err := dap.ReadTaskConfiguration(t.Version, t.Config)
	if err != nil {
		return nil, err
	}
	v, err := dap.NewVDAF(cfg.VDAFType, cfg.VDAFConfig)
	if err != nil {
		return nil, err
	}
	helper, err := dap.BaseURL(cfg.Helper)
	if err != nil {
		return nil, err
	}
	key, err := t.CollectorHPKE.PublicKey()
	if err != nil {
		return nil, err
	}
	collector, err := t.CollectorHPKE.Append(nil)
	if err != nil {
		return nil, err
	}
	id := t.ID
	if id == (dap.TaskID{}) {
		id = cfg.TaskID()
	}
	w := &Task{
		ID: id, Dialect: t.Dialect(), Config: cfg, VDAF: v, Context: t.Version.VDAFContext(id),
		Keys: make(map[uint8]*[vdaf.VerifyKeySize]byte),
		Peer: NewToken(t.PeerToken), PeerSecret: t.PeerToken,
		Collector: NewToken(t.CollectorToken), Upload: NewToken(t.UploadToken),
		CollectorID: t.CollectorHPKE.ID, CollectorKey: key, SealedTo: sha256.Sum256(collector),
		Noise: t.Noise, Series: t.Series, Calendar: t.Calendar, Helper: helper, Expected: t.Expected,
		Suite: t.Suite, Deployment: t.Deployment, Credentials: t.Credentials, Rate: t.Rate,
	}
	if t.Advertise && role == dap.RoleLeader {
		if w.Advert, err = taskprov.Value(t.Framing, t.Config); err != nil {
			return nil, err
		}
	}
	var ids []uint8
	for id, k := range t.VerifyKeys {
		w.Keys[id] = &k
		ids = append(ids, id)
	}
	w.KeyID = slices.Min(ids)
	w.interval, w.bounded = cfg.Interval()
	s := v.Sizes()
	most := maxBlock
	if w.Credentials != nil {
		most = credited
	}
	w.Block = max(1, min(most, blockBytes/(s.LeaderInput+s.VerifierShare+s.AggShare)))
	w.Held = max(1, heldBytes/(2*s.LeaderInput+w.Block*(s.VerifierShare+2*s.AggShare)))
	w.states.New = func() any { return v.NewState(w.Block) }
	return w, nil
}

// State lends scratch for one block; give it back with PutState.
func (t *Task) State() vdaf.State     { return t.states.Get().(vdaf.State) }
func (t *Task) PutState(s vdaf.State) { t.states.Put(s) }

// Mode is the task's batch mode.
func (t *Task) Mode() dap.BatchMode { return t.Config.BatchMode }

// Precision is the unit of the task's times.
func (t *Task) Precision() dap.TimePrecision { return t.Config.TimePrecision }

// Interval is the time in which reports may be made, and false where there is no bound.
func (t *Task) Interval() (dap.Interval, bool) { return t.interval, t.bounded }

// Over says whether no report can come any more: it is [Task.End], or later.
func (t *Task) Over(now time.Time, skew time.Duration) bool {
	end := t.End(skew)
	return !end.IsZero() && !now.Before(end)
}

// End is the moment from which on no report of the task can come, the clock skew that is
// allowed and the calendar's grace included; zero if there is none.
func (t *Task) End(skew time.Duration) time.Time {
	end, ok := t.interval.End()
	if !t.bounded || !ok {
		return time.Time{}
	}
	at, err := t.Precision().Begin(end)
	if err != nil {
		return time.Time{} // after the year 9999
	}
	if t.Calendar != nil {
		at = at.Add(t.Calendar.Grace)
	}
	return at.Add(skew)
}

// Head is what a [Table] knows of the task at any time.
func (t *Task) Head() (h Head) {
	h.End = t.End(0)
	if t.bounded {
		if begin, err := t.Precision().Begin(t.interval.Start); err == nil {
			h.Begin = begin
		}
	}
	return h
}

// TooEarly says whether a report of that time comes from the future, further than skew
// allows.
func (t *Task) TooEarly(at dap.Time, now time.Time, skew time.Duration) bool {
	latest, err := t.Precision().At(now.Add(skew))
	return err != nil || at > latest
}

// TooOld says whether a report of that time is older than age allows, which a report of
// the unit, or of the calendar's round, that was age ago is not. Age 0 allows all.
func (t *Task) TooOld(at dap.Time, now time.Time, age time.Duration) bool {
	earliest, err := t.Precision().At(now.Add(-age))
	return age > 0 && err == nil && at < t.Calendar.First(earliest)
}

// Stored is what the store must know.
func (t *Task) Stored(skew time.Duration) *store.Task {
	return &store.Task{
		ID: t.ID, Config: t.Config.Bytes(), Mode: t.Mode(), TimePrecision: t.Precision(),
		MinBatch: t.Config.MinBatchSize, VDAF: t.VDAF, End: t.End(skew), Views: t.Calendar.Spans(),
	}
}

// Set makes the working form of all tasks of a service.
func Set(tasks []aggregator.Task, role dap.Role) (*Table, error) {
	set := new(Table)
	for i := range tasks {
		t, err := New(&tasks[i], role)
		if err != nil {
			return nil, fmt.Errorf("task %d: %w", i, err)
		}
		if !set.Put(t) {
			return nil, fmt.Errorf("task %d: its id is there twice", i)
		}
	}
	return set, nil
}
