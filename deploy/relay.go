package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// A Relay is the configuration of a relay process: relay.toml.
type Relay struct {
	// Party is "relay". Required.
	Party Role `toml:"role"`
	// Public is where devices come. Required.
	Public service.Listen `toml:"public"`
	// Local is where the operator looks. Required.
	Local Local `toml:"local"`
	// Gateway is the URL of the one gateway. Required, unless there is an Agreement;
	// https unless it stays on this machine.
	Gateway string `toml:"gateway"`
	// GatewayToken is the token that the gateway knows this relay by. Optional.
	GatewayToken service.Secret `toml:"gateway_token"`
	// Agreement is where the gateway's URL and token come from that do not stand here.
	// Optional.
	Agreement Agreement `toml:"agreement"`
	// Path is where requests are sent to; default "/".
	Path string `toml:"path"`
	// TransparencyLog is the URL of the log whose bundle devices fetch from this relay, at
	// bundle below Path, so that the log sees none of them. Optional; https unless it stays
	// on this machine.
	TransparencyLog string `toml:"transparency_log"`
	// TransparencyLogEvery is how often the relay fetches the bundle, whoever asks for it.
	// Default "1m".
	TransparencyLogEvery service.Duration `toml:"transparency_log_every"`
	// Trainings are those whose models devices fetch from this relay, below training/ and
	// Path, so that the controllers see none of them. Optional.
	Trainings []RelayTraining `toml:"trainings"`
	// Limits left out or zero take their defaults.
	Limits RelayLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
}

// A RelayTraining is one training that a relay hands out.
type RelayTraining struct {
	// Controller is the URL of its controller. Required; https unless it stays on this
	// machine.
	Controller string `toml:"controller"`
	// Recipe is the recipe's id, in hexadecimal digits. Required.
	Recipe string `toml:"recipe"`
	// Every is how often the relay asks for the newest announcement, whoever asks for it.
	// Default "1s".
	Every service.Duration `toml:"every"`
}

// RelayLimits are the ones of relay.Limits, as a file has them.
type RelayLimits struct {
	// RequestBytes is the largest encapsulated request. Default 8 MiB.
	RequestBytes int64 `toml:"request_bytes"`
	// AnswerBytes is the largest encapsulated answer. Default 1 MiB.
	AnswerBytes int64 `toml:"answer_bytes"`
	// Requests are worked on at one time, those that wait for the gateway included.
	// Default 4096.
	Requests int `toml:"requests"`
	// InFlightBytes bounds the bytes of all request bodies held at one time. Default 128
	// MiB.
	InFlightBytes int64 `toml:"in_flight_bytes"`
	// BodyTimeout is how long a device may take over a request's body. Default 15s.
	BodyTimeout service.Duration `toml:"body_timeout"`
	// AnswerTimeout is how long the gateway may take; it must be longer than twice the
	// gateway's window. Default 1m.
	AnswerTimeout service.Duration `toml:"answer_timeout"`
	// RequestsPerMinute come at most from one part of the network. Default 600; negative:
	// no limit.
	RequestsPerMinute int `toml:"requests_per_minute"`
}

func (l RelayLimits) limits() relay.Limits {
	return relay.Limits{Body: l.RequestBytes, Answer: l.AnswerBytes, Requests: l.Requests, InFlight: l.InFlightBytes,
		BodyTimeout: time.Duration(l.BodyTimeout), AnswerTimeout: time.Duration(l.AnswerTimeout),
		Rate: relay.Rate{Requests: l.RequestsPerMinute}}
}

// LoadRelay reads and validates relay.toml, and none of the files that it names:
// [Relay.Check] does.
func LoadRelay(path string) (*Relay, error) {
	c := &Relay{}
	if err := loadAs(path, RelayRole, c, c.Validate); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Relay) Validate() error {
	var f Faults
	f.Add("public: ", c.Public.Validate())
	f.Add("local.address: ", service.Local{Address: c.Local.Address}.Validate())
	switch {
	case c.Gateway != "":
		f.Add("gateway: ", endpoint.CheckPeer(c.Gateway))
	case !c.Agreement.used():
		f.If(true, "gateway: required, or an agreement with one")
	}
	f.Add("", c.Agreement.validate())
	f.If(c.Path != "" && c.Path[0] != '/', "path: must begin with a slash")
	f.If(c.TransparencyLogEvery < 0 || c.TransparencyLogEvery != 0 && c.TransparencyLog == "", "transparency_log_every: negative, or without transparency_log")
	if c.TransparencyLog != "" {
		f.Add("transparency_log: ", endpoint.CheckPeer(c.TransparencyLog))
	}
	for i, t := range c.Trainings {
		at := fmt.Sprintf("trainings[%d].", i)
		f.Add(at+"controller: ", endpoint.CheckPeer(t.Controller))
		_, err := recipe.ParseID(t.Recipe)
		f.Add(at+"recipe: ", err)
		f.If(t.Every < 0, "%severy: negative", at)
		f.If(slices.ContainsFunc(c.Trainings[:i], func(x RelayTraining) bool { return x.Recipe == t.Recipe }), "%srecipe: it stands twice", at)
	}
	f.If(c.Public.Proxied() && c.Public.ForwardedHeader == "" && c.Limits.RequestsPerMinute > 0,
		"limits.requests_per_minute: behind a proxy all requests come from its address; name its public.forwarded_header")
	if low := negatives(c.Limits, "requests_per_minute"); low != nil {
		f.Add("limits.", low)
	} else {
		f.Add("limits: ", c.Limits.limits().Validate())
	}
	return f.All()
}

