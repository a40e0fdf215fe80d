package party

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/onion"
)

// Words by which what arrives is counted: a closed set.
const (
	wordTaken   = "taken"   // a contribution, on the disk
	wordAgain   = "again"   // one that was there
	wordLate    = "late"    // one whose round is closed
	wordStray   = "stray"   // one of a round without a key: over, or far away
	wordSize    = "size"    // one of another size
	wordOver    = "over"    // one of a round that has all that it takes
	wordPiece   = "piece"   // of a batch
	wordRefused = "refused" // a batch, or a piece of one

	wordUnproved = "unproved" // what opened, with a token that does not hold
	wordSpent    = "spent"    // with one that was counted before
)

// Words lists them.
func Words() []string {
	return []string{wordTaken, wordAgain, wordLate, wordStray, wordSize, wordOver, wordPiece, wordRefused, wordUnproved, wordSpent}
}

// Errors of what arrives, beside those of package onion and signed.
var (
	// ErrFull: as much as may be is on the disk.
	ErrFull = errors.New("shuffle: full")
	// ErrBroken: the disk failed; what was sent may be there or not, and is sent again.
	ErrBroken = errors.New("shuffle: the disk failed")
	// ErrRound: there is no such round here, or it is over.
	ErrRound = errors.New("shuffle: no such round here")
	// ErrConflict: another batch of that round was announced or taken, and one is all
	// there is.
	ErrConflict = errors.New("shuffle: another batch of the round")
	// ErrNotYet: the round is not over by this party's clock. It may be sent later.
	ErrNotYet = errors.New("shuffle: the round is not over yet")
	// ErrOffset: the piece does not begin where the last one ended.
	ErrOffset = errors.New("shuffle: not the next piece")
)

// contributions takes envelopes that stand one behind another. Those that cannot count are
// dropped and counted, and their sender is not told: one answer for all. It fails with
// [onion.ErrEnvelope] where the bytes are no envelopes, [ErrFull] or [ErrBroken], and then
// those that are not on the disk are to be sent again.
func (p *Party) contributions(ctx context.Context, x *shuffle, b []byte) error {
	groups, sent := make(map[uint64][][]byte), int64(len(b))
	size := x.Shape(0).Record(p.o.Role)
	var odd uint64
	for len(b) > 0 {
		round, envelope, rest, err := onion.ReadEnvelope(b)
		if err != nil {
			return err
		}
		if b = rest; len(envelope) != size {
			odd++
			continue
		}
		groups[round] = append(groups[round], envelope)
	}
	p.count(x, wordSize, odd)
	if !p.roomy(sent) {
		return fmt.Errorf("%w: the disk", ErrFull)
	}
	for n, envelopes := range groups {
		p.mu.Lock()
		r := x.rounds[n]
		p.mu.Unlock()
		if r == nil {
			p.count(x, wordStray, uint64(len(envelopes)))
			continue
		}
		if err := p.gather(ctx, r, envelopes); err != nil {
			return err
		}
	}
	return nil
}

// gather takes envelopes of one round.
func (p *Party) gather(ctx context.Context, r *round, envelopes [][]byte) error {
	r.gate.RLock()
	defer r.gate.RUnlock()
	if r.closed || !p.o.Clock.Now().Before(r.shuffle.Flush(r.number)) {
		p.count(r.shuffle, wordLate, uint64(len(envelopes)))
		return nil
	}
	var fresh [][]byte
	names := make(map[digest]struct{})
	var over uint64
	r.mu.Lock()
	// Those on their way to the disk take room too, however many come at one time.
	room := p.most(r.shuffle) - len(r.seen) - r.coming
	for _, e := range envelopes {
		d := digestOf(e)
		_, known := r.seen[d]
		if _, twice := names[d]; known || twice {
			continue
		}
		if len(fresh) >= room {
			over++
			continue
		}
		names[d] = struct{}{}
		fresh = append(fresh, e)
	}
	r.coming += len(fresh)
	r.mu.Unlock()
	p.count(r.shuffle, wordOver, over)
	p.count(r.shuffle, wordAgain, uint64(len(envelopes)-len(fresh))-over)
	if len(fresh) == 0 {
		return nil
	}
	err := p.o.Failpoints.Hit(failBeforeSpool)
	if err == nil {
		err = r.log.append(ctx, fresh...)
	}
	if err == nil {
		err = p.o.Failpoints.Hit(failAfterSpool)
	}
	r.mu.Lock()
	r.coming -= len(fresh)
	if err == nil {
		for d := range names {
			r.seen[d] = struct{}{}
		}
		r.input.Add(int64(len(fresh) * len(fresh[0])))
	}
	r.mu.Unlock()
	if err != nil {
		return p.broken(ctx, err)
	}
	p.count(r.shuffle, wordTaken, uint64(len(fresh)))
	return nil
}

