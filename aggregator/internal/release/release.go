// Package release hands out one aggregator's share of a closed batch, once.
//
// Noise is expanded from the data key of the batch's time over the task, the mechanism,
// the span and count of the reports and the bytes of the exact share (package datakey;
// docs/proofs/noise-keys.md): the same batch meets the same noise, whatever was put back
// in between, and another sum meets other noise. The name of a batch does not go into it,
// since a leader that was put back gives other names. It is added, and the sum sealed to
// the collector, before the transaction that closes the batch and stores the answer;
// every later request gets those bytes. If the transaction fails nothing was released,
// and the next attempt draws the same again.
//
// Where noise is correlated over releases the store turns the draws into it, from what it
// keeps of the releases before, and keeps what later ones need with the answer. That
// depends on no data either.
//
// With the answer stays the noised share, under the data key, so that it can be sealed
// again to another key of the collector's ([Again]): one that cannot be opened is not the
// end of the batch.
package release

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/vdaf"
)

// A Request is a collection that may be answered now.
type Request struct {
	Task     *task.Task
	Role     dap.Role
	Kind     store.Kind
	Resource string
	// Asked is the CollectionJobReq as the collector sent it: the sealed share is bound
	// to these bytes.
	Asked     []byte
	Selection store.Selection
	Count     uint64
	Checksum  dap.Checksum
	// Keys are the aggregator's data keys.
	Keys *datakey.Set
	// Peer is the helper's resource of its share, at a leader that knows it.
	Peer string
	// Now is the time by this aggregator's own clock, and Skew the clock skew that it
	// allows.
	Now  time.Time
	Skew time.Duration
	// Rates compare what came with what was to come.
	Rates *Rates
	// Finish makes the stored response of the sealed share and of what the batch held.
	Finish func(share dap.HpkeCiphertext, frozen store.Frozen) ([]byte, error)
}

// Series is what the store needs for correlated noise, or nil.
func Series(t *task.Task) *store.Series {
	if t.Series == nil {
		return nil
	}
	return &store.Series{Rule: t.Series.Series, Units: t.Series.Units}
}

// Order is nil unless the task's noise is correlated and the store would refuse to draw
// it for the selection.
func Order(ctx context.Context, s store.Releases, t *task.Task, sel store.Selection) error {
	if t.Series == nil {
		return nil
	}
	return s.Order(ctx, t.ID, Series(t), sel)
}

// Early is a batch of which nothing may be released yet: asked for again, at or after At,
// it may.
type Early struct{ At time.Time }

func (e *Early) Error() string {
	return "the round is not over, or its grace: nothing of it is released before " + e.At.UTC().Format(time.RFC3339)
}

// Allowed is nil if the task may release the selection now: else a *[aggregator.BatchError] if never, and *[Early] if later. It
// asks nobody but the task's calendar and the caller's clock.
func Allowed(t *task.Task, sel store.Selection, now time.Time, skew time.Duration) error {
	if t.Mode() != dap.TimeInterval {
		return nil
	}
	if err := t.Calendar.Check(sel.Interval); err != nil {
		return err
	}
	if due := t.Due(sel.Interval, skew); now.Before(due) {
		return &Early{due}
	}
	return nil
}

// Over is a batch whose views' time has ended: what it would be drawn from is destroyed, or
// about to be.
type Over struct{ Before dap.Time }

func (e *Over) Error() string {
	return fmt.Sprintf("the time in which views of this batch are released is over, as it is of all before unit %d", e.Before)
}

// Overdue is nil, or *[Over] if the time of a batch's views has ended.
func Overdue(t *task.Task, sel store.Selection, now time.Time, skew time.Duration) error {
	if ended := t.Ended(now, skew); t.Mode() == dap.TimeInterval && sel.Interval.Start < ended {
		return &Over{ended}
	}
	return nil
}

// Once draws noise, and closes the batch with the answer in one transaction; a resource
// that was answered before gets the same bytes again and nothing is drawn. Errors are the
// store's: ErrMismatch, ErrTooSmall and ErrOverlap mean that nothing was closed, and so
// do [Allowed]'s, [*Over] (of a share: what a leader has frozen it may finish), [*Held], [*Uncounted], [*datakey.GoneError], [*datakey.AheadError] and,
// where noise is correlated, a [*correlated.OrderError].
//
// Step 12 of one report: from a batch that no commit can enter any more, to a noised
// share sealed to the collector.
func Once(ctx context.Context, s store.Releases, r *Request) ([]byte, error) {
	if err := Allowed(r.Task, r.Selection, r.Now, r.Skew); err != nil {
		return nil, err
	}
	if r.Kind == store.KindShare {
		if err := Overdue(r.Task, r.Selection, r.Now, r.Skew); err != nil {
			return nil, err
		}
	}
	vouched, err := r.Rates.Vouched(ctx, r.Task, r.Selection)
	if err != nil {
		return nil, err
	}
	// Now, for Draw must not write through the store.
	if err := r.Keys.Make(ctx); err != nil {
		return nil, err
	}
	var key *datakey.Key
	defer func() {
		if key != nil {
			key.Wipe()
		}
	}()
	var rate *status.Rate
	response, err := s.Release(ctx, &store.Release{
		Resource: r.Resource, Task: r.Task.ID, Kind: r.Kind,
		Selection: r.Selection, Count: r.Count, Checksum: r.Checksum,
		Debit: Mechanism(r.Task, r.Selection), Series: Series(r.Task), Sums: sums{r.Keys, r.Task},
		Draw: func(sum *vdaf.AggShare, frozen store.Frozen) (_ []int64, err error) {
			var held *Held
			if rate, held = Compare(r.Task, &frozen, vouched); held != nil {
				return nil, held
			}
			at, err := timeOf(r.Task, frozen.Span)
			if err != nil {
				return nil, err
			}
			if key, err = r.Keys.Held(at); err != nil {
				return nil, err
			}
			draw := make([]int64, r.Task.VDAF.Sizes().OutLen)
			sample(key, r.Task, sum, &frozen, draw)
			return draw, nil
		},
		Build: func(sum *vdaf.AggShare, frozen store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
			if r.Task.Series != nil {
				r.Task.Series.Strategy.Round(noise, noise)
			}
			if err := sum.AddSigned(noise); err != nil {
				return nil, nil, fmt.Errorf("release: add noise: %w", err)
			}
			share := sum.Append(nil)
			defer clear(share)
			ct, err := seal(r.Task, r.Role, r.Asked, share)
			if err != nil {
				return nil, nil, err
			}
			response, err := r.Finish(ct, frozen)
			return response, &store.Kept{
				Key: key.Serial, Box: key.Seal(boxAAD(r.Task, r.Kind, r.Resource), share),
				To: r.Task.SealedTo, Asked: r.Asked, Peer: r.Peer,
			}, err
		},
	})
	if err == nil && rate != nil { // else it was released before
		r.Rates.Note(r.Task.ID, rate)
	}
	return response, err
}

