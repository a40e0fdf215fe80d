package lab

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// This file has what a lab of a cloak has more whose devices show credentials: an attester, an
// issuer beside each hop, a log with its witnesses.

// counts finds free ports for these, and when the epoch is to begin.
func (c *mixed) counts(f *frame) (err error) {
	if f.counting, err = newCounting(c.asks.devices, f.tempo.until(c.asks.devices), f.o.Precision); err != nil {
		return err
	}
	x := f.counting
	x.author = signed.Hop1
	for i, role := range []signed.Role{signed.Hop1, signed.Hop2} {
		x.counters = append(x.counters, counter{role, c.mixers.Hops[i].Local.Addr().String()})
	}
	f.front.Log, f.front.Devices = x.watched.LogURL(), uint64(c.asks.devices)
	f.asked = x.begin
	c.mixers.Tokens = &deploy.MixerTokens{Attester: signed.Generate(), Begin: x.begin, EpochLength: uint32(x.length.Seconds())}
	return nil
}

// options are those of a device, but for its credentials.
func (c *mixed) options(f *frame) client.Options {
	o := client.Options{Recipe: f.file, Anchors: f.anchors, MaxEpsilon: f.o.Epsilon.FloatDown() * 1.01, Via: f.via, Tries: labTries}
	if f.counting != nil {
		o.Log, o.Credentials = f.counting.book, first{f.counting}
	}
	return o
}

// enrol has every device visit, waits until it is known how many did, and gives each what it
// shows.
func (c *mixed) enrol(ctx context.Context, f *frame) error {
	if err := f.enrol(ctx); err != nil {
		return err
	}
	o := c.options(f)
	o.Recipe, o.Checked = nil, c.device.Checked()
	c.shown = make([]*contribute.Contributor, c.asks.devices)
	for i := range c.shown {
		o.Credentials = f.counting.wallets[i].For(uint64(c.asks.devices))
		var err error
		if c.shown[i], err = contribute.New(contribute.Options{Client: o, Lists: f.http}); err != nil {
			return err
		}
	}
	return nil
}

// of is a device, which in the mode counted is like all others.
func (c *mixed) of(i int) *contribute.Contributor {
	if c.shown == nil {
		return c.device
	}
	return c.shown[i]
}

// ready has all devices take keys, of the log where the recipe names one: then the keys of all
// rounds for which parties have made some must stand there.
func (c *mixed) ready(ctx context.Context, f *frame) error {
	if c.shown == nil {
		return c.device.Refresh(ctx)
	}
	s := c.device.Shuffle()
	err := f.counting.heard(ctx, func() error {
		last := s.Round(f.counting.begin) + mixedAhead/2
		for i, p := range f.recipe.Parties() {
			if _, err := f.counting.book.ShuffleKeys(s.Recipe, onion.Role(i+1), last, p.Key); err != nil {
				return err
			}
		}
		_, err := f.counting.book.Manifest(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return crowd(ctx, len(c.shown), f.o.Workers, func(ctx context.Context, i int) error { return c.shown[i].Refresh(ctx) })
}

// trust is what the guarantee asks of the hops.
func (c *mixed) trust() string {
	if c.o.Credentials {
		return "one of the two hops tells nobody its order, and the attester vouches for no device twice: each hop counts by credentials, so that neither is trusted not to pad a batch"
	}
	return "one of the two hops tells nobody its order, and the first pads no batch"
}

// counted adds what was seen of credentials.
func (c *mixed) counted(f *frame) {
	x := f.counting
	if x == nil {
		return
	}
	r := c.found
	for i, s := range r.Saw {
		switch s.Party {
		case "hop 1":
			r.Saw[i].Saw += "; a credential with each contribution, by which it counts devices"
		case "hop 2":
			r.Saw[i].Saw += "; a credential with each, by which no device has more than " + fmt.Sprint(r.MessagesPerDevice)
		}
	}
	r.Saw = append(r.Saw,
		Sight{"attester", fmt.Sprintf("which %d devices took credentials, long before any round; not what they send, nor whether", x.cohort.Attested)},
		Sight{"issuers", fmt.Sprintf("%d and %d blinded requests; neither a device nor what credentials come of them", x.cohort.Leader, x.cohort.Helper)})
}
