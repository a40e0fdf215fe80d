package aggregator

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// A Task is one task as it is provisioned at one aggregator. It holds secrets: do not
// print it.
type Task struct {
	// Config is the TaskConfiguration that all parties agreed on, byte for byte. Required.
	Config []byte
	// Version is the draft of DAP that they agreed on with it. The zero value is draft 18.
	Version dap.Version
	// Framing is how the other aggregator and the collector frame what they say. The zero
	// value is the draft's own framing.
	Framing dap.Framing
	// ID is the task's id. The zero value means the one that
	// [dap.TaskConfiguration.TaskID] computes.
	ID dap.TaskID
	// VerifyKeys are the VDAF verification keys that leader and helper share, by
	// verification_key_id. Required, at least one; the leader begins jobs with the lowest
	// id.
	VerifyKeys map[uint8][vdaf.VerifyKeySize]byte
	// PeerToken is the bearer token with which the leader comes to the helper. Required,
	// at least 16 bytes.
	PeerToken string
	// CollectorToken is the bearer token with which the collector comes to the leader.
	// Required at the leader, at least 16 bytes; the helper has no use for it.
	CollectorToken string
	// UploadToken is the bearer token that uploads must carry. Optional; empty lets
	// anybody upload.
	UploadToken string
	// CollectorHPKE is the key to which aggregate shares are sealed. Required.
	CollectorHPKE dap.HpkeConfig
	// Noise is what this aggregator adds to every element of a share before it releases it.
	// Required: where there is to be none, noise.Zero says so. [TaskOf] takes a recipe's.
	Noise noise.Sampler
	// Series correlates the noise over releases: Noise is then a *noise.DiscreteGaussian
	// that draws in units of 2^-k (package correlated), and the task's batches are
	// released in the order of time. Optional, for time-interval tasks; nil adds what
	// Noise draws as it is.
	Series *Series
	// Calendar says which batches may be released, and when. Required for a recipe's
	// task; nil leaves that to DAP.
	Calendar *Calendar
	// Expected is how many reports may come; batches far above it are held. Optional; the
	// zero value holds none.
	Expected Expectation
	// Rate is what the devices of a sampled recipe send, with which is compared what came.
	// Required for the task of such a recipe; nil compares nothing.
	Rate *Rate
	// Advertise has a leader send the configuration with each request about the task, so
	// that the helper can take the task from it (package taskprov). The ID is then what
	// the configuration tells.
	Advertise bool
	// Credentials say that each report shows a credential. Required for the task of a
	// recipe that counts devices; nil takes reports of whoever sends them.
	Credentials *Credentials
	// Suite is the HPKE suite that devices seal to. Optional; the zero value is what the
	// service offers first.
	Suite sealed.Suite
	// Deployment is what the recipe says of the keys that its servers sign with; nil where
	// it names none.
	Deployment *keyset.Deployment
}

// A Series says how the noise of a task's releases is correlated.
type Series struct {
	correlated.Series
	// Units is the length of a round, in units of the task's time precision; required, at
	// least 1.
	Units uint64
}

// Validate says whether such noise can be drawn for a task.
func (s *Series) Validate(cfg *dap.TaskConfiguration, n noise.Sampler) error {
	if err := s.Series.Validate(); err != nil {
		return err
	}
	_, gaussian := n.(*noise.DiscreteGaussian)
	switch {
	case s.Units < 1:
		return errors.New("a round of no time")
	case !gaussian:
		return errors.New("correlated noise is made of discrete Gaussian draws")
	case cfg.BatchMode != dap.TimeInterval:
		return errors.New("correlated noise follows the calendar, and needs time-interval batches")
	}
	return nil
}

// Dialect is how the parties of the task talk.
func (t *Task) Dialect() dap.Dialect { return dap.Dialect{Version: t.Version, Framing: t.Framing} }

// minToken is the length in bytes below which a bearer token is taken for a mistake.
const minToken = 16