// sample fills draw with the noise for a sum. It depends on nothing that was chosen by
// chance or by a clock since the reports came: not on the names of batch and resource,
// nor on which request asked.
func sample(key *datakey.Key, t *task.Task, sum *vdaf.AggShare, f *store.Frozen, draw []int64) {
	share := sum.Append(nil)
	defer clear(share)
	noise := key.Noise()
	defer clear(noise[:])
	what := binary.BigEndian.AppendUint64(nil, uint64(f.Span.Start))
	what = binary.BigEndian.AppendUint64(what, uint64(f.Span.Duration))
	what = binary.BigEndian.AppendUint64(what, f.Count)
	sampler := t.Noise
	if v, ok := t.Calendar.View(f.Selection.Interval); ok && v.Rounds > 1 {
		sampler = v.Noise
	}
	noise.Sample(sampler, draw, t.ID[:], []byte(Mechanism(t, f.Selection)), what, share)
}

// seal seals a noised share to the collector.
func seal(t *task.Task, role dap.Role, asked, share []byte) (dap.HpkeCiphertext, error) {
	info := t.Dialect.AggregateShareInfo(role)
	enc, payload, err := t.CollectorKey.Seal(info, dap.AggregateShareAAD(t.ID, t.Config.Bytes(), asked), share)
	if err != nil {
		return dap.HpkeCiphertext{}, fmt.Errorf("release: seal: %w", err)
	}
	return dap.HpkeCiphertext{ConfigID: t.CollectorID, Enc: enc, Payload: payload}, nil
}

// sums seals what is kept of batch buckets for their views under the data key of their time.
type sums struct {
	keys *datakey.Set
	task *task.Task
}

// SealSum implements [store.Sums].
func (s sums) SealSum(bucket dap.Time, aad, sum []byte) (uint64, []byte, error) {
	at, err := s.task.Precision().Begin(bucket)
	if err != nil {
		return 0, nil, err
	}
	key, err := s.keys.Held(at)
	if err != nil {
		return 0, nil, err
	}
	defer key.Wipe()
	return key.Serial, key.Seal(aad, sum), nil
}

// OpenSum implements [store.Sums].
func (s sums) OpenSum(serial uint64, aad, box []byte) ([]byte, error) {
	key, err := s.keys.By(serial)
	if err != nil {
		return nil, err
	}
	defer key.Wipe()
	return key.Open(aad, box)
}

// Mechanisms names the noise of all of a task's releases, exactly.
func Mechanisms(t *task.Task) string {
	d := Mechanism(t, store.Selection{})
	if c := t.Calendar; c != nil && c.Views != nil {
		for _, v := range c.Views.Wider {
			d += "; " + wide(v)
		}
	}
	return d
}

// wide names the noise of a wider view.
func wide(v aggregator.View) string {
	return fmt.Sprintf("%s, in a view of %d rounds", Describe(v.Noise), v.Rounds)
}

// Mechanism names the noise of a release and its parameters, exactly, for the ledger.
func Mechanism(t *task.Task, sel store.Selection) string {
	if v, ok := t.Calendar.View(sel.Interval); ok && v.Rounds > 1 {
		return wide(v)
	}
	d := Describe(t.Noise)
	if s := t.Series; s != nil {
		d += fmt.Sprintf(" in units of 2^-%d; correlated over releases, c = %v, separation %d", s.Strategy.Bits(), s.Strategy.Coefficients(), s.Separation)
	}
	return d
}

// Describe names a mechanism and its parameters, exactly.
func Describe(n noise.Sampler) string {
	switch n := n.(type) {
	case *noise.DiscreteGaussian:
		num, den := n.Sigma2()
		return fmt.Sprintf("discrete gaussian, sigma^2 = %d/%d", num, den)
	case *noise.DiscreteLaplace:
		t, s := n.Scale()
		return fmt.Sprintf("discrete laplace, scale = %d/%d", t, s)
	case nil, noise.Zero:
		return "no noise"
	}
	panic(fmt.Sprintf("release: internal error: no description of %T", n))
}
