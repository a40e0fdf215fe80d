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

// ErrCoins: the recipe's devices decide by coins, which package participate tosses; to
// send whatever is given would break what the recipe promises.
var ErrCoins = errors.New("client: this recipe is answered through package participate")

// scratch is memory for one report in the making. It held plaintext and is cleared before
// it is kept.
type scratch struct {
	aad       []byte
	plaintext []byte
}

// Prepare makes the report of an answer given at time t, of which it tells the round and
// no more (recipe.ReportTime). It uses no network and needs keys: [ErrNoKeys] before the
// first [Client.Refresh]. Every call makes a new report with a fresh id and fresh
// randomness. It fails with *[ValueError] and [ErrWindow] if v or t do not fit the
// recipe.
//
// It applies the recipe's randomizer and tosses no coin: for recipes with coins, package
// participate calls it with what they leave.
//
// Step 1 of one report: from an answer on the device, to the measurement that is shared.
func (c *Client) Prepare(v Value, t time.Time) (dap.Report, error) {
	m, err := c.prepare(v, t)
	if err != nil {
		return dap.Report{}, err
	}
	m.wipe()
	return m.report, nil
}

// made is a report with what it was sealed from, so that it can be sealed to other keys.
type made struct {
	report  dap.Report
	inputs  [][]byte          // the input shares, the leader's first
	private [2]dap.Extensions // that are sealed beside them
	keys    keyPair
}

// wipe clears the input shares.
func (m *made) wipe() {
	for _, b := range m.inputs {
		clear(b)
	}
}

// keyPair is what a report was sealed to.
type keyPair struct{ leader, helper *sealingKey }

func (c *Client) prepare(v Value, t time.Time) (*made, error) {
	if now := c.o.Now(); c.leader.usable(now) == nil || c.helper.usable(now) == nil {
		return nil, ErrNoKeys
	}
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return nil, fmt.Errorf("client: report time: %w", err)
	}
	unit = c.recipe.ReportTime(unit)
	if w, ok := c.recipe.Window.(recipe.Between); ok && (unit < w.Start || unit >= w.End) {
		return nil, ErrWindow
	}
	if c.blur != nil || c.project != nil {
		if v.kind != isNothing {
			if err := check(c.recipe, v); err != nil {
				return nil, err
			}
		}
	}
	if c.project != nil && v.kind != isNothing {
		v = c.project(v)
	}
	if c.blur != nil {
		if v, err = c.blur(v); err != nil {
			return nil, err
		}
	}
	m := &made{report: dap.Report{Metadata: dap.ReportMetadata{Time: unit}}}
	rand.Read(m.report.Metadata.ID[:])
	split, err := c.shard(c.context, v, (*[16]byte)(&m.report.Metadata.ID))
	if err != nil {
		return nil, err
	}
	m.report.PublicShare, m.inputs = split.Public, split.Inputs
	if err := c.present(m); err != nil {
		m.wipe()
		return nil, err
	}
	return m, c.seal(m)
}

// seal encrypts both input shares of a report to the current keys, bound to its task,
// metadata and public share (DAP-18 section 4.4.2.1).
//
// Step 4 of one report: from its input shares, to a report that can be uploaded, which
// nobody on the way can open.
func (c *Client) seal(m *made) error {
	now := c.o.Now()
	m.keys = keyPair{c.leader.usable(now), c.helper.usable(now)}
	if m.keys.leader == nil || m.keys.helper == nil {
		return ErrNoKeys
	}
	r := &m.report
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
	}{{&c.leader, m.keys.leader, &r.Leader}, {&c.helper, m.keys.helper, &r.Helper}} {
		var err error
		s.plaintext, err = dap.PlaintextInputShare{PrivateExtensions: m.private[i], Payload: m.inputs[i]}.Append(s.plaintext[:0])
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

// A Refusal says which value of a [Client.Report] the leader refused, and why.
type Refusal struct {
	Index  int
	Reason dap.ReportError
}

// RefusalsError: the leader refused some of the reports that it was sent; all others it
// has acknowledged. It wraps the reason of the first.
type RefusalsError struct{ Refused []Refusal } // at least one

func (e *RefusalsError) Error() string {
	if len(e.Refused) == 1 {
		return "client: the leader refused the report: " + e.Refused[0].Reason.String()
	}
	return fmt.Sprintf("client: the leader refused %d reports, the first because of %v", len(e.Refused), e.Refused[0].Reason)
}
func (e *RefusalsError) Unwrap() error { return e.Refused[0].Reason }

// Report sends answers, all given now, each as one report. A report that was sealed to an
// outdated key is sealed anew, once: it stays the same report, of the same shares and
// noise, so that a leader that only says so has nothing that counts twice. It holds about
// 16 MiB of reports in memory, and their shares.
//
// It fails with *[RefusalsError] where the leader refuses reports. After any other error
// some may have been acknowledged, and it cannot be said which: those are [ErrCoins], for
// a recipe of coins, and as of [Client.Prepare], [Client.Refresh] and [Client.Upload].
func (c *Client) Report(ctx context.Context, values ...Value) error {
	if c.recipe.Sampled() {
		return ErrCoins
	}
	now := c.o.Now()
	indices := make([]int, len(values))
	for i := range indices {
		indices[i] = i
	}
	var refused []Refusal
	for len(indices) > 0 {
		n, some, err := c.sendSome(ctx, values, indices, now)
		if err != nil {
			return err
		}
		refused, indices = append(refused, some...), indices[n:]
	}
	if len(refused) > 0 {
		return &RefusalsError{refused}
	}
	return nil
}

// sendSome makes and uploads as many reports as fill a few requests, and returns how many
// of the indices that were. Those that were sealed to an outdated key are sealed anew and
// uploaded again.
func (c *Client) sendSome(ctx context.Context, values []Value, indices []int, now time.Time) (int, []Refusal, error) {
	if err := c.Refresh(ctx); err != nil {
		return 0, nil, err
	}
	var all []*made
	defer func() {
		for _, m := range all {
			m.wipe()
		}
	}()
	index := make(map[dap.ReportID]int)
	for size := 0; len(all) < len(indices) && size < sendBytes; size += all[len(all)-1].report.Size() {
		m, err := c.prepare(values[indices[len(all)]], now)
		if err != nil {
			return 0, nil, err
		}
		index[m.report.Metadata.ID] = len(all)
		all = append(all, m)
	}
	var final []Refusal
	for try, left := 0, all; len(left) > 0; try++ {
		reports := make([]dap.Report, len(left))
		for i, m := range left {
			reports[i] = m.report
		}
		statuses, err := c.Upload(ctx, reports)
		if err != nil {
			return 0, nil, err
		}
		left = nil
		for _, s := range statuses {
			at := index[s.ID]
			if s.Error.Outdated() {
				// The leader knows its own ids only, but both keys may have been turned
				// over.
				c.leader.forget(all[at].keys.leader)
				c.helper.forget(all[at].keys.helper)
				if try == 0 {
					left = append(left, all[at])
					continue
				}
			}
			final = append(final, Refusal{indices[at], s.Error})
		}
		if len(left) == 0 {
			break
		}
		if err := c.Refresh(ctx); err != nil {
			return 0, nil, err
		}
		for _, m := range left {
			if err := c.seal(m); err != nil {
				return 0, nil, err
			}
		}
	}
	return len(all), final, nil
}

// sendBytes bounds the reports that Report holds at a time.
const sendBytes = 16 << 20
