package contribute_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/internal/showing"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
)

var arcRoles = map[onion.Role]arc.Role{onion.First: arc.Hop1, onion.Second: arc.Hop2}

func requestContext(role onion.Role, key arc.KeyID) arc.RequestContext {
	return arc.NewRequestContext(arcRoles[role], [32]byte{5}, 1, key)
}

// verifier is what a hop verifies by; nil in the mode counted.
func (w *world) verifier(role onion.Role) hop.Tokens {
	k := w.issuers[role]
	if k == nil {
		return nil
	}
	id := k.PublicKey().ID()
	v := k.Verifier(requestContext(role, id))
	return showing.NewVerifier(role, w.shuffle.Recipe, w.shuffle.Messages, func(context.Context, uint64) (*arc.Verifier, arc.KeyID, error) { return v, id, nil })
}

func (w *world) issue(role onion.Role) (*arc.Credential, arc.KeyID) {
	w.t.Helper()
	k := w.issuers[role]
	p := arc.NewPending(requestContext(role, k.PublicKey().ID()))
	answer, err := k.Respond(p.Request())
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := p.Finalize(k.PublicKey(), answer)
	if err != nil {
		w.t.Fatal(err)
	}
	return c, k.PublicKey().ID()
}

// wallet is what one device was given, of any epoch.
type wallet struct {
	held  *client.Held
	asked []uint64
}

func (w *world) wallet() *wallet {
	h := &client.Held{}
	h.Leader, h.LeaderKey = w.issue(onion.First)
	h.Helper, h.HelperKey = w.issue(onion.Second)
	return &wallet{held: h}
}

func (x *wallet) Held(epoch uint64) (*client.Held, error) {
	if x.asked = append(x.asked, epoch); x.held == nil {
		return nil, client.ErrNoCredentials
	}
	return x.held, nil
}

// device is a contributor with a wallet of its own, which goes through the relay.
func (w *world) device(x *wallet) *contribute.Contributor {
	w.t.Helper()
	o, err := w.through(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	if x != nil {
		o.Client.Credentials = x
	}
	c, err := contribute.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestShowsCredentials: devices with credentials are counted, each once a round, whatever one of them sends
// beside, and in the next round again; what they show is of the epoch of the round.
func TestShowsCredentials(t *testing.T) {
	in(t, kind{relayed: true, logged: true, tokens: true}, func(t *testing.T, w *world) {
		_, w.log.manifest = w.relay()
		var all []*contribute.Contributor
		var wallets []*wallet
		for range 5 {
			wallets = append(wallets, w.wallet())
			all = append(all, w.device(wallets[len(wallets)-1]))
		}
		for round := range 2 {
			for i, c := range all {
				if err := c.Report(t.Context(), client.Number(uint64(i))); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Prepare(client.Number(9), time.Now()); !errors.Is(err, contribute.ErrOnce) {
					t.Errorf("a second contribution: %v", err)
				}
			}
			// The same device, whose ledger was put back.
			if err := w.device(wallets[0]).Report(t.Context(), client.Number(9)); err != nil {
				t.Fatal(err)
			}
			n := w.flushed()
			got, err := w.reader().Round(t.Context(), n)
			if err != nil || got.ReportCount != 5 || got.Raw[0] != 10 {
				t.Fatalf("round %d: %+v, %v", round, got, err)
			}
			length := uint64(w.shuffle.Length / time.Second)
			if epoch := n * length / uint64(w.checked.Recipe().EpochLength()); wallets[0].asked[len(wallets[0].asked)-1] != epoch {
				t.Errorf("credentials of epochs %d, want %d", wallets[0].asked, epoch)
			}
		}
	})
}

// TestShowNothing: a device without credentials sits the round out before it pays, and one
// that was given no wallet refuses the recipe.
func TestShowNothing(t *testing.T) {
	in(t, kind{relayed: true, logged: true, tokens: true}, func(t *testing.T, w *world) {
		_, w.log.manifest = w.relay()
		c := w.device(&wallet{})
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Creditable(time.Now()); !errors.Is(err, client.ErrNoCredentials) {
			t.Error(err)
		}
		if _, err := c.Prepare(client.Number(1), time.Now()); !errors.Is(err, client.ErrNoCredentials) {
			t.Error(err)
		}
		o, err := w.through(w.log)
		if err != nil {
			t.Fatal(err)
		}
		refused := new(client.RefusedError)
		if _, err := contribute.New(o); !errors.As(err, &refused) || refused.Reason != client.ReasonCredentials {
			t.Errorf("without a wallet: %v", err)
		}
	})
	in(t, kind{}, func(t *testing.T, w *world) {
		if err := w.contributor().Creditable(time.Now()); err != nil {
			t.Errorf("a recipe without credentials: %v", err)
		}
	})
}
