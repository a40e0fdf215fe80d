package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
)

// A TransparencyLog is the configuration of a transparency log: log.toml.
type TransparencyLog struct {
	// Party is "log". Required.
	Party Role `toml:"role"`
	// Public is where everybody comes. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of the entries; made where it is missing. Required, and used by
	// one process at a time.
	Data service.Path `toml:"data"`
	// Record is the directory of what must not go back when Data does, as to a backup:
	// the last checkpoint that was shown. Best on another disk. Default: Data with
	// ".record" behind its name.
	Record service.Path `toml:"record"`
	// Key is the file of the key that signs checkpoints, of starling log key. Required.
	Key service.Secret `toml:"key"`
	// Policy is the file that devices have: the log's key, the witnesses with their
	// addresses, and which of them must sign. Required.
	Policy service.Path `toml:"policy"`
	// Anchors is the file of the owners who may have something logged. Required.
	Anchors service.Path `toml:"anchors"`
	// Interval is the least time between two checkpoints. Default "5s".
	Interval service.Duration `toml:"interval"`
	// Republish is after how long a checkpoint is signed again though nothing is new.
	// Default "1h".
	Republish service.Duration `toml:"republish"`
	// Period is that in which the same entries hold: a withdrawal reaches devices with the
	// next one. Default "1h".
	Period service.Duration `toml:"period"`
	// Ahead is how long before its time an entry is handed out. Default "48h".
	Ahead service.Duration `toml:"ahead"`
	// Limits left out or zero take their defaults.
	Limits LogLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// LogLimits are the ones of logserver.Limits, as a file has them.
type LogLimits struct {
	// Entries are how many the log takes in its life. Default 262,144.
	Entries int `toml:"entries"`
	// Bytes are how long all entries may be together. Default 1 GiB, and no more.
	Bytes int64 `toml:"bytes"`
	// EntriesPerHour are taken at most, from all owners, half of them from one. Default 600.
	EntriesPerHour int `toml:"entries_per_hour"`
	// Requests to add an entry are worked on at one time. Default 16.
	Requests int `toml:"requests"`
}

func (l LogLimits) limits() logserver.Limits {
	return logserver.Limits{Entries: l.Entries, Bytes: l.Bytes, PerHour: l.EntriesPerHour, Requests: l.Requests}
}

// LoadLog reads and validates log.toml, and none of the files that it names:
// [TransparencyLog.Check] does.
func LoadLog(path string) (*TransparencyLog, error) {
	c := &TransparencyLog{}
	if err := loadAs(path, LogRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *TransparencyLog) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	f.If(c.Data == "", "data: the directory of the entries is required")
	f.If(c.Data != "" && !apart(c.Data, c.Record), "%w", errRecord)
	f.If(c.Key == "", "key: required; starling log key makes one")
	f.If(c.Policy == "", "policy: required: the file that devices have, with the log, its witnesses and the quorum")
	f.If(c.Anchors == "", "anchors: required: the owners who may have something logged")
	if low := negatives(c.Limits); low != nil {
		f.Add("limits.", low)
	} else {
		f.Add("limits: ", c.Limits.limits().Validate())
	}
	return f.All()
}

// options reads the files that the configuration names, but for the directories of its
// own, and says all that is wrong with them.
func (c *TransparencyLog) options() (logserver.Options, error) {
	o := logserver.Options{Interval: time.Duration(c.Interval), Republish: time.Duration(c.Republish), Period: time.Duration(c.Period),
		Ahead: time.Duration(c.Ahead), Limits: c.Limits.limits()}
	var f Faults
	keys, err := ReadLogSecrets(c.Key)
	f.Add("key: ", err)
	if err == nil {
		f.If(len(keys) > 1 || keys[0].Key().Scheme() != tlog.Ed25519, "key: %s is a witness's; starling log key makes a log's", c.Key)
		o.Key = keys[0]
	}
	o.Policy, err = ReadPolicy(string(c.Policy))
	f.Add("policy: ", err)
	if o.Policy != nil && o.Key != nil {
		f.Add("policy: ", logserver.CheckPolicy(o.Policy, o.Key.Key()))
	}
	anchors, err := ReadAnchors(string(c.Anchors))
	f.Add("anchors: ", err)
	o.Judge = logged.Judge{Anchors: anchors}.Claim
	if all := f.All(); all != nil {
		return o, all
	}
	// The rest is checked with directories that are not there yet.
	check := o
	check.FS, check.Record = new(disk.OSFS), new(disk.OSFS)
	return o, check.Validate()
}

// ReadLogSecrets reads the key file of a log or a witness.
func ReadLogSecrets(file service.Secret) ([]*tlog.Secret, error) {
	b, err := file.Read()
	if err != nil {
		return nil, err
	}
	keys, err := tlog.ParseSecrets(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

// ReadPolicy reads a policy file.
func ReadPolicy(path string) (*tlog.Policy, error) {
	b, err := readFile(path, tlog.MaxPolicy)
	if err != nil {
		return nil, err
	}
	p, err := tlog.ReadPolicy(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *TransparencyLog) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, err := c.options()
	f.Add("", err)
	return f.All()
}

// Parts returns the log as components for [service.Run], in order: the log with its
// directories, then the local listener, then the public one.
func (c *TransparencyLog) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "log"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[logserver.Server]
	ready := func() service.Readiness {
		s := running.Load()
		if s == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		r := service.Ready(false)
		take, show := s.Trouble()
		r.Take.Because(service.ReasonStore, take)
		r.Release.Because(service.ReasonPeer, show)
		return r
	}
	read := func(value func(s *logserver.Status) float64) func() float64 {
		return func() float64 {
			if s := running.Load(); s != nil {
				return value(s.Status())
			}
			return 0
		}
	}
	metrics.Counts("starling_log_entries_sent_total", "Entries that were sent, by what became of them.",
		service.Label{Name: "outcome", Values: logserver.Outcomes(), Only: true}, func(word string) float64 {
			if s := running.Load(); s != nil {
				return float64(s.Outcome(word))
			}
			return 0
		})
	metrics.Gauge("starling_log_entries", "Entries of the log.", read(func(s *logserver.Status) float64 { return float64(s.Entries) }))
	metrics.Gauge("starling_log_shown_entries", "Entries that enough witnesses have signed.", read(func(s *logserver.Status) float64 { return float64(s.Shown) }))
	metrics.Gauge("starling_log_shown_age_seconds", "How long ago the checkpoint that is shown was signed; above a day devices take no more part.",
		read(func(s *logserver.Status) float64 {
			if s.ShownAt.IsZero() {
				return 0
			}
			return s.Now.Sub(s.ShownAt).Seconds()
		}))
	return publicParty("log", c.Public, c.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error {
			o, err := c.options()
			if err != nil {
				return err
			}
			f, err := openFiles(c.Data, c.Record)
			if err != nil {
				return err
			}
			o.FS, o.Record, o.Log = f.data, f.record, log
			s, err := logserver.New(o)
			if err != nil {
				return errors.Join(err, f.Close())
			}
			running.Store(s)
			ready()
			return errors.Join(s.Run(ctx), s.Close(), f.Close())
		},
		func() http.Handler {
			if s := running.Load(); s != nil {
				return s
			}
			return nil
		},
		func() any {
			if s := running.Load(); s != nil {
				return s.Status()
			}
			return nil
		})
}

// publicParty are the parts of a party with one public listener, around its work.
func publicParty(name string, public service.Listen, local Local, log *slog.Logger, open Listeners, metrics *service.Metrics, ready func() service.Readiness,
	work func(context.Context, func()) error, handler func() http.Handler, status func() any, extra ...http.Handler) []service.Part {
	var more http.Handler // at the local listener
	if len(extra) > 0 {
		more = extra[0]
	}
	connections := metrics.Connections("public")
	able := func() service.Readiness {
		r := ready()
		r.Take.Because(service.ReasonConnections, connections.Full())
		return r
	}
	metrics.ReadinessGauge(able, "take", "release")
	return []service.Part{
		{Name: name, Run: work},
		service.Local{
			Name: name + " local listener", Address: local.Address, Metrics: metrics, Log: log, Open: open.Local, Extra: more,
			Health: service.Health{Ready: able, Status: func(context.Context) (any, error) {
				if s := status(); s != nil {
					return s, nil
				}
				return nil, errNotStarted
			}},
		}.Part(),
		service.Server{
			Name: name + " public listener", Listen: public, Log: log, Open: open.Public, Connections: connections, Label: "public",
			Handler: service.Measure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if h := handler(); h != nil {
					h.ServeHTTP(w, r)
					return
				}
				http.Error(w, "not started", http.StatusServiceUnavailable)
			}), log, metrics, "", nil),
		}.Part(),
	}
}

