package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/recipe"
)

// A Gateway is the configuration of a gateway process: gateway.toml.
type Gateway struct {
	// Party is "gateway". Required.
	Party Role `toml:"role"`
	// Public is where the relay comes. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Data is the directory of what was opened and of rounds that are not done; made
	// where it is missing. Required, and used by one process at a time.
	Data service.Path `toml:"data"`
	// Record is the directory of what must not go back when Data does, as to a backup:
	// how far it has come. Best on another disk. Default: Data with ".record" behind its
	// name.
	Record service.Path `toml:"record"`
	// Epochs is a directory that the gateway looks at all the time: NAME.key beside
	// NAME.manifest, as starling manifest new makes them. A key is used from when both
	// are there until Overlap after the manifest's end, and then destroyed, its file too.
	Epochs service.Path `toml:"epochs"`
	// Admission is a directory of keys for tokens that the gateway looks at like Epochs:
	// NAME.admission, as they are made with a manifest for recipes whose devices ask for
	// tokens. A list is used until the grace of its last round is over, and then
	// destroyed, its file too. A task that ever had one counts devices in MinRound, and
	// takes nothing without a token. Optional; belongs to Epochs, and may be the same.
	Admission service.Path `toml:"admission"`
	// Mint gives devices their tokens, by the keys of Admission, whom the attester vouches
	// for. Optional.
	Mint Mint `toml:"issuer"`
	// Overlap is how long a key of Epochs outlives its manifest; default "1h", at most 30
	// days.
	Overlap service.Duration `toml:"overlap"`
	// Keys open requests from start to stop, beside those of Epochs. There must be a key,
	// here or there.
	Keys []GatewayKey `toml:"keys"`
	// Targets are whom uploads may be for. Required, at least one, unless there is an
	// Agreement: then it is the leader.
	Targets []GatewayTarget `toml:"targets"`
	// RelayToken is the token that the relay must bring. Optional; it stands for one
	// entry of Relays.
	RelayToken service.Secret `toml:"relay_token"`
	// Relays are the relays that may come, each with its limits. None lets anybody in.
	Relays []GatewayRelay `toml:"relays"`
	// Agreement is where the leader's URL and the relay's token come from that do not
	// stand here. Optional.
	Agreement Agreement `toml:"agreement"`
	// Window is the time between two ticks, at which what has come is kept and then
	// answered; default "1s".
	Window service.Duration `toml:"window"`
	// Mix is the time at whose multiples rounds go on to their target; default Window.
	Mix service.Duration `toml:"mix"`
	// MinRound is how many requests of a task must have come before any goes on; default
	// 1. A task's uploads then wait for each other, up to Hold.
	MinRound int `toml:"min_round"`
	// Hold is how long a round is kept for a target that is away, or for others to come;
	// default "24h". A manifest in Epochs that lets it hold for less is refused: the
	// aggregators' keys end then.
	Hold service.Duration `toml:"hold"`
	// MaxOpened is how many requests a key opens in its life; default 2,097,152.
	MaxOpened int `toml:"max_opened"`
	// Path is where the one resource is; default "/".
	Path string `toml:"path"`
	// Limits left out or zero take their defaults.
	Limits GatewayLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// A GatewayKey opens requests until its end.
type GatewayKey struct {
	// File holds the key. Required.
	File service.Secret `toml:"file"`
	// NotAfter ends its use. Default never.
	NotAfter time.Time `toml:"not_after"`
}

// A GatewayRelay is a relay that may come, and how often.
type GatewayRelay struct {
	// Token is what the relay brings. Required.
	Token service.Secret `toml:"token"`
	// RequestsPerTick are let in between two ticks. Default 4096.
	RequestsPerTick int `toml:"requests_per_tick"`
	// OpenedPerKey is how many of its requests one key opens. Default as many as the key
	// opens at all.
	OpenedPerKey int `toml:"opened_per_key"`
}

// A GatewayTarget is a leader, a hop or an analyzer that uploads may go to.
type GatewayTarget struct {
	// URL is the base URL by which recipes and manifests name the target. Required.
	URL string `toml:"url"`
	// Via is the base URL under which the gateway reaches it. Default url.
	Via string `toml:"via"`
	// Token is a bearer token for uploads. Optional.
	Token service.Secret `toml:"token"`
	// Takes is "reports" for a leader, and "contributions" for hop 1 or the analyzer of a
	// recipe without proofs. Default "reports".
	Takes string `toml:"takes"`
}

// The kinds that targets may take.
const (
	takesReports       = "reports"
	takesContributions = "contributions"
)

// protocol is what the gateway must know of uploads, by what its targets take.
func (c *Gateway) protocol() gateway.Protocol {
	takes := make(map[string]bool)
	for _, t := range c.Targets {
		takes[cmp.Or(t.Takes, takesReports)] = true
	}
	switch {
	case !takes[takesContributions]:
		return uploads.DAP{} // without targets it is the agreement's leader
	case !takes[takesReports]:
		return uploads.Contributions{}
	}
	return uploads.Both{}
}

// GatewayLimits are the ones of gateway.Limits, as a file has them.
type GatewayLimits struct {
	// RequestBytes is the largest encapsulated request. Default 8 MiB.
	RequestBytes int64 `toml:"request_bytes"`
	// Requests are worked on or waiting for their answer at one time. Default 8192.
	Requests int `toml:"requests"`
	// InFlightBytes bounds the bytes of all request bodies held at one time. Default 256
	// MiB.
	InFlightBytes int64 `toml:"in_flight_bytes"`
	// BodyTimeout is how long the relay may take over a request's body. Default 15s.
	BodyTimeout service.Duration `toml:"body_timeout"`
	// AnswerTimeout is how long a target may take. Default 30s.
	AnswerTimeout service.Duration `toml:"answer_timeout"`
	// Workers open requests at one time. Default as many as there are processors.
	Workers int `toml:"workers"`
	// Joined is how many uploads at most become one request to a target. Default 256.
	Joined int `toml:"joined"`
	// JoinedBytes is how many bytes of uploads at most become one request to a target.
	// Default 1 MiB.
	JoinedBytes int `toml:"joined_bytes"`
	// HeldRequests are at most in rounds that are not done, covers included. Default
	// 262,144.
	HeldRequests int `toml:"held_requests"`
	// HeldBytes are at most in rounds that are not done, on the disk. Default 1 GiB.
	HeldBytes int64 `toml:"held_bytes"`
	// MinFree is how many bytes are to be left free on the disk; below it everybody is
	// refused. Default 256 MiB; negative: no bound.
	MinFree int64 `toml:"min_free"`
}

func (l GatewayLimits) limits() gateway.Limits {
	return gateway.Limits{Body: l.RequestBytes, Requests: l.Requests, InFlight: l.InFlightBytes, BodyTimeout: time.Duration(l.BodyTimeout),
		AnswerTimeout: time.Duration(l.AnswerTimeout), Workers: l.Workers, Joined: l.Joined, JoinedBytes: l.JoinedBytes,
		Held: l.HeldRequests, HeldBytes: l.HeldBytes, MinFree: l.MinFree}
}

// LoadGateway reads and validates gateway.toml, and none of the files that it names:
// [Gateway.Check] does.
func LoadGateway(path string) (*Gateway, error) {
	c := &Gateway{}
	if err := loadAs(path, GatewayRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Gateway) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	window := cmp.Or(time.Duration(c.Window), gateway.DefaultWindow)
	hold := cmp.Or(time.Duration(c.Hold), gateway.DefaultHold)
	f.If(c.Data == "", "data: the directory of rounds is required")
	f.If(c.Data != "" && !apart(c.Data, c.Record), "%w", errRecord)
	f.If(len(c.Keys) == 0 && c.Epochs == "", "epochs: a directory of keys is required, or one in keys")
	f.If(c.Overlap < 0 || time.Duration(c.Overlap) > gateway.MaxOverlap, "overlap: from 0 to %v", gateway.MaxOverlap)
	f.If(c.Overlap != 0 && c.Epochs == "", "overlap: belongs to epochs")
	f.If(c.Admission != "" && c.Epochs == "", "admission: belongs to epochs")
	f.Add("issuer.", c.validateMint())
	f.If(len(c.Targets) == 0 && !c.Agreement.used(), "targets: at least one is required")
	f.If(window < gateway.MinWindow || window > gateway.MaxWindow, "window: from %v to %v", gateway.MinWindow, gateway.MaxWindow)
	f.If(hold < window || hold > gateway.MaxHold, "hold: from the window to %v", gateway.MaxHold)
	f.If(c.Mix != 0 && (time.Duration(c.Mix) < window || time.Duration(c.Mix) > hold), "mix: from the window to hold")
	f.If(c.MinRound < 0 || c.MinRound > c.Limits.limits().WithDefaults().Held, "min_round: negative, or more than limits.held_requests")
	f.If(c.RelayToken != "" && len(c.Relays) > 0, "relay_token: stands for an entry of relays; name it there")
	f.If(c.MaxOpened < 0, "max_opened: negative")
	f.If(c.Path != "" && c.Path[0] != '/', "path: must begin with a slash")
	f.Add("", c.Agreement.validate())
	for i, k := range c.Keys {
		f.If(k.File == "", "keys[%d].file: required", i)
	}
	for i, r := range c.Relays {
		f.If(r.Token == "", "relays[%d].token: required", i)
		f.Add(fmt.Sprintf("relays[%d].", i), negatives(r).All())
	}
	named := make(map[string]bool)
	for i, t := range c.Targets {
		_, err := endpoint.Parse(t.URL)
		f.Add(fmt.Sprintf("targets[%d].url: ", i), err)
		f.If(named[t.URL], "targets[%d].url: %s stands twice", i, t.URL)
		named[t.URL] = true
		f.If(!slices.Contains([]string{"", takesReports, takesContributions}, t.Takes), "targets[%d].takes: %q, want %q or %q", i, t.Takes, takesReports, takesContributions)
		if via := cmp.Or(t.Via, t.URL); err == nil || t.Via != "" {
			f.Add(fmt.Sprintf("targets[%d].via: ", i), endpoint.CheckPeer(via))
		}
	}
	if low := negatives(c.Limits, "min_free"); low != nil {
		f.Add("limits.", low)
	} else {
		f.Add("limits: ", c.Limits.limits().Validate())
	}
	return f.All()
}

// epochs is the directory of keys, or nil.
func (c *Gateway) epochs() *gateway.Epochs {
	if c.Epochs == "" {
		return nil
	}
	e := &gateway.Epochs{Dir: string(c.Epochs), Admission: string(c.Admission), Overlap: time.Duration(c.Overlap), Hold: time.Duration(c.Hold),
		Read: func(path string) ([]byte, error) { return service.Secret(path).Read() }}
	if e.Overlap == 0 {
		e.Overlap = gateway.DefaultOverlap
	}
	if e.Hold == 0 {
		e.Hold = gateway.DefaultHold
	}
	return e
}

// options reads the files that the configuration names, but for the directories of its
// own, and says all that is wrong with them.
func (c *Gateway) options() (gateway.Options, error) {
	o := gateway.Options{Window: time.Duration(c.Window), Mix: time.Duration(c.Mix), MinRound: c.MinRound, Hold: time.Duration(c.Hold),
		MaxOpened: c.MaxOpened, Path: c.Path, Limits: c.Limits.limits()}
	var f Faults
	var err error
	o.Keys, err = c.readKeys()
	f.Add("", err)
	if e := c.epochs(); e != nil {
		o.Admission, err = e.AdmissionKeys(time.Now())
		f.Add("", err)
	}
	o.Targets, err = c.readTargets()
	f.Add("", err)
	o.Relays, err = c.readRelays()
	f.Add("", err)
	if c.Agreement.used() {
		f.Add("", c.agreed(&o))
	}
	return o, f.All()
}

// readKeys reads the keys of the directory, the newest first, and then those that stand in
// the configuration.
func (c *Gateway) readKeys() (keys []gateway.Key, err error) {
	var f Faults
	ids := make(map[uint8]bool)
	for i, k := range c.Keys {
		if k.File == "" {
			continue // was told when the configuration was read
		}
		pair, err := readKeyPair(k.File)
		if err != nil {
			f.Add(fmt.Sprintf("keys[%d]: ", i), err)
			continue
		}
		f.If(ids[pair.ID()], "keys[%d]: id %d stands twice", i, pair.ID())
		ids[pair.ID()] = true
		keys = append(keys, gateway.Key{Pair: pair, NotAfter: k.NotAfter, Note: string(k.File) + gateway.NoteSuffix})
	}
	if e := c.epochs(); e != nil {
		dated, err := e.Keys(time.Now())
		f.Add("", err)
		for _, k := range dated {
			f.If(ids[k.Pair.ID()], "epochs: a key has the id %d, as one in keys", k.Pair.ID())
		}
		keys = append(dated, keys...)
		f.If(err == nil && len(keys) == 0 && len(c.Keys) == 0, "epochs: no key whose time is not over; starling manifest new makes one with its manifest")
	}
	return keys, f.All()
}

// readTargets reads the leaders that the configuration names.
func (c *Gateway) readTargets() (targets []gateway.Target, err error) {
	var f Faults
	for i, t := range c.Targets {
		target := gateway.Target{URL: t.URL, Via: t.Via}
		if t.Token != "" {
			target.Token, err = t.Token.Text()
			f.Add(fmt.Sprintf("targets[%d].token: ", i), err)
		}
		targets = append(targets, target)
	}
	return targets, f.All()
}

// readRelays reads the relays that the configuration names.
func (c *Gateway) readRelays() (relays []gateway.Relay, err error) {
	named, place := c.Relays, func(i int) string { return fmt.Sprintf("relays[%d].token", i) }
	if c.RelayToken != "" {
		named, place = []GatewayRelay{{Token: c.RelayToken}}, func(int) string { return "relay_token" }
	}
	var f Faults
	first := make(map[string]int)
	for i, r := range named {
		if r.Token == "" {
			continue // was told when the configuration was read
		}
		token, err := r.Token.Text()
		if err != nil {
			f.Add(place(i)+": ", err)
			continue
		}
		f.If(len(token) < gateway.MinToken, "%s: %s has %d bytes, want %d or more; starling key token makes one", place(i), r.Token, len(token), gateway.MinToken)
		if other, twice := first[token]; twice {
			f.If(true, "%s: it is that of relays[%d]", place(i), other)
		}
		first[token] = i
		relays = append(relays, gateway.Relay{Token: token, PerTick: r.RequestsPerTick, PerKey: r.OpenedPerKey})
	}
	return relays, f.All()
}

// agreed gives the gateway the leader and the relay of its agreement, where the
// configuration names none.
func (c *Gateway) agreed(o *gateway.Options) error {
	var f Faults
	leader, err := c.Agreement.invited(LeaderRole)
	f.Add("", err)
	if err == nil {
		if len(o.Targets) == 0 {
			o.Targets = []gateway.Target{{URL: leader.URL}}
		}
		o.Transport, err = onward(leader)
		f.Add("", err)
	}
	if c.RelayToken == "" && len(c.Relays) == 0 {
		s, _, err := c.Agreement.with(GatewayRole, RelayRole)
		f.Add("", err)
		if err == nil {
			token, err := s.Token(dap.TaskID{})
			f.Add("", err)
			o.Relays = []gateway.Relay{{Token: token}}
		}
	}
	return f.All()
}

// Check reads every file that the configuration names, as starting would, and opens no
// directory or listener.
func (c *Gateway) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, err := c.options()
	f.Add("", err)
	_, err = c.minting()
	f.Add("issuer.", err)
	return f.All()
}

