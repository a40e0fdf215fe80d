package client

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
)

// Held are a device's credentials of one key epoch: one of each issuer, with the name of
// the issuer's key, as the manifest of the epoch has it. Of the shuffled path Leader stands
// for hop 1, and Helper for hop 2.
type Held struct {
	Leader, Helper       *arc.Credential
	LeaderKey, HelperKey arc.KeyID
}

// Credentials are a device's, for the recipes of one deployment. It must be safe for
// concurrent use.
type Credentials interface {
	// Held returns those of a key epoch. It fails with an error that wraps
	// [ErrNoCredentials] where the device has none, or may not show them: it sits the
	// epoch out.
	Held(epoch uint64) (*Held, error)
}

// ErrNoCredentials: the device has no credentials of this time that it may show, and takes
// no part.
var ErrNoCredentials = errors.New("client: no credentials of this time")

// shown is what a device shows in one round, made for the first report of the round.
type shown struct {
	round uint64
	held  *Held
	bases [2]*arc.TagBase // the leader's first
}

// Creditable says whether the device has credentials of the round in which t lies, and a
// token where the gateway asks for one; nil where the recipe has none. It is asked before
// anything is paid for: a device without them sits the round out. It fails as
// [Credentials.Held].
func (c *Client) Creditable(t time.Time) error {
	if c.recipe.Tokens == nil {
		return nil
	}
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return fmt.Errorf("client: time of the round: %w", err)
	}
	if _, err = c.show(unit); err != nil {
		return err
	}
	_, err = c.admission(unit)
	return err
}

// admission is what every request of a unit of a time shows to the gateway: "" where the
// recipe asks for nothing.
func (c *Client) admission(unit dap.Time) (string, error) {
	if c.recipe.Tokens == nil || !c.recipe.Tokens.Admission {
		return "", nil
	}
	round := c.recipe.Round(unit)
	token, err := c.o.Admission(round)
	if err != nil {
		return "", err
	}
	return admission.Value(round, token), nil
}

// show finds what the device shows in the round of a time unit.
func (c *Client) show(unit dap.Time) (*shown, error) {
	r := c.recipe
	round := r.Round(unit)
	if s := c.shows.Load(); s != nil && s.round == round {
		return s, nil
	}
	length := r.RoundUnits()
	if precision := uint64(r.TimePrecision); length > math.MaxUint64/precision { // which no valid recipe has
		return nil, fmt.Errorf("client: %w", arc.ErrEpoch)
	} else {
		length *= precision
	}
	epoch, err := arc.EpochOf(round, length, uint64(r.ServerKeys.EpochLength))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	held, err := c.o.Credentials.Held(epoch)
	if err != nil {
		return nil, err
	}
	s := &shown{round: round, held: held, bases: [2]*arc.TagBase{
		arc.NewTagBase(arc.NewPresentationContext(arc.Leader, c.taskID, round, held.LeaderKey)),
		arc.NewTagBase(arc.NewPresentationContext(arc.Helper, c.taskID, round, held.HelperKey)),
	}}
	c.shows.Store(s)
	return s, nil
}

// present shows a credential of each issuer, bound to the report and to the share beside
// which it is sealed. It is made once: a report that is sealed anew keeps it, byte for byte.
// Every report that is made has one, sent or not, so that the time tells nothing.
//
// Step 3 of one report: from its input shares, to two that each show a credential.
func (c *Client) present(m *made) error {
	if c.recipe.Tokens == nil {
		return nil
	}
	s, err := c.show(m.report.Metadata.Time)
	if err != nil {
		return err
	}
	aad := dap.AppendInputShareAAD(nil, c.taskID, c.task.Bytes(), &m.report.Metadata, m.report.PublicShare)
	for i, by := range []struct {
		role       arc.Role
		credential *arc.Credential
	}{{arc.Leader, s.held.Leader}, {arc.Helper, s.held.Helper}} {
		shows := by.credential.Present(s.bases[i], arc.Bind(by.role, aad, m.inputs[i]))
		if m.private[i], err = m.private[i].With(dap.ExtPresentation, shows.Append(nil)); err != nil {
			return fmt.Errorf("client: %w", err)
		}
	}
	return nil
}