// plain are the options without what stands in files.
func (c *Relay) plain() relay.Options {
	o := relay.Options{Gateway: c.Gateway, Path: c.Path, Limits: c.Limits.limits(),
		SenderOf: func(r *http.Request) string { return service.SenderOf(r, c.Public.ForwardedHeader) }}
	if c.Public.Proxied() && c.Public.ForwardedHeader == "" {
		o.Limits.Rate.Requests = -1 // one counter for all would be no limit on anybody
	}
	return o
}

// options reads the files that the configuration names, and says all that is wrong with
// them.
func (c *Relay) options() (relay.Options, error) {
	o := c.plain()
	var f Faults
	if c.Agreement.used() {
		f.Add("", c.agreed(&o))
	}
	if c.GatewayToken != "" {
		var err error
		o.Token, err = c.GatewayToken.Text()
		f.Add("gateway_token: ", err)
	}
	return o, f.All()
}

// agreed gives the relay the gateway of its agreement, where the configuration names none.
func (c *Relay) agreed(o *relay.Options) error {
	s, gateway, err := c.Agreement.with(RelayRole, GatewayRole)
	if err != nil {
		return err
	}
	if o.Token, err = s.Token(dap.TaskID{}); err != nil {
		return err
	}
	if o.Gateway == "" {
		o.Gateway = gateway.URL
	}
	o.Transport, err = onward(gateway)
	return err
}

// Check reads every file that the configuration names, as starting would, and opens no
// listener.
func (c *Relay) Check() error {
	var f Faults
	f.Add("public: ", c.Public.CheckFiles())
	_, err := c.options()
	f.Add("", err)
	return f.All()
}

// Parts returns the relay as components for [service.Run], in order: what fetches the log's
// bundle, where there is a log, the local listener, then the public one.
func (c *Relay) Parts(log *slog.Logger, open Listeners) ([]service.Part, error) {
	log = log.With(slog.String("role", "relay"))
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	o.Log = log
	metrics := service.NewMetrics()
	unplaced := metrics.Counter("starling_relay_unplaced_total", "Requests whose sender's address cannot be read: they share one limit.")
	o.Unplaced = func() { unplaced.Add(1) }
	mirror := newMirror(c.TransparencyLog, time.Duration(c.TransparencyLogEvery), log)
	if mirror != nil {
		o.Bundle = mirror.bundle
	}
	trained := newTrainingMirrors(c.Trainings, log)
	if len(trained) > 0 {
		o.Training = trained.file
	}
	r, err := relay.New(o)
	if err != nil {
		return nil, err
	}
	if o.Limits.Rate.Requests < 0 {
		log.Warn("no limit on the requests of one sender: any one can fill a gateway's rounds and spend its key; " +
			"see limits.requests_per_minute and public.forwarded_header")
	}
	connections := metrics.Connections("public")
	ready := func() service.Readiness {
		now := service.Ready(false)
		now.Release.Because(service.ReasonPeer, errors.Join(r.Trouble(), mirror.trouble(), trained.trouble()))
		now.Take.Because(service.ReasonConnections, connections.Full())
		return now
	}
	metrics.ReadinessGauge(ready, "take", "release")
	metrics.Counts("starling_relay_requests_total", "Requests by what became of them: a reason of their refusal, the gateway's too, that they were forwarded, or that the log's bundle or a file of a training was handed out.",
		service.Label{Name: "outcome", Values: relay.Outcomes(), Only: true}, func(word string) float64 { return float64(r.Outcome(word)) })
	parts := []service.Part{
		service.Local{
			Name: "relay local listener", Address: c.Local.Address, Metrics: metrics, Log: log, Open: open.Local,
			Health: service.Health{Ready: ready, Status: func(context.Context) (any, error) { return r.Status(), nil }},
		}.Part(),
		service.Server{
			Name: "relay public listener", Listen: c.Public, Log: log, Open: open.Public,
			Handler:     service.Measure(r, log, metrics, "", nil),
			Connections: connections, Label: "public",
			Busy: relay.Busy,
		}.Part(),
	}
	if mirror != nil {
		parts = append([]service.Part{{Name: "relay mirror of the log", Run: mirror.run}}, parts...)
	}
	for _, m := range trained {
		parts = append([]service.Part{{Name: "relay mirror of a training", Run: m.run}}, parts...)
	}
	return parts, nil
}
