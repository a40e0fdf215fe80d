package aggregator

import (
	"context"
	"errors"
	"math"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// Credentials say that each report of a task shows a credential to leader and helper each,
// of the issuer beside it, and counts once in a round (package arc).
type Credentials struct {
	// Deployment is whose issuers they are.
	Deployment [32]byte
	// Units is the length of a round in units of the task's time precision, that of all
	// slots together for donation times; at least 1.
	Units uint64
	// Epoch is the length of a key epoch in seconds, and no round is longer.
	Epoch uint64
}

// CredentialsOf is what a recipe says of credentials; nil where it counts no devices.
func CredentialsOf(r *recipe.Recipe) (*Credentials, error) {
	if r.Tokens == nil {
		return nil, nil
	}
	id, err := r.Deployment()
	if err != nil {
		return nil, err
	}
	return &Credentials{Deployment: id, Units: r.RoundUnits(), Epoch: uint64(r.ServerKeys.EpochLength)}, nil
}

// Validate says whether a task's reports can show credentials.
func (c *Credentials) Validate(cfg *dap.TaskConfiguration) error {
	switch {
	case c.Units < 1:
		return errors.New("a round of no time")
	case uint64(cfg.TimePrecision) > math.MaxUint64/c.Units || uint64(cfg.TimePrecision)*c.Units > c.Epoch:
		return errors.New("a round that is longer than a key epoch")
	}
	return nil
}

// Round is the round in which a report's time lies, and the one key epoch that the round
// belongs to. It fails with [arc.ErrEpoch].
func (c *Credentials) Round(at dap.Time, precision dap.TimePrecision) (round, epoch uint64, err error) {
	round = uint64(at) / c.Units
	epoch, err = arc.EpochOf(round, c.Units*uint64(precision), c.Epoch)
	return round, epoch, err
}

// Times are the first and the last time of reports whose round belongs to a key epoch that
// [Credentials.Round] gave.
func (c *Credentials) Times(epoch uint64, precision dap.TimePrecision) (from, to dap.Time) {
	length := c.Units * uint64(precision)
	if last, err := arc.LastRound(epoch, length, c.Epoch); err == nil && last < math.MaxInt64/c.Units {
		to = dap.Time((last+1)*c.Units - 1)
	} else {
		to = math.MaxInt64
	}
	if epoch > 0 {
		if last, err := arc.LastRound(epoch-1, length, c.Epoch); err == nil {
			from = dap.Time((last + 1) * c.Units)
		}
	}
	return from, to
}

// An Issuer is that beside an aggregator, as far as the aggregator asks it. It must be safe
// for concurrent use.
type Issuer interface {
	// Verifier returns the verifier of what was issued in a key epoch of a deployment, and
	// the name of the epoch's key. It fails with an error that wraps [ErrNoIssuerKey] where
	// there is no such key and never will be again, which ends the report; any other error
	// is of now, and the reports wait.
	Verifier(ctx context.Context, deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error)
	// Issued returns how many credentials of a key epoch of a deployment were given out,
	// once none is any more; the number outlives the key. It fails while that is not known.
	Issued(ctx context.Context, deployment [32]byte, epoch uint64) (uint64, error)
}

// Cohorts are what the transparency log says of how many devices have credentials. They
// answer at once, from what was read before, and must be safe for concurrent use.
type Cohorts interface {
	// Cohort is what was said of a key epoch of a deployment, as far as it is known.
	Cohort(deployment [32]byte, epoch uint64) status.Cohort
	// Published is all of that, with how the log stands.
	Published() *status.Published
}

// ErrNoIssuerKey: nothing was issued in that epoch, or its key was destroyed.
var ErrNoIssuerKey = errors.New("aggregator: no key of an issuer of that epoch")

// An Uncredited is why a report's credential was not taken.
type Uncredited string

// The reasons.
const (
	// CredentialAbsent: the share has no presentation, or more beside it.
	CredentialAbsent Uncredited = "absent"
	// CredentialMalformed: it is not the encoding of one.
	CredentialMalformed Uncredited = "malformed"
	// CredentialEpoch: no credentials of the report's round were ever issued, or it is long
	// past.
	CredentialEpoch Uncredited = "epoch"
	// CredentialProof: it does not hold: of another key, round, task or report.
	CredentialProof Uncredited = "proof"
	// CredentialSpent: the device has another report in the round.
	CredentialSpent Uncredited = "spent"
)

// AllUncredited lists all.
func AllUncredited() []Uncredited {
	return []Uncredited{CredentialAbsent, CredentialMalformed, CredentialEpoch, CredentialProof, CredentialSpent}
}

// CheckIssuer says that a task wants an issuer and there is none.
func (o *Options) CheckIssuer(t *Task) error {
	if t.Credentials != nil && o.Issuer == nil {
		return errors.New("aggregator: task: its reports show credentials, and no issuer is beside this aggregator")
	}
	return nil
}
