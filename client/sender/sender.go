package sender

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// chunk is how many reports are made before they are uploaded.
const chunk = 500

// Options say which recipe is answered, and by which way.
type Options struct {
	// Client says what the device agrees to; its Checked is required. Via is made here.
	Client client.Options
	// Manifest names the relay that everything goes through, and vouches for keys; nil is
	// the way to the leader without a relay.
	Manifest ohttp.Source
	// Attributes are what the devices declare to targeted recipes.
	Attributes map[recipe.Attribute]string
	// Certificate verifies the evidence of a targeted recipe; nil leaves that to the log that
	// Client follows, if any ([participate.PlanOptions]).
	Certificate func(*recipe.Targeting) error
}

// client says how devices answer: through the relay, where there is a manifest. The
// manifest is held against the recipe's keys and the anchors where the recipe names keys,
// and against what memory has seen.
func (o *Options) client(memory *client.Memory) (client.Options, error) {
	made := o.Client
	if o.Manifest == nil || o.contributes() && made.Checked.Recipe().Relay == nil { // whose log has key lists, and no manifest
		return made, nil
	}
	source := o.Manifest
	if r := made.Checked.Recipe(); o.contributes() && r.Relay != nil {
		m, err := contribute.NewManifests(contribute.ManifestsOptions{Recipe: r, Source: source})
		if err != nil {
			return made, err
		}
		source = m
	} else if r.ServerKeys != nil && r.Relay != nil {
		m, err := client.NewManifests(client.ManifestsOptions{Recipe: r, Anchors: made.Anchors, Source: source, Memory: memory})
		if err != nil {
			return made, err
		}
		source = m
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: source})
	made.Via = via
	return made, err
}

// plan holds the recipe against what the device agrees to; the device's ledger records
// that the recipe was seen.
func (o *Options) plan(ctx context.Context, answering client.Options, d *participate.Device) (*participate.Plan, error) {
	p := participate.PlanOptions{Certificate: o.Certificate}
	var err error
	if o.contributes() {
		p.Contributor, err = d.ConsiderContribution(ctx, contribute.Options{Client: answering}, time.Now())
	} else {
		p.Client, err = d.Consider(ctx, answering, time.Now())
	}
	if err != nil {
		return nil, err
	}
	return participate.NewPlan(p)
}

// contributes says whether devices send messages to be shuffled or read, and no reports.
func (o *Options) contributes() bool { return !o.Client.Checked.Recipe().Path.Proofs() }

// donates says whether devices draw a time of their own.
func (o *Options) donates() bool {
	_, ok := o.Client.Checked.Recipe().Slotted()
	return ok
}

// A Sender sends answers of many people, of whom it remembers nothing.
type Sender struct {
	report  func(context.Context, ...client.Value) error
	relayed bool
}

// New makes a sender. It fails with *[client.RefusedError] where a device would not take
// part, and as [client.NewManifests] does.
func New(o Options) (*Sender, error) {
	answering, err := o.client(client.Forgetful())
	if err != nil {
		return nil, err
	}
	if o.contributes() {
		c, err := contribute.New(contribute.Options{Client: answering})
		if err != nil {
			return nil, err
		}
		return &Sender{c.Report, answering.Via != nil}, nil
	}
	c, err := client.New(answering)
	if err != nil {
		return nil, err
	}
	return &Sender{c.Report, answering.Via != nil}, nil
}

// Sent says what became of answers.
type Sent struct {
	Values  int
	Refused map[dap.ReportError]int // by the leader, where no relay hides it
}

// RefusedReports is how many reports the leader refused, for whatever reason.
func (s *Sent) RefusedReports() (n int) {
	for _, some := range s.Refused {
		n += some
	}
	return n
}

// A PartError: the servers could not be reached after the first answers, which were sent.
type PartError struct {
	Sent int
	Err  error
}

func (e *PartError) Error() string {
	return fmt.Sprintf("after the first %d values, which have been sent: %v", e.Sent, e.Err)
}
func (e *PartError) Unwrap() error { return e.Err }

// Send makes one report or contribution of each value and uploads it; through a relay
// some at one time, as devices of their own would. It fails as [client.Client.Report] but
// for refusals, with a *[PartError] around that where some values were sent before.
func (s *Sender) Send(ctx context.Context, values []client.Value) (*Sent, error) {
	if s.relayed {
		return s.sendEach(ctx, values)
	}
	sent := &Sent{Refused: map[dap.ReportError]int{}}
	for some := range slices.Chunk(values, chunk) {
		err, refused := s.report(ctx, some...), new(client.RefusalsError)
		if errors.As(err, &refused) {
			for _, x := range refused.Refused {
				sent.Refused[x.Reason]++
			}
		} else if err != nil {
			return nil, after(sent.Values, err)
		}
		sent.Values += len(some)
	}
	return sent, nil
}

// sendEach sends through a relay. The gateway answers all of a window at its end, so who
// sends one report after the other waits out a window for each.
func (s *Sender) sendEach(ctx context.Context, values []client.Value) (*Sent, error) {
	taken := make([]atomic.Bool, len(values))
	err := atOnce(ctx, len(values), func(ctx context.Context, i int) error {
		err := s.report(ctx, values[i])
		taken[i].Store(err == nil)
		return err
	})
	if err != nil {
		first := 0
		for first < len(taken) && taken[first].Load() {
			first++
		}
		return nil, after(first, err)
	}
	return &Sent{Values: len(values)}, nil
}

// after is an error before which some values were sent.
func after(sent int, err error) error {
	if sent == 0 {
		return err
	}
	return &PartError{sent, err}
}