// Parts returns the gateway as components for [service.Run], in order: the gateway with
// its directory, then the local listener, then the public one. Stopped in reverse, the
// last round is kept and answered before the directory closes.
func (c *Gateway) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "gateway"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[gateway.Gateway]
	var minting atomic.Pointer[mint.Mint] // nil where no tokens are given out
	metrics.Counts("starling_gateway_token_orders_total", "Orders of the attester for a device's tokens, by what became of them.",
		service.Label{Name: "outcome", Values: mint.Outcomes(), Only: true}, func(word string) float64 {
			if x := minting.Load(); x != nil {
				return float64(x.Outcome(word))
			}
			return 0
		})
	orders := strings.TrimRight(c.Path, "/")
	errStopped := errors.New("not started")
	connections := metrics.Connections("public")
	ready := func() service.Readiness {
		g := running.Load()
		if g == nil {
			return service.Unready(service.ReasonStopping, errStopped)
		}
		r := readiness(g.Levels())
		r.Take.Because(service.ReasonConnections, connections.Full())
		return r
	}
	metrics.ReadinessGauge(ready, "take", "release")
	gatewayGauges(metrics, c.Limits.limits().WithDefaults(), func() (l gateway.Levels, open bool) {
		g := running.Load()
		if g == nil {
			return l, false
		}
		return g.Levels(), true
	})
	observe := gatewayObserver(metrics, c.protocol())
	public := service.Server{
		Name: "gateway public listener", Listen: c.Public, Log: log, Open: open.Public,
		Handler: service.Measure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch g, x := running.Load(), minting.Load(); {
			case g == nil:
				gateway.NotStarted(w, r)
			case x != nil && isOrder(r, orders):
				x.ServeHTTP(w, r)
			default:
				g.ServeHTTP(w, r)
			}
		}), log, metrics, "", nil),
		Connections: connections, Label: "public",
		Busy: gateway.Busy,
	}.Part()
	serve := public.Run
	public.Run = func(ctx context.Context, ready func()) error {
		// Requests that wait for a round are answered while the listener drains, and not
		// cut off at its end.
		defer context.AfterFunc(ctx, func() {
			if g := running.Load(); g != nil {
				g.Drain()
			}
		})()
		return serve(ctx, ready)
	}
	return []service.Part{
		{Name: "gateway", Run: func(ctx context.Context, ready func()) error {
			o, err := c.open(log, observe)
			if err != nil {
				return err
			}
			g := o.gateway
			minting.Store(o.mint)
			running.Store(g)
			ready()
			var watching sync.WaitGroup
			if o.mint != nil {
				watching.Go(func() { forgets(ctx, o.mint.Forget, o.recipe, log) })
			}
			if e := c.epochs(); e != nil {
				watching.Go(func() { e.Watch(ctx, g, o.fixed) })
			}
			err = g.Run(ctx)
			watching.Wait()
			return errors.Join(err, o.close())
		}},
		service.Local{
			Name: "gateway local listener", Address: c.Local.Address, Metrics: metrics, Log: log, Open: open.Local,
			Health: service.Health{
				Ready: ready,
				Status: func(context.Context) (any, error) {
					if g := running.Load(); g != nil {
						return gatewayStatus(g, minting.Load()), nil
					}
					return nil, errStopped
				},
			},
		}.Part(),
		public,
	}
}