// A Witness is the configuration of a witness of transparency logs: witness.toml.
type Witness struct {
	// Party is "witness". Required.
	Party Role `toml:"role"`
	// Public is where logs come. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of what was signed, which must never be put back to an older
	// copy; made where it is missing. Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Key is the file of the keys that sign, of starling log key --witness. Required.
	Key service.Secret `toml:"key"`
	// Logs are the keys of the logs that are followed, as their policies have them.
	// Required.
	Logs []string `toml:"logs"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// LoadWitness reads and validates witness.toml, and none of the files that it names:
// [Witness.Check] does.
func LoadWitness(path string) (*Witness, error) {
	c := &Witness{}
	if err := loadAs(path, WitnessRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Witness) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	f.If(c.Data == "", "data: the directory of what was signed is required")
	f.If(c.Key == "", "key: required; starling log key --witness makes one")
	f.If(len(c.Logs) == 0, "logs: at least one key of a log is required, as its policy has it")
	_, err := c.follows()
	f.Add("", err)
	return f.All()
}

// follows reads the keys of the logs.
func (c *Witness) follows() (keys []*tlog.Key, err error) {
	var f Faults
	seen := make(map[string]bool)
	for i, text := range c.Logs {
		k, err := tlog.ParseKey(text)
		if err != nil {
			f.Add(fmt.Sprintf("logs[%d]: ", i), err)
			continue
		}
		f.If(k.Scheme() != tlog.Ed25519, "logs[%d]: %s is a witness's key", i, k.Name())
		f.If(seen[text], "logs[%d]: the key of %s stands twice", i, k.Name())
		seen[text] = true
		keys = append(keys, k)
	}
	return keys, f.All()
}

// options reads the files that the configuration names.
func (c *Witness) options() (o witness.Options, err error) {
	var f Faults
	o.Keys, err = ReadLogSecrets(c.Key)
	f.Add("key: ", err)
	for _, k := range o.Keys {
		f.If(k.Key().Scheme() == tlog.Ed25519, "key: %s is a log's; starling log key --witness makes a witness's", c.Key)
	}
	o.Logs, _ = c.follows() // what is wrong was told when the configuration was read
	return o, f.All()
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Witness) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, err := c.options()
	f.Add("", err)
	return f.All()
}

// Parts returns the witness as components for [service.Run], in order: the witness with
// its directory, then the local listener, then the public one.
func (c *Witness) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "witness"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[witness.Witness]
	ready := func() service.Readiness {
		w := running.Load()
		if w == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		r := service.Ready(false)
		r.Take.Because(service.ReasonStore, w.Trouble())
		return r
	}
	metrics.Counts("starling_witness_checkpoints_total", "Checkpoints that logs sent, by what became of them.",
		service.Label{Name: "outcome", Values: witness.Outcomes(), Only: true}, func(word string) float64 {
			if w := running.Load(); w != nil {
				return float64(w.Outcome(word))
			}
			return 0
		})
	return publicParty("witness", c.Public, c.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error {
			o, err := c.options()
			if err != nil {
				return err
			}
			fsys, err := locked("data", string(c.Data))
			if err != nil {
				return err
			}
			o.FS, o.Log = fsys, log
			w, err := witness.New(o)
			if err != nil {
				return errors.Join(err, fsys.Close())
			}
			running.Store(w)
			ready()
			<-ctx.Done()
			return fsys.Close()
		},
		func() http.Handler {
			if w := running.Load(); w != nil {
				return w
			}
			return nil
		},
		func() any {
			if w := running.Load(); w != nil {
				return w.Status()
			}
			return nil
		})
}
