package party

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"sync"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/internal/order"
	"github.com/starling-agg/starling/shuffle/onion"
)

// chunkBytes is how many bytes of records are opened together, at most.
const chunkBytes = 1 << 20

// opened is what came of opening a round.
type opened struct {
	*scratch
	records uint64 // that opened
	dropped uint64 // that did not
	doubled uint64 // that came again, or at hop 2 whose token did
	// unproved and spent are those of dropped and doubled whose tokens count for nothing.
	unproved, spent uint64
}

// work opens a round whose time has come, once and as a whole, and makes of it what is to be
// handed on, or the result. ended says that nothing is left of it. A *laterError leaves the
// round as it was; every other one is the disk's.
func (p *Party) work(ctx context.Context, r *round) (ended bool, err error) {
	x := r.shuffle
	now := p.o.Clock.Now()
	if now.Before(p.o.Signer.From()) || now.After(p.o.Signer.Until()) {
		return false, &laterError{errors.New("the online key that signs has ended, or not begun")}
	}
	r.gate.Lock()
	r.closed = true
	r.gate.Unlock()
	if p.o.tallies() {
		if err := p.logBatch(ctx, r); err != nil {
			return false, err
		}
	}
	if err := p.o.Failpoints.Hit(failBeforeWork); err != nil {
		return false, err
	}
	if have := r.have(); p.o.gathers() && have < x.MinBatch {
		outcome := Few
		if have == 0 {
			outcome = None
		}
		return true, p.end(r, outcome, Totals{LeftOver: have})
	}
	all, err := p.open(ctx, r)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	p.count(x, wordUnproved, all.unproved)
	p.count(x, wordSpent, all.spent)
	t := Totals{Contributions: all.records, Messages: all.n, Refused: all.dropped}
	enough := all.records >= x.MinBatch
	if !p.o.gathers() {
		t = Totals{Contributions: r.inbox.m.Contributions, Messages: all.n, Dropped: all.dropped, Doubled: all.doubled}
		enough = onion.Enough(&x.Shuffle.Shuffle, all.n)
	}
	if !enough {
		t.LeftOver, t.Contributions, t.Messages = all.records, 0, 0
		if err := all.close(); err != nil {
			return true, err
		}
		return true, p.end(r, Few, t)
	}
	if p.o.tallies() {
		return true, p.tally(ctx, r, all, t)
	}
	return false, p.commit(r, all)
}

