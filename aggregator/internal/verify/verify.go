// Package verify is the batch pipeline that leader and helper share: open what clients sealed, check what can be checked of
// one report, and run the VDAF over blocks of reports on all cores.
//
// A batch is one DAP aggregation job. Each report ends with a verdict of its own, and one bad report never changes the
// outcome of another. What the VDAF holds between its rounds stays in the [Batch], in memory, and nowhere else: after a
// crash it is computed again from what was sealed (DESIGN section 5).
//
// Which refusal is which (DAP-18 sections 4.5.3.2 and 4.5.3.3), in the order of the checks, cheapest first:
//
//	report_too_early         time beyond now and the clock skew allowed
//	task_not_started         time before the task's interval
//	task_expired             time after the task's interval
//	invalid_message          extensions unknown, unordered or repeated; plaintext share malformed
//	hpke_unknown_config_id   no such key
//	hpke_decrypt_error       cannot open
//	vdaf_verify_error        share, message or proof does not hold
package verify

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// A Pool bounds how many goroutines of a service verify at one time, over all batches. Safe for concurrent use.
type Pool struct{ tokens chan struct{} }

// NewPool returns a pool of that many workers; 0 means GOMAXPROCS.
func NewPool(workers int) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return &Pool{make(chan struct{}, workers)}
}

// run calls f for every i in [0, n) on the pool's workers and returns when all calls have.
func (p *Pool) run(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, cap(p.tokens)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				p.tokens <- struct{}{}
				f(i)
				<-p.tokens
			}
		})
	}
	wg.Wait()
}

// Params are what a batch has in common.
type Params struct {
	Task  *task.Task
	Role  dap.Role // leader or helper
	KeyID uint8    // of the verification key; the task has it
	Keys  *sealed.Keyring
	Now   time.Time
	Skew  time.Duration
}

// A Report is one report as this aggregator got it. It is only read.
type Report struct {
	Share dap.ReportShare
	Peer  []byte // helper: the leader's first ping-pong message
}

// A Batch is a verified batch that waits for its commit. Not safe for concurrent use.
type Batch struct {
	// Errs has the verdict of each report; zero where the proof holds so far.
	Errs []dap.ReportError

	task   *task.Task
	role   dap.Role
	errs   []error // the same for the VDAF, which also sets them
	shares []byte  // own verifier shares
	msgs   []byte  // verifier messages
	blocks []block
}

type block struct {
	lo, hi int
	state  vdaf.State
}

