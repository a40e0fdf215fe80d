// Package verify runs the batch pipeline that leader and helper share: it opens what
// clients sealed, checks each report by itself, and runs the VDAF over blocks of reports
// on all cores.
//
// A batch is one DAP aggregation job. Each report ends with a verdict of its own, and one
// bad report never changes the outcome of another. The VDAF's state between its rounds
// stays in the [Batch], in memory, and nowhere else: after a crash it is computed again
// from what was sealed (docs/data-model.md). So is, without a crash, what a batch of
// large vectors holds beyond the task's Held blocks: memory does not grow with a job,
// whoever made it. A leader's own jobs are smaller.
//
// Which refusal is which (DAP-18 sections 4.5.3.2 and 4.5.3.3), in the order of the
// checks, cheapest first:
//
//	report_too_early         time beyond now and the clock skew allowed
//	task_not_started         time before the task's interval
//	task_expired             time after the task's interval
//	invalid_message          extensions unknown, unordered or repeated; plaintext share, or the VDAF's in it, malformed
//	hpke_unknown_config_id   no such key
//	hpke_decrypt_error       cannot open
//	invalid_message          where reports show credentials: none, or one that does not hold for the report (aggregator.Uncredited)
//	vdaf_verify_error        proof does not hold; the peer's share or message does not, or is malformed
//
// A report whose device has another one in the round is refused as report_replayed, by
// whoever asks the store (store.Spending).
package verify

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// A Pool bounds how many goroutines of a service verify at one time, over all batches.
// Safe for concurrent use.
type Pool struct {
	tokens chan struct{}
	turn   *aggregator.Turn
}

// NewPool returns a pool of workers; 0 means GOMAXPROCS. Where there is a turn, each
// block waits for it.
func NewPool(workers int, turn *aggregator.Turn) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return &Pool{make(chan struct{}, workers), turn}
}

// run calls f for every i in [0, n) on the pool's workers and returns when all calls have.
func (p *Pool) run(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, cap(p.tokens)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				p.tokens <- struct{}{}
				p.inTurn(func() { f(i) })
				<-p.tokens
			}
		})
	}
	wg.Wait()
}

// inTurn calls f when it is the service's turn.
func (p *Pool) inTurn(f func()) {
	if p.turn == nil {
		f()
		return
	}
	p.turn.Do(f)
}

// Params are what a batch has in common.
type Params struct {
	Task  *task.Task
	Role  dap.Role // leader or helper
	KeyID uint8    // of the verification key; the task has it
	Keys  *sealed.Keyring
	// Issuer is that beside this aggregator; nil where no task's reports show credentials.
	Issuer aggregator.Issuer
	Now    time.Time
	Skew   time.Duration
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

	pool    *Pool
	task    *task.Task
	role    dap.Role
	prm     Params
	reports []Report
	held    atomic.Int64 // blocks that keep their state
	credits credits

	errs   []error // the same for the VDAF, which also sets them
	shares []byte  // own verifier shares
	msgs   []byte  // verifier messages
	blocks []block
}

type block struct {
	lo, hi int
	state  vdaf.State // nil where it was not held
}