// roomy says whether the disk has room for more bytes: so that MinFree are left, and the
// largest round can still be flushed, which takes a scratch and an output of its size.
func (p *Party) roomy(more int64) bool {
	free, known := disk.Free(p.o.FS)
	if !known || p.o.Limits.MinFree < 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var largest int64
	for _, x := range p.shuffles {
		for _, r := range x.rounds {
			largest = max(largest, r.input.Load())
		}
	}
	return free-more >= p.o.Limits.MinFree+2*(largest+more)
}

// most is how many contributions a round takes.
func (p *Party) most(x *shuffle) int { return min(p.o.Limits.Contributions, onion.MaxBatch/x.Messages) }

// broken is what a failed append is called; the disk is not used again, but where the sender
// went away before anything was written.
func (p *Party) broken(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		p.fail(err)
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

func (p *Party) count(x *shuffle, word string, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.counts[word] += n
}

// inbox is what came of a batch.
type inbox struct {
	manifest []byte // signed; nil: none is announced
	m, first *onion.Manifest
	tree     onion.Tree
	whole    bool
}

// openInbox reads what is there of a batch.
func (p *Party) openInbox(r *round, announced, whole bool) (err error) {
	in := &r.inbox
	if announced {
		if in.manifest, err = disk.ReadFile(r.fs, beforeFile, onion.MaxManifest); err != nil {
			return err
		}
		if in.m, in.first, err = onion.OpenManifest(in.manifest, &r.shuffle.Shuffle.Shuffle, before(p.o.Role), r.number); err != nil {
			return err
		}
	}
	if err := p.openRecords(r); err != nil {
		return err
	}
	if in.m == nil && (whole || in.tree.Records() > 0) || in.m != nil && in.tree.Records() > in.m.Records() ||
		whole && (in.tree.Records() != in.m.Records() || in.tree.Root() != in.m.Root) {
		return &StateError{"the records of a batch are not those that were taken"}
	}
	in.whole = whole
	return nil
}

func (p *Party) openRecords(r *round) (err error) {
	size := r.shuffle.Shape(r.number).Record(p.o.Role)
	r.inbox.tree = onion.Tree{}
	r.input.Store(0)
	r.log, err = openSegments(r.fs, disk.LogOptions{Failpoints: p.o.Failpoints}, func(b []byte) error {
		r.input.Add(int64(len(b)))
		return r.inbox.add(b, size)
	})
	return err
}

func (in *inbox) add(b []byte, size int) error {
	if len(b)%size != 0 {
		return &StateError{"a record that is no records of a batch"}
	}
	for ; len(b) > 0; b = b[size:] {
		in.tree.Add(b[:size])
	}
	return nil
}

// whole says whether all of a batch is there.
func (r *round) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inbox.whole
}

// have is how many contributions, or records of a batch, are there.
func (r *round) have() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(uint64(len(r.seen)), r.inbox.tree.Records())
}

// took is the digest of the manifest of the batch that came, if all of it did.
func (r *round) took() (sum [32]byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.out != nil && len(r.out.Before) > 0:
		return sha256.Sum256(r.out.Before), true
	case r.inbox.whole:
		return sha256.Sum256(r.inbox.manifest), true
	}
	return sum, false
}

// Progress is what the sender of a batch is told.
type Progress struct {
	// Have is how many records there are: the next piece begins there.
	Have uint64 `json:"have"`
	// Receipt is there when all of them are.
	Receipt []byte `json:"receipt,omitempty"`
}