// open opens all records of a round, each once, into a scratch.
func (p *Party) open(ctx context.Context, r *round) (all opened, err error) {
	shape := r.shuffle.Shape(r.number)
	size := shape.Record(p.o.Role)
	_, part := shape.Parts(p.o.Role)
	opener, err := shape.Opener(p.o.Role, r.key)
	if err != nil {
		return all, err
	}
	if all.scratch, err = newScratch(r.fs, part); err != nil {
		return all, err
	}
	var chunk [][]byte
	seen, tags := make(map[digest]struct{}, r.have()), make(map[[32]byte]struct{})
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return &laterError{err}
		}
		items := opener.Open(chunk, p.run)
		if err := p.show(ctx, r, items, tags, &all); err != nil {
			return err
		}
		for _, o := range items {
			if o.Parts == nil {
				continue
			}
			all.records++
			if err := all.add(o.Parts); err != nil {
				return err
			}
		}
		chunk = chunk[:0]
		return nil
	}
	err = r.log.read(func(b []byte) error {
		for ; len(b) > 0; b = b[size:] {
			d := digestOf(b[:size])
			if _, twice := seen[d]; twice {
				all.doubled++
				continue
			}
			seen[d] = struct{}{}
			if chunk = append(chunk, b[:size]); len(chunk) < max(1, chunkBytes/size) {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = all.flush()
	}
	if err != nil {
		return all, errors.Join(err, all.close())
	}
	return all, nil
}

// show takes out of what was opened, and counts, all that did not open or shows no token that
// counts. tags are those of the round that were counted: a round is opened as a whole, so
// that no tag is ever on a disk.
func (p *Party) show(ctx context.Context, r *round, items []onion.Opened, tags map[[32]byte]struct{}, all *opened) error {
	var at []int
	for i := range items {
		if items[i].Parts == nil {
			all.dropped++
		} else if r.shuffle.Tokens != nil {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	aad := r.shuffle.Shape(r.number).AAD(p.o.Role)
	verdicts := make([]onion.Verdict, len(at))
	each := (len(at) + p.o.Limits.Workers - 1) / p.o.Limits.Workers
	errs := make([]error, p.o.Limits.Workers)
	var working sync.WaitGroup
	for w := range p.o.Limits.Workers {
		from, to := min(w*each, len(at)), min((w+1)*each, len(at))
		if from == to {
			break
		}
		working.Go(func() {
			shown := make([]onion.Opened, 0, to-from)
			for _, i := range at[from:to] {
				shown = append(shown, items[i])
			}
			var got []onion.Verdict
			if got, errs[w] = r.shuffle.Tokens.Verify(ctx, r.number, aad, shown); errs[w] == nil && copy(verdicts[from:to], got) != to-from {
				errs[w] = errors.New("tokens that nothing was said of")
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		return &laterError{fmt.Errorf("tokens: %w", err)}
	}
	for j, i := range at {
		v := verdicts[j]
		_, again := tags[v.Tag]
		switch {
		case v.Err != nil:
			all.dropped++
			all.unproved++
		case again && p.o.gathers(): // no contribution of a device that has made one
			all.dropped++
			all.spent++
		case again:
			all.doubled++
			all.spent++
		default:
			tags[v.Tag] = struct{}{}
			continue
		}
		items[i].Parts = nil
	}
	return nil
}

// commit writes what was opened in an order that is drawn now, and signs it: from then on it
// is this order. Key and input are destroyed.
func (p *Party) commit(r *round, all opened) error {
	x := r.shuffle
	if all.n > onion.MaxBatch {
		return &laterError{fmt.Errorf("%d messages, at most %d", all.n, onion.MaxBatch)}
	}
	if err := p.o.Failpoints.Hit(failBeforeOut); err != nil {
		return err
	}
	var tree onion.Tree
	err := disk.WriteStream(r.fs, outFile, func(to io.Writer) error {
		w := bufio.NewWriterSize(to, 1<<20)
		b := make([]byte, all.size)
		for _, i := range order.Draw(uint32(all.n), p.o.Random) {
			if err := all.item(uint64(i), b); err != nil {
				return err
			}
			tree.Add(b)
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	if err == nil {
		err = p.o.Failpoints.Hit(failAfterOut)
	}
	if err != nil {
		return err
	}
	m := &onion.Manifest{Recipe: x.Recipe, Round: r.number, Role: p.o.Role, At: p.o.Clock.Now(), Dropped: all.dropped, Root: tree.Root()}
	if p.o.gathers() {
		m.Contributions, m.Messages = all.records, all.n
	} else {
		in := r.inbox.m
		m.Contributions, m.Messages, m.Doubled, m.Before = in.Contributions, in.Messages, all.doubled, r.inbox.manifest
	}
	b, err := m.Sign(p.o.Signer)
	if err == nil {
		m, _, err = onion.OpenManifest(b, &x.Shuffle.Shuffle, p.o.Role, r.number)
	}
	if err != nil {
		return &laterError{err}
	}
	if err := disk.WriteFile(r.fs, manifestFile, b); err != nil {
		return err
	}
	if err := p.o.Failpoints.Hit(failAfterManifest); err != nil {
		return err
	}
	r.gate.Lock()
	defer r.gate.Unlock()
	r.log.close() // what counts in it is durable, and goes now
	r.mu.Lock()
	p.mu.Lock()
	r.out, r.manifest, r.key, r.log, r.seen, r.inbox = m, b, nil, nil, nil, inbox{}
	p.mu.Unlock()
	r.mu.Unlock()
	if err := destroyInput(r.fs); err != nil {
		return err
	}
	r.input.Store(0)
	return p.o.Failpoints.Hit(failAfterDestroy)
}

func resultName(n uint64) string { return path.Join(resultsDir, strconv.FormatUint(n, 10)) }

// tally makes the result of a round. A result that is there already is not made again.
func (p *Party) tally(ctx context.Context, r *round, all opened, t Totals) error {
	x := r.shuffle
	counts := onion.Counts{Contributions: t.Contributions, Messages: t.Contributions * uint64(x.Messages), Refused: t.Refused, Dropped: t.Dropped, Doubled: t.Doubled}
	if r.inbox.m != nil {
		counts.Refused, counts.DroppedSecond, counts.DoubledSecond = r.inbox.first.Dropped, r.inbox.m.Dropped, r.inbox.m.Doubled
	}
	there, err := exists(x.fs, resultName(r.number))
	if err != nil {
		return err
	}
	if !there {
		var failed error
		of := func(i uint64) uint64 { return i } // hop 2's order
		if p.o.gathers() {
			m := uint64(x.Messages)
			drawn := order.Draw(uint32(all.n/m), p.o.Random)
			of = func(i uint64) uint64 { return uint64(drawn[i/m])*m + i%m }
		}
		tally, err := p.o.Tally(ctx, &Batch{Recipe: x.Recipe, Round: r.number, Counts: counts, Messages: func(yield func([]byte) bool) {
			b := make([]byte, all.size)
			for i := range all.n {
				if failed = all.item(of(i), b); failed != nil || !yield(b) {
					return
				}
			}
		}})
		if failed != nil {
			return failed
		}
		if err != nil {
			return &laterError{fmt.Errorf("tally: %w", err)}
		}
		if err := p.o.Failpoints.Hit(failAfterTally); err != nil {
			return err
		}
		b, err := (&onion.Result{Recipe: x.Recipe, Round: r.number, Role: p.o.Role, At: p.o.Clock.Now(), Counts: counts, Manifest: r.inbox.manifest, Tally: tally}).Sign(p.o.Signer)
		if err != nil {
			return &laterError{err}
		}
		if err := disk.WriteFile(x.fs, resultName(r.number), b); err != nil {
			return err
		}
	}
	if err := all.close(); err != nil {
		return err
	}
	if err := p.o.Failpoints.Hit(failAfterResult); err != nil {
		return err
	}
	return p.end(r, Tallied, t)
}