// Begin opens, checks and verifies the reports: the leader's first step, or all the steps of a helper whose VDAF has one
// round. Call [Batch.Close] when done with the batch. The only error is the context's.
func (p *Pool) Begin(ctx context.Context, prm Params, reports []Report) (*Batch, error) {
	n, sizes := len(reports), prm.Task.VDAF.Sizes()
	b := &Batch{
		Errs: make([]dap.ReportError, n), errs: make([]error, n),
		task: prm.Task, role: prm.Role,
		shares: make([]byte, n*sizes.VerifierShare),
	}
	if prm.Role == dap.RoleHelper {
		b.msgs = make([]byte, n*sizes.VerifierMessage)
	}
	for lo := 0; lo < n; lo += prm.Task.Block {
		b.blocks = append(b.blocks, block{lo: lo, hi: min(n, lo+prm.Task.Block)})
	}
	p.run(len(b.blocks), func(i int) {
		if ctx.Err() == nil {
			b.begin(&prm, &b.blocks[i], reports)
		}
	})
	if err := ctx.Err(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// begin takes one block through all steps on one worker, while its bytes are in the cache.
func (b *Batch) begin(prm *Params, blk *block, reports []Report) {
	t, n := b.task, blk.hi-blk.lo
	reports, errs := reports[blk.lo:blk.hi], b.errs[blk.lo:blk.hi]
	plain := make([]dap.PlaintextInputShare, n)
	b.open(prm, reports, plain, errs)

	in := vdaf.Reports{Nonces: make([][vdaf.NonceSize]byte, n), Public: make([][]byte, n), Inputs: make([][]byte, n)}
	for i := range reports {
		in.Nonces[i] = reports[i].Share.Metadata.ID
		in.Public[i] = reports[i].Share.PublicShare
		in.Inputs[i] = plain[i].Payload
	}
	blk.state = t.State()
	agg := 0
	if b.role == dap.RoleHelper {
		agg = 1
	}
	sizes := t.VDAF.Sizes()
	own := b.shares[blk.lo*sizes.VerifierShare : blk.hi*sizes.VerifierShare]
	t.VDAF.VerifyInit(blk.state, t.Keys[prm.KeyID], t.Context, agg, &in, own, errs)
	if b.role == dap.RoleHelper {
		leader := make([]byte, len(own))
		for i := range reports {
			if errs[i] != nil {
				continue
			}
			m, err := vdaf.ReadPingPong(reports[i].Peer)
			if err != nil || m.Type != vdaf.PingPongInitialize || len(m.Share) != sizes.VerifierShare {
				errs[i] = dap.VDAFVerifyError
				continue
			}
			copy(leader[i*sizes.VerifierShare:], m.Share)
		}
		msgs := b.msgs[blk.lo*sizes.VerifierMessage : blk.hi*sizes.VerifierMessage]
		t.VDAF.Combine(t.Context, [][]byte{leader, own}, msgs, errs)
		t.VDAF.Check(blk.state, msgs, errs)
	}
	b.settle(blk)
}

// settle turns the VDAF's refusals of a block into verdicts.
func (b *Batch) settle(blk *block) {
	for i := blk.lo; i < blk.hi; i++ {
		if b.errs[i] == nil {
			continue
		}
		code := dap.VDAFVerifyError
		errors.As(b.errs[i], &code)
		b.Errs[i] = code
	}
}

// open checks what needs no key, opens, and decodes.
func (b *Batch) open(prm *Params, reports []Report, plain []dap.PlaintextInputShare, errs []error) {
	t := b.task
	items := make([]sealed.Item, len(reports))
	var aad []byte
	for i := range reports {
		s := &reports[i].Share
		if code := Metadata(t, &s.Metadata, prm.Now, prm.Skew); code != 0 {
			errs[i], items[i].Err = code, code
			continue
		}
		at := len(aad)
		aad = dap.AppendInputShareAAD(aad, t.ID, t.Config.Bytes(), &s.Metadata, s.PublicShare)
		items[i] = sealed.Item{
			ID: s.Ciphertext.ConfigID, Enc: s.Ciphertext.Enc, Ciphertext: s.Ciphertext.Payload, AAD: aad[at:len(aad):len(aad)],
		}
	}
	prm.Keys.OpenBatch(dap.InputShareInfo(b.role), items, sealed.Serial)
	for i := range items {
		var err error
		switch {
		case errs[i] != nil:
		case errors.Is(items[i].Err, sealed.ErrUnknownKey):
			errs[i] = dap.HpkeUnknownConfigID
		case items[i].Err != nil:
			errs[i] = dap.HpkeDecryptError
		default:
			plain[i], err = dap.ReadPlaintextInputShare(items[i].Plaintext)
			public, private := reports[i].Share.Metadata.PublicExtensions, plain[i].PrivateExtensions
			if err != nil || !knownExtensions(private) || !public.Disjoint(private) {
				errs[i] = dap.InvalidMessage
			}
		}
	}
}

// knownExtensions says whether a list of report extensions is in order and holds no type that we do not know. The draft
// defines none.
func knownExtensions(e dap.Extensions) bool { return e.Increasing() && e.Unknown() == nil }

// Metadata checks what stands in the clear in a report and returns zero or its refusal in an aggregation job.
func Metadata(t *task.Task, m *dap.ReportMetadata, now time.Time, skew time.Duration) dap.ReportError {
	interval, bounded := t.Interval()
	switch {
	case t.TooEarly(m.Time, now, skew):
		return dap.ReportTooEarly
	case bounded && interval.Before(m.Time):
		return dap.TaskNotStarted
	case bounded && interval.After(m.Time):
		return dap.TaskExpired
	case !knownExtensions(m.PublicExtensions):
		return dap.InvalidMessage
	}
	return 0
}

// Share is report i's own verifier share.
func (b *Batch) Share(i int) []byte {
	n := b.task.VDAF.Sizes().VerifierShare
	return b.shares[i*n : (i+1)*n]
}

// Message is report i's verifier message, at the helper.
func (b *Batch) Message(i int) []byte {
	n := b.task.VDAF.Sizes().VerifierMessage
	return b.msgs[i*n : (i+1)*n]
}

// Refuse settles report i by hand; it stays refused.
func (b *Batch) Refuse(i int, code dap.ReportError) {
	if b.errs[i] == nil {
		b.errs[i], b.Errs[i] = code, code
	}
}

// Check finishes the reports at the leader with the helper's messages; message i is nil where report i is refused, or is
// to be refused as vdaf_verify_error.
func (b *Batch) Check(messages [][]byte) {
	size := b.task.VDAF.Sizes().VerifierMessage
	b.msgs = make([]byte, len(b.Errs)*size)
	for i, m := range messages {
		if b.errs[i] == nil && (m == nil || len(m) != size) {
			b.Refuse(i, dap.VDAFVerifyError)
			continue
		}
		copy(b.msgs[i*size:], m)
	}
	for i := range b.blocks {
		blk := &b.blocks[i]
		b.task.VDAF.Check(blk.state, b.msgs[blk.lo*size:blk.hi*size], b.errs[blk.lo:blk.hi])
		b.settle(blk)
	}
}

// Rejected counts the verdicts so far.
func (b *Batch) Rejected() map[dap.ReportError]uint64 {
	m := make(map[dap.ReportError]uint64)
	for _, code := range b.Errs {
		if code != 0 {
			m[code]++
		}
	}
	return m
}

// Fold adds the output share of every report with keep[i] to the share of its batch, of which there are n; a nil bucket
// means all go to the first. The share of a batch that gets nothing is nil. Call it once.
func (b *Batch) Fold(keep []bool, bucket []int32, n int) []*vdaf.AggShare {
	aggs := make([]*vdaf.AggShare, n)
	for i := range keep {
		if !keep[i] || b.errs[i] != nil {
			continue
		}
		at := int32(0)
		if bucket != nil {
			at = bucket[i]
		}
		if aggs[at] == nil {
			aggs[at] = b.task.VDAF.NewAggShare()
		}
	}
	for i := range b.blocks {
		blk := &b.blocks[i]
		var in []int32
		if bucket != nil {
			in = bucket[blk.lo:blk.hi]
		}
		b.task.VDAF.Accumulate(blk.state, keep[blk.lo:blk.hi], in, aggs, b.errs[blk.lo:blk.hi])
	}
	return aggs
}

// Close gives the scratch memory back. The batch must not be used after it; again is harmless.
func (b *Batch) Close() {
	for i := range b.blocks {
		if s := b.blocks[i].state; s != nil {
			b.task.PutState(s)
			b.blocks[i].state = nil
		}
	}
}