// Validate checks what can be checked without the other parties.
func (t *Task) Validate(role dap.Role) error {
	if err := t.Dialect().Validate(); err != nil {
		return fmt.Errorf("aggregator: task: %w", err)
	}
	cfg, err := dap.ReadTaskConfiguration(t.Version, t.Config)
	if err != nil {
		return fmt.Errorf("aggregator: task: %w", err)
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("aggregator: task: %w", err)
	}
	if len(t.VerifyKeys) == 0 {
		return errors.New("aggregator: task: no verification key")
	}
	if len(t.PeerToken) < minToken {
		return fmt.Errorf("aggregator: task: the token between the aggregators needs %d bytes or more", minToken)
	}
	if role == dap.RoleLeader && len(t.CollectorToken) < minToken {
		return fmt.Errorf("aggregator: task: the collector's token needs %d bytes or more", minToken)
	}
	if t.UploadToken != "" && len(t.UploadToken) < minToken {
		return fmt.Errorf("aggregator: task: the upload token needs %d bytes or more", minToken)
	}
	if _, err := t.CollectorHPKE.PublicKey(); err != nil {
		return fmt.Errorf("aggregator: task: collector's HPKE config: %w", err)
	}
	if t.Advertise {
		if _, err := taskprov.Value(t.Framing, t.Config); err != nil {
			return fmt.Errorf("aggregator: task: advertise: %w", err)
		}
		if t.ID != (dap.TaskID{}) && t.ID != cfg.TaskID() {
			return errors.New("aggregator: task: advertise: its id is not what its configuration tells")
		}
	}
	if t.Noise == nil {
		return errors.New("aggregator: task: no noise is given; noise.Zero says that there is to be none")
	}
	if t.Series != nil {
		if err := t.Series.Validate(cfg, t.Noise); err != nil {
			return fmt.Errorf("aggregator: task: noise: %w", err)
		}
	}
	if t.Credentials != nil {
		if err := t.Credentials.Validate(cfg); err != nil {
			return fmt.Errorf("aggregator: task: credentials: %w", err)
		}
	}
	if t.Calendar != nil {
		if err := t.Calendar.Validate(cfg); err != nil {
			return fmt.Errorf("aggregator: task: calendar: %w", err)
		}
		if t.Calendar.Views != nil && (t.Series != nil || t.Rate != nil) {
			return errors.New("aggregator: task: views of rounds whose noise is correlated, or in which devices toss coins")
		}
		if t.Series != nil && t.Series.Units != t.Calendar.Units {
			return fmt.Errorf("aggregator: task: noise: a round of %d units, where the calendar's has %d", t.Series.Units, t.Calendar.Units)
		}
		if c := t.Credentials; c != nil && c.Units%t.Calendar.Units != 0 {
			return fmt.Errorf("aggregator: task: credentials: a round of %d units, where the calendar's has %d", c.Units, t.Calendar.Units)
		}
		// Reports carry the first unit of their round: of the units between two rounds
		// none has any to expect.
		if t.Expected.Units%t.Calendar.Units != 0 {
			return fmt.Errorf("aggregator: task: expected reports of %d units, where a round has %d: want whole rounds", t.Expected.Units, t.Calendar.Units)
		}
	}
	if t.Rate != nil {
		if err := t.Rate.Validate(); err != nil {
			return fmt.Errorf("aggregator: task: rate: %w", err)
		}
		if t.Calendar == nil || !t.Calendar.Alone {
			return errors.New("aggregator: task: rate: it is of a round, and needs a calendar by which a batch is one")
		}
	}
	return t.Expected.Validate()
}

// MinDataKeyPeriod is the least time that a data key is of: longer than any clock skew that
// reports are allowed.
const MinDataKeyPeriod = time.Hour

// DefaultRetention is how long after its end a task is kept where nothing else is
// configured.
const DefaultRetention = 30 * 24 * time.Hour

