package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// An Attester is the configuration of who vouches for devices: attester.toml.
type Attester struct {
	// Party is "attester". Required.
	Party Role `toml:"role"`
	// Public is where devices come. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of which devices there are and when they visited; made where it
	// is missing. Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Recipe is a recipe of the deployment, which names the attester's root key. Required.
	Recipe service.Path `toml:"recipe"`
	// Manifests is a directory of the epochs' manifests, NAME.manifest; it is looked at all the
	// time. Required.
	Manifests service.Path `toml:"manifests"`
	// Codes is the file of the hashes of the codes that devices enrol with, of starling
	// attester codes. Required.
	Codes service.Path `toml:"codes"`
	// Key is the file of the online key that signs orders. Required.
	Key service.Secret `toml:"key"`
	// Delegation is the word of the attester's root for it. Required.
	Delegation service.Path `toml:"delegation"`
	// Devices are known at most. Default 10,000,000.
	Devices int `toml:"devices"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// LoadAttester reads and validates attester.toml, and none of the files that it names:
// [Attester.Check] does.
func LoadAttester(path string) (*Attester, error) {
	c := &Attester{}
	if err := loadAs(path, AttesterRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Attester) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	f.If(c.Data == "", "data: the directory of devices is required")
	f.If(c.Recipe == "", "recipe: required: one of the deployment, which names the attester")
	f.If(c.Manifests == "", "manifests: a directory is required, with the manifests that leader, helper and gateway have signed")
	f.If(c.Codes == "", "codes: required; starling attester codes makes them")
	f.If(c.Key == "" || c.Delegation == "", "key, delegation: required; starling key online makes both")
	f.If(c.Devices < 0, "devices: negative")
	return f.All()
}

func (c *Attester) shown() (service.Listen, Agreement, string) { return c.Public, Agreement{}, "" }

// maxCodes bounds a file of codes, in bytes.
const maxCodes = 128 << 20

// options reads the files that the configuration names, but for the directory of its own.
func (c *Attester) options(log *slog.Logger) (o attester.Options, r *recipe.Recipe, err error) {
	if c.Recipe == "" || c.Codes == "" || c.Key == "" || c.Delegation == "" {
		return o, nil, nil // was told when the configuration was read
	}
	var f Faults
	checked, err := OpenRecipe(string(c.Recipe))
	if err != nil {
		f.Add("", err)
	} else if r = checked.Recipe(); r.Tokens == nil {
		f.If(true, "recipe: it counts no devices")
	}
	o.Signer, err = ReadSigner(c.Key, string(c.Delegation))
	f.Add("", err)
	b, err := readFile(string(c.Codes), maxCodes)
	if err == nil {
		o.Attestation, err = attester.ReadCodes(b)
	}
	f.Add("codes: ", err)
	if all := f.All(); all != nil {
		return o, nil, all
	}
	f.If(o.Signer.Root() != r.Tokens.Key, "delegation: it is of the root %s, and the recipe's attester is %s", o.Signer.Root(), r.Tokens.Key)
	manifests, err := manifestsOf(c.Manifests, r, log)
	f.Add("recipe: ", err)
	if all := f.All(); all != nil {
		return o, nil, all
	}
	path := r.Path.(recipe.TwoServer) // or it had no deployment
	o.Deployment, o.Devices, o.Log = manifests.deployment, c.Devices, log
	o.Leader, o.Helper = strings.TrimRight(path.Leader, "/")+"/"+IssuerPath, strings.TrimRight(path.Helper, "/")+"/"+IssuerPath
	o.Terms = func(epoch uint32) (t attester.Terms, ok bool) {
		m := manifests.of(epoch)
		if m == nil || m.Issuers.Attester != o.Signer.Root() {
			return t, false
		}
		return attester.Terms{Begin: m.NotBefore, Cap: m.Issuers.Cap}, true
	}
	return o, r, nil
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Attester) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, _, err := c.options(slog.New(slog.DiscardHandler))
	f.Add("", err)
	return f.All()
}

// An AttesterStatus is what an attester says of itself: of no device.
type AttesterStatus struct {
	Now      time.Time         `json:"now"`
	Devices  int               `json:"devices"`
	Outcomes map[string]uint64 `json:"outcomes"`
}

// Parts returns the attester as components for [service.Run], in order: the attester with its
// directory, then the local listener, then the public one.
func (c *Attester) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "attester"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[attester.Attester]
	ready := func() service.Readiness {
		if running.Load() == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		return service.Ready(false)
	}
	metrics.Counts("starling_attester_requests_total", "Requests of devices, by what became of them.",
		service.Label{Name: "outcome", Values: attester.Outcomes(), Only: true}, func(word string) float64 {
			if a := running.Load(); a != nil {
				return float64(a.Outcome(word))
			}
			return 0
		})
	metrics.Gauge("starling_attester_devices", "Devices that are known.", func() float64 {
		if a := running.Load(); a != nil {
			return float64(a.Devices())
		}
		return 0
	})
	return publicParty("attester", c.Public, c.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error {
			o, r, err := c.options(log)
			if err != nil {
				return err
			}
			fsys, err := locked("data", string(c.Data))
			if err != nil {
				return err
			}
			o.FS = fsys
			a, err := attester.New(o)
			if err != nil {
				return errors.Join(err, fsys.Close())
			}
			running.Store(a)
			ready()
			forgets(ctx, a, r, log)
			running.Store(nil)
			return errors.Join(a.Close(), fsys.Close())
		},
		func() http.Handler {
			if a := running.Load(); a != nil {
				return a
			}
			return nil
		},
		func() any {
			a := running.Load()
			if a == nil {
				return nil
			}
			s := &AttesterStatus{Now: time.Now().UTC(), Devices: a.Devices(), Outcomes: make(map[string]uint64)}
			for _, word := range attester.Outcomes() {
				if n := a.Outcome(word); n > 0 {
					s.Outcomes[word] = n
				}
			}
			return s
		},
		status.Operated("", func(w http.ResponseWriter, r *http.Request) error {
			a := running.Load()
			if r.URL.Path != CohortPath || a == nil {
				return &status.BadRequest{Err: errors.New("nothing of that name, or not started")}
			}
			return answerCohort(w, r, "attester", a.Deployment(), a.Owner(), a.Count)
		}))
}

// forgets drops the visits of epochs that are over, now and then, until ctx ends.
func forgets(ctx context.Context, a *attester.Attester, r *recipe.Recipe, log *slog.Logger) {
	for t := time.NewTicker(retireEvery); ; {
		if over := time.Now().Unix()/int64(r.ServerKeys.EpochLength) - 2; over >= 0 {
			if err := a.Forget(uint32(over)); err != nil {
				log.Error("visits of epochs that are over were not dropped", "error", fmt.Errorf("attester: %w", err))
			}
		}
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}