// An openedGateway has its directories open.
type openedGateway struct {
	gateway *gateway.Gateway
	fixed   []gateway.Key // that it always has, beside those of the epochs
	mint    *mint.Mint    // nil where no tokens are given out
	recipe  *recipe.Recipe
	files   *files
}

// close closes all of it. Nothing may be under way.
func (o *openedGateway) close() error {
	var err error
	if o.mint != nil {
		err = o.mint.Close()
	}
	return errors.Join(err, o.gateway.Close(), o.files.Close())
}

// open opens the gateway with its directories.
func (c *Gateway) open(log *slog.Logger, observe gateway.Observer) (*openedGateway, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	f, err := openFiles(c.Data, c.Record)
	if err != nil {
		return nil, err
	}
	o.FS, o.Record, o.Protocol, o.Log, o.Observe, o.Known = f.data, f.record, c.protocol(), log, observe, service.Known
	opened := &openedGateway{fixed: o.Keys[len(o.Keys)-len(c.Keys):], files: f}
	if opened.gateway, err = gateway.New(o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if opened.mint, opened.recipe, err = c.openMint(opened.gateway, f.data, log); err != nil {
		return nil, errors.Join(err, opened.gateway.Close(), f.Close())
	}
	return opened, nil
}

// readiness is what a gateway can do: take requests, and pass on what it has
// acknowledged.
func readiness(l gateway.Levels) service.Readiness {
	r := service.Ready(false)
	if l.Store != nil {
		r.Take.Because(service.ReasonStore, l.Store)
		r.Release.Because(service.ReasonStore, l.Store)
		return r
	}
	r.Take.Because(service.ReasonKeys, l.Keys)
	r.Take.Because(service.ReasonDisk, l.Disk)
	r.Take.Because(service.ReasonBacklog, l.Backlog)
	r.Release.Because(service.ReasonPeer, l.Target)
	return r
}

// gatewayObserver registers what a gateway counts, and returns what feeds it.
func gatewayObserver(m *service.Metrics, protocol gateway.Protocol) gateway.Observer {
	refused := m.Counter("starling_gateway_refused_total", "Requests that were refused, or answered as all others and dropped.",
		service.Label{Name: "reason", Values: gateway.Refusals()})
	outcomes := m.Counter("starling_gateway_uploads_total", "Acknowledged uploads by what became of them.",
		service.Label{Name: "outcome", Values: gateway.Outcomes(protocol)})
	admitted := m.Counter("starling_gateway_admission_total", "Requests for tasks that ask for tokens: a device's first of a round, one that came again, one without a token that holds.",
		service.Label{Name: "outcome", Values: gateway.Admissions()})
	return gateway.Observer{
		Admission: func(word string) { admitted.Add(1, word) },
		Refused:   func(reason string) { refused.Add(1, reason) },
		Uploads:   func(outcome string, n uint64) { outcomes.Add(n, outcome) },
	}
}

// gatewayGauges registers how full a gateway is. Before it is open all are 0.
func gatewayGauges(m *service.Metrics, limits gateway.Limits, read func() (gateway.Levels, bool)) {
	gauge := func(name, help string, value func(l gateway.Levels) float64) {
		m.Gauge(name, help, func() float64 {
			l, open := read()
			if !open {
				return 0
			}
			return value(l)
		})
	}
	gauge("starling_disk_free_bytes", "Room on the disk of the data directory; below 0: not known.",
		func(l gateway.Levels) float64 { return float64(l.DiskFree) })
	m.Gauge("starling_disk_min_free_bytes", "Room below which uploads are refused.", func() float64 { return float64(max(0, limits.MinFree)) })
	gauge("starling_gateway_held_requests", "Requests of rounds that are not done.", func(l gateway.Levels) float64 { return float64(l.Held) })
	m.Gauge("starling_gateway_held_max_requests", "Requests that may be held; then all are refused.", func() float64 { return float64(limits.Held) })
	gauge("starling_gateway_oldest_seconds", "How long the oldest round has been held.", func(l gateway.Levels) float64 { return l.Oldest.Seconds() })
	gauge("starling_gateway_keys", "Keys that devices may use.", func(l gateway.Levels) float64 { return float64(l.Usable) })
}