// Options are those that leader and helper share; each has more of its own.
type Options struct {
	// Base is the URL under which the service's Handler is reached; it may have a path.
	// Required.
	Base string
	// Tasks are provisioned for one life of the service, beside those that the store has.
	// At least one is required, or a Provider.
	Tasks []Task
	// Import are the tasks that stand in a configuration. A store that has no task takes
	// them over; one that has some is to have these too, as they are, or the start is
	// refused with a *[TaskError]. Optional.
	Import []Provision
	// Provide makes the tasks that were added to a running service, and are in its store,
	// again. Required where there are any.
	Provide Provider
	// Keys are HPKE keys of the operator's own. Without KeySchedule they are what clients
	// seal to, best first, and at least one is required; with it they are taken beside the
	// service's own keys and not offered, so that a service can pass from the one to the
	// other.
	Keys *sealed.Keyring
	// KeySchedule has the service make, offer and destroy HPKE keys by itself, in FS under
	// "keys". Optional. Its Delay is how long after the last upload the leader may come to
	// a helper with a job; at a leader, which knows what it has not folded, it is zero.
	KeySchedule *keyset.Schedule
	// Issuer is that of credentials, beside this aggregator. Required where reports show any.
	Issuer Issuer
	// Cohorts are what the log says of credentials, with the smallest number of which, and
	// of Issuer's, batches are compared. Optional.
	Cohorts Cohorts
	// Signing has the service vouch for its HPKE keys, in lists and manifests, for
	// recipes that name signing keys. Optional.
	Signing *keyset.Signing
	// FS holds the service's files, and no one else's: [Dir] opens one on a disk. Required.
	FS FS
	// Record holds what must not go back when FS does, say to a backup: who the store is,
	// and how many releases it has made; and the data keys, from which noise comes. It is
	// no one else's either, and lies outside of FS, on another disk where there is one.
	// Required.
	Record FS
	// Database is where several processes of one aggregator keep what they have together,
	// keys included; each has an FS and a Record of its own. Default none: what the service
	// has is in FS.
	Database *Database
	// DataKeyPeriod is how much time a data key is of; default a week, at least
	// [MinDataKeyPeriod].
	DataKeyPeriod time.Duration
	// Poll is the Retry-After of answers that are not ready, collections at a leader and
	// jobs at a helper; default 1 s.
	Poll time.Duration
	// Idle is how often workers look for work that nobody announced, such as jobs to
	// repeat; default 1 s. New work wakes them.
	Idle time.Duration
	// Retention is how long a task is kept after its interval and the clock skew allowed:
	// until then results can be asked for again. After it everything but the counts and
	// the ledger is erased, and the task takes nothing ever again. Tasks without an
	// interval are kept. Default [DefaultRetention]; negative keeps all tasks.
	Retention time.Duration
	// Absence is how far ahead of the time that the store was last seen at the clock may
	// be; beyond it no task is retired and no key ends until a person says that the clock
	// is right. Default 7 days, negative for any.
	Absence time.Duration
	// Limits bound what requests can do. Zero fields take the defaults.
	Limits Limits
	// Turn is when the aggregator verifies, where others of the process do too. Optional;
	// nil verifies whenever Limits.Workers lets it.
	Turn *Turn
	// Quota is what the aggregator may take of a machine that it shares. Optional.
	Quota Quota
	// Clock is the time; default the system's.
	Clock Clock
	// Failpoints is nil in production.
	Failpoints *Failpoints
	// Log gets one event a request and one a failed attempt; default none.
	Log *slog.Logger
	// Observe is told what happens, for metrics. Optional.
	Observe Observer
}

// Validate fills in defaults and says what is missing or cannot be.
func (o *Options) Validate() error {
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&o.Poll, time.Second}, {&o.Idle, time.Second}, {&o.Retention, DefaultRetention}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	switch {
	case len(o.Tasks) == 0 && o.Provide == nil:
		return errors.New("no task")
	case o.KeySchedule == nil && (o.Keys == nil || len(o.Keys.Keys()) == 0):
		return errors.New("no HPKE key")
	case o.FS == nil:
		return errors.New("no file system")
	case o.Record == nil:
		return errors.New("no file system for the record")
	case o.Poll < 0 || o.Idle < 0:
		return errors.New("negative duration")
	}
	if o.Database != nil {
		if err := o.Database.Validate(); err != nil {
			return err
		}
	}
	if o.KeySchedule != nil {
		if err := o.KeySchedule.Validate(); err != nil {
			return err
		}
	}
	if err := o.Quota.Validate(); err != nil {
		return err
	}
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	o.Limits = o.Limits.WithDefaults()
	return nil
}