// Begin opens, checks and verifies the reports: the leader's first step, or all the steps
// of a helper whose VDAF has one round. Call [Batch.Close] when done with the batch,
// which reads the reports until then. It fails with the context, and where the issuer's
// keys cannot be read now.
func (p *Pool) Begin(ctx context.Context, prm Params, reports []Report) (*Batch, error) {
	n, sizes := len(reports), prm.Task.VDAF.Sizes()
	b := &Batch{
		Errs: make([]dap.ReportError, n), errs: make([]error, n),
		pool: p, task: prm.Task, role: prm.Role, prm: prm, reports: reports,
		shares: make([]byte, n*sizes.VerifierShare),
	}
	if prm.Role == dap.RoleHelper {
		b.msgs = make([]byte, n*sizes.VerifierMessage)
	}
	if err := b.epochs(ctx); err != nil {
		return nil, err
	}
	for lo := 0; lo < n; lo += prm.Task.Block {
		b.blocks = append(b.blocks, block{lo: lo, hi: min(n, lo+prm.Task.Block)})
	}
	p.run(len(b.blocks), func(i int) {
		if ctx.Err() == nil {
			b.begin(&b.blocks[i])
		}
	})
	if err := ctx.Err(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// begin takes one block through all steps on one worker, while its bytes are in the cache.
func (b *Batch) begin(blk *block) {
	sizes := b.task.VDAF.Sizes()
	errs := b.errs[blk.lo:blk.hi]
	own := b.shares[blk.lo*sizes.VerifierShare : blk.hi*sizes.VerifierShare]
	blk.state = b.task.State()
	b.verifyInit(blk, blk.state, own, errs, true)
	if b.role == dap.RoleHelper {
		reports := b.reports[blk.lo:blk.hi]
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
		msgs := b.messages(blk)
		b.task.VDAF.Combine(b.task.Context, [][]byte{leader, own}, msgs, errs)
		b.task.VDAF.Check(blk.state, msgs, errs)
	}
	b.settle(blk)
	if b.held.Add(1) > int64(b.task.Held) {
		b.task.PutState(blk.state)
		blk.state = nil
	}
}

// messages are the verifier messages of a block.
func (b *Batch) messages(blk *block) []byte {
	size := b.task.VDAF.Sizes().VerifierMessage
	return b.msgs[blk.lo*size : blk.hi*size]
}

// verifyInit opens the reports of a block and takes the VDAF's first step on those that
// have no error. Credentials are looked at the first time: of the same bytes they say the
// same again.
func (b *Batch) verifyInit(blk *block, state vdaf.State, own []byte, errs []error, first bool) {
	t, n := b.task, blk.hi-blk.lo
	reports := b.reports[blk.lo:blk.hi]
	plain := make([]dap.PlaintextInputShare, n)
	aads := b.open(&b.prm, reports, plain, errs)
	if t.Credentials != nil && first {
		b.credit(blk.lo, reports, plain, aads, errs)
	}

	in := vdaf.Reports{Nonces: make([][vdaf.NonceSize]byte, n), Public: make([][]byte, n), Inputs: make([][]byte, n)}
	for i := range reports {
		in.Nonces[i] = reports[i].Share.Metadata.ID
		in.Public[i] = reports[i].Share.PublicShare
		in.Inputs[i] = plain[i].Payload
	}
	agg := 0
	if b.role == dap.RoleHelper {
		agg = 1
	}
	t.VDAF.VerifyInit(state, t.Keys[b.prm.KeyID], t.Context, agg, &in, own, errs)
	for i := range errs {
		if errors.Is(errs[i], vdaf.ErrDecode) {
			errs[i] = dap.InvalidMessage // what the client sent; later steps decode what the peer sent
		}
	}
}

// ErrChanged: what was verified before cannot be verified again. Nothing of the batch may
// be committed.
var ErrChanged = errors.New("verify: a report that held does not hold any more")

// with calls f with the state of a block, as the block's first step left it: the one that
// is held, or one that is computed again from the same sealed shares.
func (b *Batch) with(blk *block, f func(vdaf.State)) error {
	if blk.state != nil {
		f(blk.state)
		return nil
	}
	state := b.task.State()
	defer b.task.PutState(state)
	before := b.errs[blk.lo:blk.hi]
	errs := slices.Clone(before)
	b.verifyInit(blk, state, make([]byte, len(errs)*b.task.VDAF.Sizes().VerifierShare), errs, false)
	for i := range errs {
		if (errs[i] == nil) != (before[i] == nil) {
			return ErrChanged
		}
	}
	f(state)
	return nil
}

// settle turns the VDAF's refusals of a block into verdicts.
func (b *Batch) settle(blk *block) {
	for i := blk.lo; i < blk.hi; i++ {
		if b.errs[i] == nil {
			continue
		}
		code := dap.VDAFVerifyError
		errors.As(b.errs[i], &code)
		b.Errs[i] = b.task.Dialect.Said(code)
	}
}

// open checks what needs no key, opens, and decodes. It returns what the shares are bound
// to.
func (b *Batch) open(prm *Params, reports []Report, plain []dap.PlaintextInputShare, errs []error) (aads [][]byte) {
	t := b.task
	items := make([]sealed.Item, len(reports))
	var known []uint16
	if t.Credentials != nil {
		known = []uint16{dap.ExtPresentation}
	}
	var aad []byte
	for i := range reports {
		if errs[i] != nil {
			items[i].Err = errs[i]
			continue
		}
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
	prm.Keys.OpenBatch(t.Dialect.InputShareInfo(b.role), items, sealed.Serial)
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
			if err != nil || !private.Increasing() || !public.Disjoint(private) {
				errs[i] = dap.InvalidMessage
			} else if private.Unknown(known...) != nil {
				errs[i] = dap.UnsupportedExtension
			}
		}
	}
	aads = make([][]byte, len(items))
	for i := range items {
		aads[i] = items[i].AAD
	}
	return aads
}

// Metadata checks what stands in the clear in a report and returns zero or its refusal in
// an aggregation job.
func Metadata(t *task.Task, m *dap.ReportMetadata, now time.Time, skew time.Duration) dap.ReportError {
	interval, bounded := t.Interval()
	switch {
	case t.TooEarly(m.Time, now, skew):
		return dap.ReportTooEarly
	case bounded && interval.Before(m.Time):
		return dap.TaskNotStarted
	case bounded && interval.After(m.Time):
		return dap.TaskExpired
	case !t.Stamped(m.Time), !m.PublicExtensions.Increasing():
		return dap.InvalidMessage
	case m.PublicExtensions.Unknown() != nil: // the drafts define none
		return dap.UnsupportedExtension
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

// Check finishes the reports at the leader with the helper's messages; message i is nil
// where report i is refused, or is to be refused as vdaf_verify_error. It fails with
// [ErrChanged], or not at all.
func (b *Batch) Check(messages [][]byte) error {
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
		var err error
		b.pool.inTurn(func() {
			err = b.with(blk, func(s vdaf.State) { b.task.VDAF.Check(s, b.messages(blk), b.errs[blk.lo:blk.hi]) })
		})
		if err != nil {
			return err
		}
		b.settle(blk)
	}
	return nil
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

// Fold adds the output share of every report with keep[i] to the share of its batch, of
// which there are n; a nil index means all go to the first. The share of a batch
// that gets nothing is nil. Call it once. It fails with [ErrChanged], or not at all.
func (b *Batch) Fold(keep []bool, bucket []int32, n int) ([]*vdaf.AggShare, error) {
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
		// No turn is waited for: this is within a transaction of the commit.
		err := b.with(blk, func(s vdaf.State) {
			b.task.VDAF.Accumulate(s, keep[blk.lo:blk.hi], in, aggs, b.errs[blk.lo:blk.hi])
		})
		if err != nil {
			return nil, err
		}
	}
	return aggs, nil
}

// Close gives the scratch memory back. The batch must not be used after it; again is
// harmless.
func (b *Batch) Close() {
	for i := range b.blocks {
		if s := b.blocks[i].state; s != nil {
			b.task.PutState(s)
			b.blocks[i].state = nil
		}
	}
}
