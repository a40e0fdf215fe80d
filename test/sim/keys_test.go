package sim

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// Keys in worlds that rotate them. A report may lie for hours before the leader works on
// it, so the helper waits for long.
const (
	keyPeriod  = 30 * time.Minute
	keyMaxAge  = 10 * time.Minute
	keyOverlap = 5 * time.Minute
	keyDelay   = 12 * time.Hour
)

// schedule is that of a node's keys, or nil.
func (w *world) schedule(delay time.Duration) *keyset.Schedule {
	if !w.cfg.rotate {
		return nil
	}
	return &keyset.Schedule{Period: keyPeriod, MaxAge: keyMaxAge, Overlap: keyOverlap, Delay: delay}
}

// keys are what reports are sealed to now, by role. In worlds that rotate them the client
// asks when its own have run out; nil if nobody answers.
func (w *world) keys() map[dap.Role]dap.HpkeConfig {
	if !w.cfg.rotate {
		return map[dap.Role]dap.HpkeConfig{
			dap.RoleLeader: dap.NewHpkeConfig(w.leaderKeys.Keys()[0]), dap.RoleHelper: dap.NewHpkeConfig(w.helperKeys.Keys()[0]),
		}
	}
	pass := w.net.pass.Swap(true)
	defer w.net.pass.Store(pass)
	if err := w.client.Refresh(context.Background()); err != nil {
		w.logf("no keys: %v", err)
		return nil
	}
	keys := make(map[dap.Role]dap.HpkeConfig)
	for role, base := range map[dap.Role]string{dap.RoleLeader: leaderURL, dap.RoleHelper: helperURL} {
		u := must(url.Parse(base))
		a, err := w.net.deliver(&message{to: w.nodeOf(u.Host), method: "GET", url: dap.ResourceURL(u, dap.HpkeConfigPath)})
		if err != nil {
			return nil
		}
		keys[role] = must(must(dap.ReadHpkeConfigList(a.body)).Choose())
	}
	return keys
}

// endKeys lets the time of every key that is not current pass: none may be left, on
// either disk, and no count may change.
func (w *world) endKeys() {
	if !w.cfg.rotate {
		return
	}
	before := make(map[*node]*status.Task)
	for _, n := range w.nodes() {
		before[n] = w.oracle.status(n.life.Load())
	}
	// Twice: what is current now ends too, and is followed by the one that is left.
	for range 2 {
		for _, d := range []time.Duration{keyPeriod, keyMaxAge + keyOverlap, keyDelay} {
			time.Sleep(d)
			for range 3 {
				for _, n := range w.nodes() {
					n.step()
				}
			}
			if w.cfg.lively {
				time.Sleep(maxBackOff)
			}
		}
	}
	for _, n := range w.nodes() {
		l := n.life.Load()
		if after := w.oracle.status(l); after == nil || before[n] == nil || after.Counts.Aggregated != before[n].Counts.Aggregated ||
			rejected(after) != rejected(before[n]) {
			w.oracle.violate("%s: the end of keys changed counts", n.name)
		}
		w.net.pass.Store(true)
		s, err := l.Status(context.Background())
		w.net.pass.Store(false)
		if err != nil {
			w.oracle.violate("%s: status: %v", n.name, err)
			continue
		}
		living := 0
		for _, k := range s.Keys {
			switch k.State {
			case status.KeyDestroyed:
				w.ended++
			case status.KeyCurrent, status.KeyAccepted: // the last one may have been followed just now
				living++
			case status.KeyRetiring:
				living++
				if time.Since(k.Until) > time.Minute {
					w.oracle.violate("%s: key %d is kept: %s", n.name, k.ID, k.Why)
				}
			}
		}
		if kept := n.secrets(); kept != living {
			w.oracle.violate("%s: %d secrets of %d living keys are kept", n.name, kept, living)
		}
	}
}

// secrets is how many HPKE keys are kept: files of the node's own, or rows of its database.
func (n *node) secrets() (kept int) {
	if n.rows != nil {
		return n.rows("SELECT count(*) FROM %s.secret WHERE purpose = 1")
	}
	for _, e := range must(n.disk.ReadDir("keys")) {
		if strings.HasSuffix(e.Name, ".hpke") {
			kept++
		}
	}
	return kept
}

// outdated judges the refusal of a report because of its key: no client that made it a
// moment ago may see that.
func (o *oracle) outdated(r *report) {
	if !o.w.cfg.rotate || time.Since(r.made) < keyOverlap {
		o.violate("a report sealed %v ago was refused because of its key", time.Since(r.made))
	}
	o.outdatedSeen++
}