// announce takes a manifest, and says how far its batch has come.
func (p *Party) announce(x *shuffle, n uint64, b []byte) (progress Progress, err error) {
	sum := sha256.Sum256(b)
	p.mu.Lock()
	r := x.rounds[n]
	for _, t := range x.state.taken {
		if t.round == n {
			p.mu.Unlock()
			if t.digest != sum {
				return progress, ErrConflict
			}
			return p.receipt(x, n, sum, 0)
		}
	}
	p.mu.Unlock()
	if r == nil {
		return progress, ErrRound
	}
	m, first, err := onion.OpenManifest(b, &x.Shuffle.Shuffle, before(p.o.Role), n)
	if err != nil {
		return progress, err
	}
	if p.o.Clock.Now().Before(x.Flush(n)) {
		return progress, ErrNotYet
	}
	r.gate.RLock()
	defer r.gate.RUnlock()
	if had, ok := r.took(); ok {
		if had != sum {
			return progress, ErrConflict
		}
		return p.receipt(x, n, sum, m.Records())
	}
	if r.closed {
		return progress, ErrRound
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in := &r.inbox
	if in.manifest != nil && !bytes.Equal(in.manifest, b) {
		return progress, ErrConflict
	}
	if in.manifest == nil {
		err := disk.WriteFile(r.fs, beforeFile, b)
		if err == nil {
			err = p.o.Failpoints.Hit(failAfterBefore)
		}
		if err != nil {
			p.fail(err)
			return progress, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		in.manifest, in.m, in.first = bytes.Clone(b), m, first
	}
	if in.tree.Records() == m.Records() { // power was lost before that was noted
		return p.complete(r)
	}
	return Progress{Have: in.tree.Records()}, nil
}

// piece takes records of a batch that was announced. Where they were the last and the root is
// another than the manifest's, all of them are thrown away.
func (p *Party) piece(ctx context.Context, x *shuffle, n, offset uint64, b []byte) (progress Progress, err error) {
	p.mu.Lock()
	r := x.rounds[n]
	p.mu.Unlock()
	if r == nil {
		return progress, ErrRound
	}
	r.gate.RLock()
	defer r.gate.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	in := &r.inbox
	size := x.Shape(n).Record(p.o.Role)
	switch have := in.tree.Records(); {
	case in.m == nil || in.whole || r.closed:
		return progress, ErrOffset // to be announced, or again
	case offset != have:
		return progress, ErrOffset
	case len(b) == 0 || len(b)%size != 0 || uint64(len(b)/size) > in.m.Records()-have:
		return progress, fmt.Errorf("%w: a piece of %d bytes", onion.ErrCount, len(b))
	}
	if !p.roomy(int64(len(b))) {
		return progress, fmt.Errorf("%w: the disk", ErrFull)
	}
	err = r.log.append(ctx, b)
	if err == nil {
		err = p.o.Failpoints.Hit(failAfterPiece)
	}
	if err != nil {
		return progress, p.broken(ctx, err)
	}
	in.add(b, size)
	r.input.Add(int64(len(b)))
	p.count(x, wordPiece, 1)
	progress.Have = in.tree.Records()
	if progress.Have < in.m.Records() {
		return progress, nil
	}
	return p.complete(r)
}

// complete takes a batch whose records are all there, or throws them away where the root is
// another. r.mu must be held.
func (p *Party) complete(r *round) (progress Progress, err error) {
	in := &r.inbox
	if in.tree.Root() != in.m.Root {
		err := errors.Join(r.log.close(), removeSegments(r.fs))
		if err == nil {
			err = p.openRecords(r)
		}
		if err != nil {
			p.fail(err)
			return progress, fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return progress, onion.ErrRoot
	}
	err = disk.WriteFile(r.fs, takenFile, []byte(takenMagic))
	if err == nil {
		err = p.o.Failpoints.Hit(failAfterTaken)
	}
	if err != nil {
		p.fail(err)
		return progress, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	in.whole = true
	p.rouse()
	return p.receipt(r.shuffle, r.number, sha256.Sum256(in.manifest), in.tree.Records())
}

// receipt signs for a batch that is on the disk.
func (p *Party) receipt(x *shuffle, n uint64, sum [32]byte, have uint64) (Progress, error) {
	b, err := (&onion.Receipt{Recipe: x.Recipe, Round: n, Role: p.o.Role, At: p.o.Clock.Now(), Manifest: sum}).Sign(p.o.Signer)
	return Progress{have, b}, err
}
