package service

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// other is the label that values outside a closed set are counted under.
const other = "other"

// Metrics is the registry of one service. Every label comes from a set closed when the metric is registered, so
// neither strangers nor error texts can add series. It is safe for concurrent use.
type Metrics struct{ registry *prometheus.Registry }

// NewMetrics returns a registry that holds what Go and the process tell about themselves.
func NewMetrics() *Metrics {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{r}
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// A Label is the name of a label and the values it may take; "other" is always among them.
type Label struct {
	Name   string
	Values []string
}

func (l Label) index(value string) int {
	if i := slices.Index(l.Values, value); i >= 0 {
		return i
	}
	return len(l.Values)
}

func (l Label) all() []string {
	if slices.Contains(l.Values, other) {
		return l.Values
	}
	return append(slices.Clip(l.Values), other)
}

// A Counter only grows. Its series are made at registration, one for each combination of label values.
type Counter struct {
	labels []Label
	series []prometheus.Counter // indexed like digits of a number, the last label fastest
}

// Counter registers a counter. The name follows Prometheus' custom: starling_things_total. It panics where the name
// is taken.
func (m *Metrics) Counter(name, help string, labels ...Label) *Counter {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, names(labels))
	m.registry.MustRegister(v)
	c := &Counter{labels: labels}
	each(labels, func(values []string) { c.series = append(c.series, v.WithLabelValues(values...)) })
	return c
}

// Add adds n, which is 0 or more, to the series of the given label values, in the order of registration.
func (c *Counter) Add(n uint64, values ...string) { c.series[at(c.labels, values)].Add(float64(n)) }

// A Histogram counts durations or sizes into buckets.
type Histogram struct {
	labels []Label
	series []prometheus.Observer
}

// Histogram registers a histogram with the given ascending bucket bounds, in the unit that its name ends with.
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

// Gauge registers a gauge that is read when the metrics are: read must be quick and safe for concurrent use.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
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
