package service

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// other is the label that values outside a closed set are counted under.
const other = "other"

// Metrics is the registry of one service. Every label comes from a set closed when the
// metric is registered, so neither strangers nor error texts can add series. It is safe
// for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	bare     bool
}

// NewMetrics returns a registry that holds what Go and the process tell about themselves.
func NewMetrics() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{registry: r}
}

// BareMetrics returns a registry that holds what is registered and nothing else, and has
// [Local] hand out no profiles: of a process with secret coins, whose bytes sent and whose
// goroutines would tell what these said.
func BareMetrics() *Metrics { return &Metrics{registry: prometheus.NewRegistry(), bare: true} }

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// A Label is the name of a label and the values it may take; "other" is among them unless
// the caller has those values Only.
type Label struct {
	Name   string
	Values []string
	Only   bool
}

func (l Label) index(value string) int {
	if i := slices.Index(l.Values, value); i >= 0 {
		return i
	}
	if l.Only {
		panic(fmt.Sprintf("service: internal error: label %s has no value %q", l.Name, value))
	}
	return len(l.Values)
}

func (l Label) all() []string {
	if l.Only || slices.Contains(l.Values, other) {
		return l.Values
	}
	return append(slices.Clip(l.Values), other)
}

// A Counter only grows. Its series are made at registration, one for each combination of
// label values.
type Counter struct {
	labels []Label
	series []prometheus.Counter // indexed like digits of a number, the last label fastest
}

// Counter registers a counter. The name follows Prometheus' custom:
// starling_things_total. It panics where the name is taken.
func (m *Metrics) Counter(name, help string, labels ...Label) *Counter {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, names(labels))
	m.registry.MustRegister(v)
	c := &Counter{labels: labels}
	each(labels, func(values []string) { c.series = append(c.series, v.WithLabelValues(values...)) })
	return c
}

// Add adds n, which is 0 or more, to the series of the given label values, in the order
// of registration.
func (c *Counter) Add(n uint64, values ...string) { c.series[at(c.labels, values)].Add(float64(n)) }

// A Histogram counts durations or sizes into buckets.
type Histogram struct {
	labels []Label
	series []prometheus.Observer
}

// Histogram registers a histogram with the given ascending bucket bounds, in the unit
// that its name ends with.
func (m *Metrics) Histogram(name, help string, bounds []float64, labels ...Label) *Histogram {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds}, names(labels))
	m.registry.MustRegister(v)
	h := &Histogram{labels: labels}
	each(labels, func(values []string) { h.series = append(h.series, v.WithLabelValues(values...)) })
	return h
}

// Observe counts one value.
func (h *Histogram) Observe(value float64, values ...string) {
	h.series[at(h.labels, values)].Observe(value)
}

// Gauge registers a gauge that is read when the metrics are: read must be quick and safe
// for concurrent use.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Gauges registers a gauge for each of the label's values but "other", read like
// [Metrics.Gauge].
func (m *Metrics) Gauges(name, help string, label Label, read func(value string) float64) {
	for _, v := range label.Values {
		m.registry.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label.Name: v}}, func() float64 { return read(v) }))
	}
}

// Counts registers a counter for each of the label's values but "other", read when the
// metrics are; what read returns never falls.
func (m *Metrics) Counts(name, help string, label Label, read func(value string) float64) {
	for _, v := range label.Values {
		m.registry.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label.Name: v}}, func() float64 { return read(v) }))
	}
}

// Connections are the numbers of connections of a service's listeners.
type Connections struct {
	shed *Counter

	mu       sync.Mutex // guards the rest
	limiters map[string]*limiter
}

// Connections registers the numbers of connections of listeners by their [Server.Label].
func (m *Metrics) Connections(listeners ...string) *Connections {
	label := Label{Name: "listener", Values: listeners, Only: true}
	c := &Connections{limiters: make(map[string]*limiter)}
	c.shed = m.Counter("starling_connections_shed_total", "Connections closed before their time, and requests refused, by why.",
		label, Label{Name: "why", Values: shedReasons(), Only: true})
	for _, g := range []struct {
		name, help string
		read       func(open, idle, waiting, places int) int
	}{
		{"starling_connections", "Connections that are open.", func(open, _, _, _ int) int { return open }},
		{"starling_connections_idle", "Connections open without a request under way.", func(_, idle, _, _ int) int { return idle }},
		{"starling_connections_waiting", "Connections that wait for a place.", func(_, _, waiting, _ int) int { return waiting }},
		{"starling_connections_max", "Places for connections of anybody.", func(_, _, _, places int) int { return places }},
	} {
		m.Gauges(g.name, g.help, label, func(listener string) float64 {
			c.mu.Lock()
			l := c.limiters[listener]
			c.mu.Unlock()
			if l == nil {
				return 0
			}
			return float64(g.read(l.numbers()))
		})
	}
	return c
}

// of begins to show a limiter and returns what counts whom it sheds.
func (c *Connections) of(listener string, l *limiter) (shed func(why string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limiters[listener] = l
	return func(why string) { c.shed.Add(1, listener, why) }
}

// Full says which listener has no place for anybody, or nil.
func (c *Connections) Full() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, l := range c.limiters {
		if l.full() {
			return fmt.Errorf("%s: all connections are taken by requests under way", name)
		}
	}
	return nil
}

func names(labels []Label) []string {
	s := make([]string, len(labels))
	for i, l := range labels {
		s[i] = l.Name
	}
	return s
}

// each calls f with every combination of label values, the last label fastest.
func each(labels []Label, f func(values []string)) {
	values := make([]string, len(labels))
	var walk func(i int)
	walk = func(i int) {
		if i == len(labels) {
			f(values)
			return
		}
		for _, v := range labels[i].all() {
			values[i] = v
			walk(i + 1)
		}
	}
	walk(0)
}

func at(labels []Label, values []string) int {
	if len(values) != len(labels) {
		panic(fmt.Sprintf("service: internal error: %d label values for %d labels", len(values), len(labels)))
	}
	n := 0
	for i, l := range labels {
		n = n*len(l.all()) + l.index(values[i])
	}
	return n
}