// Limits bound what strangers and peers can make an aggregator hold or do. Zero fields
// take the defaults.
type Limits struct {
	// UploadBody is the largest upload request in bytes; default 8 MiB, or one report of
	// the largest task if that is more.
	UploadBody int64
	// UploadReports is the largest number of reports in an upload request; default 10,000.
	UploadReports int
	// JobBody is the largest request or answer between the aggregators in bytes; default
	// 64 MiB.
	JobBody int64
	// JobReports is the largest number of reports in an aggregation job; default 100,000.
	JobReports int
	// InFlight bounds the bytes of all request bodies held at one time; beyond it
	// requests get 503. Default 128 MiB.
	InFlight int64
	// Workers is how many goroutines open shares and check proofs, over all jobs; default
	// GOMAXPROCS.
	Workers int
	// Jobs is how many aggregation jobs are worked on at one time; default 2.
	Jobs int
	// Queue is how many further aggregation jobs may wait at the helper before it answers
	// 429; default 16.
	Queue int
	// BodyTimeout is how long a sender may take over a request body, by the machine's
	// clock; default 30 s.
	BodyTimeout time.Duration
	// MaxBacklog is how many acknowledged reports may wait at the leader to be verified;
	// uploads beyond it get 503. Default 5,000,000; negative: no bound.
	MaxBacklog int64
	// MinFree is how many bytes are to be left free on the disk. Below it uploads get 503,
	// below half of it jobs and collections wait, and below a quarter the store begins no
	// transaction; all go on by themselves. Default 256 MiB; negative: no bound.
	MinFree int64
	// HotTasks is how many of the store's tasks a start opens, the newest; the others are
	// opened when they are first asked for. When more are open, those are given up that nobody
	// asks for. Default 1,000; negative: none.
	HotTasks int
	// ClockSkew is how far in the future a report's time may lie, and how much later than
	// its grace a round is released; default 5 minutes.
	ClockSkew time.Duration
	// MaxAge is how old a report may be when it is uploaded, in whole units of the task,
	// or whole rounds where it has a calendar; older ones are report_dropped. It bounds
	// how many batch buckets strangers can open where a task has no interval: each
	// costs the leader a job and files of its own. Default 0, no bound.
	MaxAge time.Duration
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	defi := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defd := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.UploadBody, 8<<20)
	defi(&l.UploadReports, 10_000)
	def(&l.JobBody, 64<<20)
	defi(&l.JobReports, 100_000)
	def(&l.InFlight, 128<<20)
	def(&l.MaxBacklog, 5_000_000)
	def(&l.MinFree, 256<<20)
	defi(&l.Workers, runtime.GOMAXPROCS(0))
	defi(&l.Jobs, 2)
	defi(&l.Queue, 16)
	defi(&l.HotTasks, 1000)
	defd(&l.BodyTimeout, 30*time.Second)
	defd(&l.ClockSkew, 5*time.Minute)
	return l
}

// reportFrame is more than DAP and HPKE add to a report's shares, in bytes, in either
// suite.
const reportFrame = 8 << 10

// ForTasks fills in UploadBody, where it is zero, so that a report of each task fits one
// upload, and refuses limits under which no report of some task could ever be taken.
// Tasks that are not valid are left for whoever provisions them to refuse.
func (l Limits) ForTasks(tasks []Task) (Limits, error) {
	largest := int64(0)
	for i := range tasks {
		cfg, err := dap.ReadTaskConfiguration(tasks[i].Version, tasks[i].Config)
		if err != nil {
			continue
		}
		v, err := cfg.VDAF()
		if err != nil {
			continue
		}
		s := v.Sizes()
		largest = max(largest, int64(s.Public)+int64(s.LeaderInput)+int64(s.HelperInput))
		if most := dap.DefaultLimits().MaxCiphertext; s.LeaderInput > most {
			return l, fmt.Errorf("aggregator: a share of %d bytes for the leader, but none above %d is read: fewer entries or a smaller field",
				s.LeaderInput, most)
		}
	}
	if l.UploadBody == 0 {
		l.UploadBody = max(8<<20, largest+reportFrame)
	}
	if l.UploadBody < largest {
		return l, fmt.Errorf("aggregator: limits: UploadBody of %d bytes, but the shares of a report of a task have %d", l.UploadBody, largest)
	}
	return l, nil
}

// Validate refuses limits that no request could meet.
func (l Limits) Validate() error {
	if l.UploadBody < 0 || l.UploadReports < 0 || l.JobBody < 0 || l.JobReports < 0 || l.InFlight < 0 || l.Workers < 0 ||
		l.Jobs < 0 || l.Queue < 0 || l.BodyTimeout < 0 || l.ClockSkew < 0 || l.MaxAge < 0 {
		return errors.New("aggregator: limits: negative")
	}
	if l = l.WithDefaults(); l.InFlight < l.UploadBody || l.InFlight < l.JobBody {
		return errors.New("aggregator: limits: InFlight is smaller than one body")
	}
	return nil
}
