package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
)

// roleOf is an aggregator's role as credentials have it.
var roleOf = map[dap.Role]arc.Role{dap.RoleLeader: arc.Leader, dap.RoleHelper: arc.Helper}

// An issuer is that of one key epoch.
type issuer struct {
	*arc.Verifier
	key arc.KeyID
}

// credits is what a batch knows of its reports' credentials.
type credits struct {
	issuers map[uint64]*issuer // by key epoch; nil where the key is gone
	spends  []store.Spend      // of each report; a zero mark where it showed nothing that holds
	why     []aggregator.Uncredited
}

// A KeyError: the issuer's key of an epoch is not here now, though credentials of it may have
// been given out, so that nothing of the batch can be judged. Another process may have it.
type KeyError struct {
	Epoch    uint64
	From, To dap.Time // of the task's reports that belong to the epoch, inclusive
	Err      error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("verify: the issuer's key of epoch %d: %v", e.Epoch, e.Err)
}
func (e *KeyError) Unwrap() error { return e.Err }

// epochs finds the issuers of all reports of a batch, before any is opened: where a key
// cannot be read now, nothing is refused for it. It fails with *[KeyError].
func (b *Batch) epochs(ctx context.Context) error {
	c := b.task.Credentials
	if c == nil {
		return nil
	}
	b.credits = credits{issuers: make(map[uint64]*issuer), spends: make([]store.Spend, len(b.reports)), why: make([]aggregator.Uncredited, len(b.reports))}
	if b.prm.Issuer == nil {
		return errors.New("verify: no issuer is beside this aggregator")
	}
	for i := range b.reports {
		_, epoch, err := c.Round(b.reports[i].Share.Metadata.Time, b.task.Precision())
		if _, known := b.credits.issuers[epoch]; err != nil || known {
			continue // such a time is refused below
		}
		switch v, key, err := b.prm.Issuer.Verifier(ctx, c.Deployment, epoch); {
		case err == nil:
			b.credits.issuers[epoch] = &issuer{v, key}
		case errors.Is(err, aggregator.ErrNoIssuerKey):
			b.credits.issuers[epoch] = nil
		default:
			from, to := c.Times(epoch, b.task.Precision())
			return &KeyError{epoch, from, to, err}
		}
	}
	return nil
}

// credit verifies the credentials of a block's reports that opened, those of one key
// together, and takes down what they spend. It comes before the VDAF: who has no credential
// costs little.
func (b *Batch) credit(lo int, reports []Report, plain []dap.PlaintextInputShare, aads [][]byte, errs []error) {
	c := b.task.Credentials
	bases := make(map[uint64]*arc.TagBase) // by round, each of one epoch
	at := make(map[*issuer][]int)
	items := make(map[*issuer][]arc.Item)
	refuse := func(i int, why aggregator.Uncredited) { errs[i], b.credits.why[lo+i] = dap.InvalidMessage, why }
	for i := range reports {
		if errs[i] != nil {
			continue
		}
		data, ok := plain[i].PrivateExtensions.Get(dap.ExtPresentation)
		if !ok || plain[i].PrivateExtensions.Len() > 1 {
			refuse(i, aggregator.CredentialAbsent)
			continue
		}
		p, err := arc.ReadPresentation(data)
		if err != nil {
			refuse(i, aggregator.CredentialMalformed)
			continue
		}
		round, epoch, err := c.Round(reports[i].Share.Metadata.Time, b.task.Precision())
		by := b.credits.issuers[epoch]
		if err != nil || by == nil {
			refuse(i, aggregator.CredentialEpoch)
			continue
		}
		if bases[round] == nil {
			bases[round] = arc.NewTagBase(arc.NewPresentationContext(roleOf[b.role], b.task.ID, round, by.key))
		}
		at[by] = append(at[by], i)
		items[by] = append(items[by], arc.Item{Base: bases[round], Binding: arc.Bind(roleOf[b.role], aads[i], plain[i].Payload), Presentation: p})
		b.credits.spends[lo+i] = store.Spend{Round: round, Report: reports[i].Share.Metadata.ID}
	}
	for by, some := range items {
		for k, err := range by.VerifyBatch(some) {
			i := at[by][k]
			if err != nil {
				refuse(i, aggregator.CredentialProof)
				continue
			}
			b.credits.spends[lo+i].Mark = by.Mark(some[k].Presentation.Tag())
		}
	}
}

// Spends are what the reports that hold show, by report, and their indices; none where the
// task counts no devices.
func (b *Batch) Spends() (list []store.Spend, at []int) {
	for i := range b.credits.spends {
		if s := b.credits.spends[i]; b.errs[i] == nil && s.Mark != (store.Mark{}) {
			list, at = append(list, s), append(at, i)
		}
	}
	return list, at
}

// Spent refuses report i: its device has another in the round.
func (b *Batch) Spent(i int) {
	if b.errs[i] == nil {
		b.credits.why[i] = aggregator.CredentialSpent
	}
	b.Refuse(i, dap.ReportReplayed)
}

// Uncredited counts the reports whose credential was not taken, by reason.
func (b *Batch) Uncredited() map[aggregator.Uncredited]uint64 {
	m := make(map[aggregator.Uncredited]uint64)
	for _, why := range b.credits.why {
		if why != "" {
			m[why]++
		}
	}
	return m
}
