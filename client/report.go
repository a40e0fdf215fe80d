package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// ErrWindow: the recipe takes no reports of this time.
var ErrWindow = errors.New("client: outside the recipe's window")

// ErrCoins: the recipe's devices decide by coins, which package participate tosses; to send whatever is given would break
// what the recipe promises.
var ErrCoins = errors.New("client: this recipe is answered through package participate")

// scratch is memory for one report in the making. It held plaintext and is cleared before it is kept.
type scratch struct {
	aad       []byte
	plaintext []byte
}

// Prepare makes the report of an answer given at time t, which it truncates to the recipe's time precision. It uses no
// network and needs keys: [ErrNoKeys] before the first [Client.Refresh]. Every call makes a new report with a fresh id
// and fresh randomness. It fails with *[ValueError] and [ErrWindow] if v or t do not fit the recipe.
//
// It applies the recipe's randomizer and tosses no coin: for recipes with coins, package participate calls it with what they
// leave.
//
// Step 1 of one report: from an answer on the device, to the measurement that is shared.
func (c *Client) Prepare(v Value, t time.Time) (dap.Report, error) {
	report, _, err := c.prepare(v, t)
	return report, err
}

// keyPair is what a report was sealed to.
type keyPair struct{ leader, helper *sealingKey }

func (c *Client) prepare(v Value, t time.Time) (dap.Report, keyPair, error) {
	keys := keyPair{c.leader.current(), c.helper.current()}
	if keys.leader == nil || keys.helper == nil {
		return dap.Report{}, keys, ErrNoKeys
	}
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return dap.Report{}, keys, fmt.Errorf("client: report time: %w", err)
	}
	if w, ok := c.recipe.Window.(recipe.Between); ok && (unit < w.Start || unit >= w.End) {
		return dap.Report{}, keys, ErrWindow
	}
	if c.blur != nil || c.project != nil {
		if v.kind != isNothing {
			if err := c.check(v); err != nil {
				return dap.Report{}, keys, err
			}
		}
	}
	if c.project != nil && v.kind != isNothing {
		v = c.project(v)
	}
	if c.blur != nil {
		if v, err = c.blur(v); err != nil {
			return dap.Report{}, keys, err
		}
	}
	r := dap.Report{Metadata: dap.ReportMetadata{Time: unit}}
	rand.Read(r.Metadata.ID[:])
	split, err := c.shard(c.context, v, (*[16]byte)(&r.Metadata.ID))
	if err != nil {
		return dap.Report{}, keys, err
	}
	r.PublicShare = split.Public
	err = c.seal(&r, split.Inputs, keys)
	return r, keys, err
}

// seal encrypts both input shares of a report, bound to its task, metadata and public share (DAP-18 section 4.4.2.1).
//
// Step 4 of one report: from its input shares, to a report that can be uploaded, which nobody on the way can open.
func (c *Client) seal(r *dap.Report, inputs [][]byte, keys keyPair) error {
	s := c.pool.Get().(*scratch)
	defer func() {
		clear(s.plaintext[:cap(s.plaintext)])
		c.pool.Put(s)
	}()
	s.aad = dap.AppendInputShareAAD(s.aad[:0], c.taskID, c.task.Bytes(), &r.Metadata, r.PublicShare)
	for i, to := range []struct {
		aggregator *aggregator
		key        *sealingKey
		sealed     *dap.HpkeCiphertext
	}{{&c.leader, keys.leader, &r.Leader}, {&c.helper, keys.helper, &r.Helper}} {
		var err error
		s.plaintext, err = dap.PlaintextInputShare{Payload: inputs[i]}.Append(s.plaintext[:0])
		if err != nil {
			return fmt.Errorf("client: encode the %s's share: %w", to.aggregator.role, err)
		}
		enc, payload, err := to.key.public.Seal(to.aggregator.info, s.aad, s.plaintext)
		if err != nil {
			return fmt.Errorf("client: seal the %s's share: %w", to.aggregator.role, err)
		}
		*to.sealed = dap.HpkeCiphertext{ConfigID: to.key.id, Enc: enc, Payload: payload}
	}
	return nil
}

// Report sends one answer, given now. A report that was sealed to an outdated key is made anew, once. It fails with
// [dap.ReportError] if the leader refuses the report, and as [Client.Prepare], [Client.Refresh] and [Client.Upload] do.
func (c *Client) Report(ctx context.Context, v Value) error {
	refused, err := c.Send(ctx, []Value{v})
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return refused[0].Reason
	}
	return nil
}

// A Refusal says which value of a [Client.Send] the leader refused, and why.
type Refusal struct {
	Index  int
	Reason dap.ReportError
}

// Send sends many answers, all given now, as [Client.Report] sends one. It returns those that the leader refused; all
// others it has acknowledged. After an error some may have been acknowledged, and it cannot be said which. It fails with
// [ErrCoins] for a recipe of coins. It holds about 16 MiB of reports in memory.
func (c *Client) Send(ctx context.Context, values []Value) ([]Refusal, error) {
	if c.recipe.Participation != (recipe.Always{}) {
		return nil, ErrCoins
	}
	now := c.o.Now()
	indices := make([]int, len(values))
	for i := range indices {
		indices[i] = i
	}
	refused, err := c.sendOnce(ctx, values, indices, now)
	if err != nil {
		return nil, err
	}
	var final []Refusal
	var again []int
	for _, r := range refused {
		if r.Reason == dap.OutdatedConfig {
			again = append(again, r.Index)
		} else {
			final = append(final, r)
		}
	}
	if len(again) > 0 {
		refused, err = c.sendOnce(ctx, values, again, now)
		if err != nil {
			return nil, err
		}
		final = append(final, refused...)
	}
	return final, nil
}

// sendOnce makes and uploads new reports for the values at indices. Keys that the leader calls outdated are dropped.
func (c *Client) sendOnce(ctx context.Context, values []Value, indices []int, now time.Time) ([]Refusal, error) {
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	var refused []Refusal
	for len(indices) > 0 {
		n, some, err := c.sendSome(ctx, values, indices, now)
		if err != nil {
			return nil, err
		}
		refused, indices = append(refused, some...), indices[n:]
	}
	return refused, nil
}

// sendSome makes and uploads as many reports as fill a few requests, and returns how many of the indices that were.
func (c *Client) sendSome(ctx context.Context, values []Value, indices []int, now time.Time) (int, []Refusal, error) {
	var reports []dap.Report
	index := make(map[dap.ReportID]int)
	keys := make(map[dap.ReportID]keyPair)
	for size := 0; len(reports) < len(indices) && size < sendBytes; size += reports[len(reports)-1].Size() {
		at := indices[len(reports)]
		r, sealedTo, err := c.prepare(values[at], now)
		if err != nil {
			return 0, nil, err
		}
		reports = append(reports, r)
		index[r.Metadata.ID], keys[r.Metadata.ID] = at, sealedTo
	}
	statuses, err := c.Upload(ctx, reports)
	if err != nil {
		return 0, nil, err
	}
	refused := make([]Refusal, len(statuses))
	for i, s := range statuses {
		refused[i] = Refusal{index[s.ID], s.Error}
		if s.Error == dap.OutdatedConfig {
			// The leader knows its own ids only, but both keys may have been turned over.
			c.leader.forget(keys[s.ID].leader)
			c.helper.forget(keys[s.ID].helper)
		}
	}
	return len(reports), refused, nil
}

// sendBytes bounds the reports that Send holds at a time.
const sendBytes = 16 << 20
