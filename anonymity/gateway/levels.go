package gateway

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/service"
)

// errDisk: the disk is nearly full.
var errDisk = errors.New("the disk has less room than is to be left free (min_free)")

// Readiness is what the gateway can do at the moment: take requests, and pass on what it
// has acknowledged.
func (g *Gateway) Readiness() service.Readiness {
	r := service.Ready(false)
	if err := g.err(); err != nil {
		r.Take.Because(service.ReasonStore, err)
		r.Release.Because(service.ReasonStore, err)
		return r
	}
	r.Take.Because(service.ReasonKeys, g.Ready())
	if g.diskFull() {
		r.Take.Because(service.ReasonDisk, errDisk)
	}
	if left, _ := g.room.left(); left == 0 {
		r.Take.Because(service.ReasonBacklog, fmt.Errorf("it holds %d requests, as many as it may", g.o.Limits.Held))
	}
	if s := g.Status(); s.Oldest != nil && s.Waiting < uint64(s.Held) {
		if age := s.Now.Sub(*s.Oldest); age > late+g.o.Mix {
			r.Release.Because(service.ReasonPeer, fmt.Errorf("the leader has not taken the oldest upload for %v", age.Round(time.Second)))
		}
	}
	return r
}

// gauges registers how full a gateway is.
func gauges(m *service.Metrics, l Limits, running func() *Gateway) {
	gauge := func(name, help string, value func(g *Gateway) float64) {
		m.Gauge(name, help, func() float64 {
			if g := running(); g != nil {
				return value(g)
			}
			return 0
		})
	}
	gauge("starling_disk_free_bytes", "Room on the disk of the data directory; below 0: not known.", func(g *Gateway) float64 {
		if free, known := disk.Free(g.o.FS); known {
			return float64(free)
		}
		return -1
	})
	m.Gauge("starling_disk_min_free_bytes", "Room below which uploads are refused.", func() float64 { return float64(max(0, l.MinFree)) })
	gauge("starling_gateway_held_requests", "Requests of rounds that are not done.", func(g *Gateway) float64 {
		left, _ := g.room.left()
		return float64(g.o.Limits.Held - left)
	})
	m.Gauge("starling_gateway_held_max_requests", "Requests that may be held; then all are refused.", func() float64 { return float64(l.Held) })
	gauge("starling_gateway_oldest_seconds", "How long the oldest round has been held.", func(g *Gateway) float64 {
		if s := g.Status(); s.Oldest != nil {
			return max(0, s.Now.Sub(*s.Oldest).Seconds())
		}
		return 0
	})
	gauge("starling_gateway_keys", "Keys that devices may use.", func(g *Gateway) float64 {
		n := 0
		for _, k := range g.keys.Load().list {
			if k.usable(g.o.Clock) && g.count(k.opened) < k.opened.max {
				n++
			}
		}
		return float64(n)
	})
}
