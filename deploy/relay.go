package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/internal/service"
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
	// Path is where the one resource is; default "/".
	Path string `toml:"path"`
	// Limits left out or zero take their defaults.
	Limits RelayLimits `toml:"limits"`
	// Log says how much is written to stderr. Default "info".
	Log Log `toml:"log"`
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
	if err := loadAs(path, RelayRole, c); err != nil {
		return nil, err
	}
	if err := invalid(path, c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate says what is wrong with the configuration by itself.
func (c *Relay) Validate() error {
	if err := c.Public.Validate(); err != nil {
		return fmt.Errorf("public: %w", err)
	}
	if err := (service.Local{Address: c.Local.Address}).Validate(); err != nil {
		return fmt.Errorf("local.address: %w", err)
	}
	switch {
	case c.Public.Proxied() && c.Public.ForwardedHeader == "" && c.Limits.RequestsPerMinute > 0:
		return errors.New("limits.requests_per_minute: behind a proxy all requests come from its address; name its public.forwarded_header")
	}
	if err := c.Agreement.validate(); err != nil {
		return err
	}
	o := c.plain()
	if c.Gateway == "" && c.Agreement.used() {
		return o.Limits.Validate() // the rest when its invitation is read
	}
	if err := endpoint.CheckPeer(c.Gateway); err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return o.Validate()
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

func (c *Relay) options() (relay.Options, error) {
	o := c.plain()
	if c.Agreement.used() {
		s, gateway, err := c.Agreement.with(RelayRole, GatewayRole)
		if err != nil {
			return o, err
		}
		if o.Token, err = s.Token(dap.TaskID{}); err != nil {
			return o, err
		}
		if o.Gateway == "" {
			o.Gateway = gateway.URL
		}
		if o.Transport, err = onward(gateway); err != nil {
			return o, err
		}
	}
	if c.GatewayToken != "" {
		var err error
		if o.Token, err = c.GatewayToken.Text(); err != nil {
			return o, fmt.Errorf("gateway_token: %w", err)
		}
	}
	return o, nil
}

// Check reads every file that the configuration names, as starting would, and opens no
// listener.
func (c *Relay) Check() error {
	if err := c.Public.CheckFiles(); err != nil {
		return fmt.Errorf("public: %w", err)
	}
	_, err := c.options()
	return err
}

// Parts returns the relay as components for [service.Run], in order: the local listener,
// then the public one.
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
		now.Release.Because(service.ReasonPeer, r.Trouble())
		now.Take.Because(service.ReasonConnections, connections.Full())
		return now
	}
	metrics.ReadinessGauge(ready, "take", "release")
	metrics.Counts("starling_relay_requests_total", "Requests by what became of them: a reason of their refusal, the gateway's too, or that they were forwarded.",
		service.Label{Name: "outcome", Values: relay.Outcomes(), Only: true}, func(word string) float64 { return float64(r.Outcome(word)) })
	return []service.Part{
		service.Local{
			Name: "relay local listener", Address: c.Local.Address, Metrics: metrics, Log: log, Open: open.Local,
			Health: service.Health{Ready: ready, Status: func(context.Context) (any, error) { return r.Status(), nil }},
		}.Part(),
		service.Server{
			Name: "relay public listener", Listen: c.Public, Log: log, Open: open.Public,
			Handler:     service.Measure(r, log, metrics, nil),
			Connections: connections, Label: "public",
			Busy: relay.Busy,
		}.Part(),
	}, nil
}
