package sim

import (
	"encoding/binary"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
	"github.com/starling-agg/starling/internal/disk"
)

// In worlds with cfg.series both servers add correlated noise. The oracle looks over the
// shoulder of each node's disk, where the noise of a release is written down before the
// release: what a server keeps must be a draw of its sampler, never the same one twice,
// less the strategy's part of what it released before and of nothing else; and what the
// collector opens must be zeros and ones once the noise that both keep is taken away.

const (
	seriesFar   = 4    // the separation: some releases are near enough for the next to lean on two, some are not
	seriesDraws = 4096 // that a server makes at most, those in vain included
)

// series is what both servers do.
func (w *world) series() *aggregator.Series {
	return &aggregator.Series{
		Series: correlated.Series{Strategy: must(correlated.SquareRoot(3, 6)), Separation: seriesFar, Rounds: 100}, Units: 1,
	}
}

// ledger is what the oracle knows of the noise of one node.
type ledger struct {
	w      *world
	name   string
	series *aggregator.Series      // that it should follow
	given  *aggregator.Series      // that it is told, which is the same but in tests of the oracle
	draw   *noise.DiscreteGaussian // the node's own
	again  *noise.DiscreteGaussian // the same draws once more; nil in lively worlds, where their order depends on the scheduler

	mu    sync.Mutex
	draws map[string]int // by their bytes, from 0
	kept  []*noised      // of the releases, in their order; the last one may not be one yet
}

// A noised is the noise of one release.
type noised struct {
	file   string
	noise  []int64 // in units of the strategy
	lean   int
	draw   int
	result string // whose it is
	span   correlated.Span
}

func (w *world) newLedger(name string) *ledger {
	s := w.series()
	g := must(s.Strategy.Sampler(9, 1))
	b := &ledger{w: w, name: name, series: s, given: s, draw: g, draws: make(map[string]int)}
	if !w.cfg.lively {
		b.draw, b.again = noisetest.DiscreteGaussian(g, seedOf(name)), noisetest.DiscreteGaussian(g, seedOf(name))
	}
	return b
}

// seedOf is a node's, of its draws.
func seedOf(name string) (seed [32]byte) {
	copy(seed[:], name)
	return seed
}

// task is the world's task with this node's noise and calendar.
func (n *node) task() aggregator.Task {
	t := n.w.task
	t.Calendar = n.given
	if n.noise != nil {
		t.Noise, t.Series = n.noise.draw, n.noise.given
	}
	return t
}

// watched is a disk on which the oracle sees noise come and go.
type watched struct {
	disk.FS
	ledger *ledger
}

const noiseSuffix = ".noise"

// Rename implements [disk.FS].
func (f watched) Rename(from, to string) error {
	err := f.FS.Rename(from, to)
	switch {
	case err != nil:
	case path.Ext(from) == noiseSuffix: // put aside: that of a release that did not come about
		f.ledger.removed(from)
	case path.Ext(to) == noiseSuffix:
		f.ledger.written(f.FS, to)
	}
	return err
}

// Remove implements [disk.FS].
func (f watched) Remove(name string) error {
	if path.Ext(name) == noiseSuffix {
		f.ledger.removed(name)
	}
	return f.FS.Remove(name)
}

// written takes down the noise of a release that is about to be made, and judges it.
func (b *ledger) written(fsys disk.FS, name string) {
	file, err := disk.ReadFile(fsys, name, 1<<20)
	if err != nil {
		return // the power went
	}
	file = file[len(file)-8*length:]
	k := &noised{file: name, noise: make([]int64, length), draw: -1}
	for i := range k.noise {
		k.noise[i] = int64(binary.BigEndian.Uint64(file[8*i:]))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge(k)
	b.kept = append(b.kept, k)
}

// judge finds the draw that noise was made of. b.mu must be held.
func (b *ledger) judge(k *noised) {
	if b.again == nil {
		return
	}
	bands := b.series.Strategy.Bands()
	var candidates []string
	for lean := range min(bands-1, len(b.kept)) + 1 {
		var history [][]int64
		for _, before := range slices.Backward(b.kept[len(b.kept)-lean:]) {
			history = append(history, before.noise)
		}
		// what a draw of zeros would have become
		z := must(b.series.Strategy.Next(history, make([]int64, length)))
		for i := range z {
			z[i] = k.noise[i] - z[i]
		}
		candidates = append(candidates, key(z))
	}
	for {
		for lean, c := range candidates {
			if n, ok := b.draws[c]; ok {
				k.lean, k.draw = lean, n
				for _, other := range b.kept {
					if other.draw == n {
						b.w.oracle.violate("%s: two releases have the same draws", b.name)
					}
				}
				return
			}
		}
		if len(b.draws) >= seriesDraws {
			b.w.oracle.violate("%s: noise leans on something else than what was released", b.name)
			return
		}
		z := make([]int64, length)
		b.again.Sample(z)
		b.draws[key(z)] = len(b.draws)
	}
}

func key(v []int64) string {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.BigEndian.AppendUint64(b, uint64(x))
	}
	return string(b)
}

// removed notes that a node gives up noise: that of a release that did not come about,
// which is then the last, or noise on which nothing will lean.
func (b *ledger) removed(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.kept); n > 0 && b.kept[n-1].file == name && b.kept[n-1].result == "" {
		b.kept = b.kept[:n-1]
	}
}

// reopen notes what a loss of power has taken: noise that no release names yet may be
// gone with its file.
func (b *ledger) reopen(fsys disk.FS) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.kept)
	if n == 0 || b.kept[n-1].result != "" {
		return
	}
	if _, err := fsys.Stat(b.kept[n-1].file); err != nil {
		b.kept = b.kept[:n-1]
	}
}

// denoise takes the noise of both nodes from a result, and demands that the rest can be a
// histogram of distinct buckets.
func (o *oracle) denoise(job string, q dap.Query, raw []int64) []int64 {
	if !o.w.cfg.series {
		return raw
	}
	l, h := o.w.leader.noise, o.w.helper.noise
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	rounded := func(k *noised) []int64 {
		r := make([]int64, len(k.noise))
		l.series.Strategy.Round(r, k.noise)
		return r
	}
	for _, a := range l.kept {
		if a.result != "" {
			continue
		}
		first := rounded(a)
		for _, b := range h.kept {
			if b.result != "" {
				continue
			}
			second, rest := rounded(b), slices.Clone(raw)
			fits := true
			for i := range rest {
				rest[i] -= first[i] + second[i]
				fits = fits && (rest[i] == 0 || rest[i] == 1)
			}
			if !fits {
				continue
			}
			start := uint64(q.Interval.Start)
			span := correlated.Span{First: start, Last: start + uint64(q.Interval.Duration) - 1}
			a.result, a.span, b.result, b.span = job, span, job, span
			return rest
		}
	}
	o.violate("collection %s: what was released is not a sum and the noise that both servers keep", job)
	return make([]int64, len(raw))
}

// checkSeries judges the order of all releases, and on how many others each one leans.
func (o *oracle) checkSeries() {
	if !o.w.cfg.series {
		return
	}
	for _, b := range []*ledger{o.w.leader.noise, o.w.helper.noise} {
		b.mu.Lock()
		for i, k := range b.kept {
			if k.result == "" {
				continue // released, and nobody has seen it
			}
			var latest []correlated.Span
			known := true
			for _, before := range slices.Backward(b.kept[max(0, i-b.series.Strategy.Bands()+1):i]) {
				known = known && before.result != ""
				latest = append(latest, before.span)
			}
			if !known {
				continue
			}
			lean, err := b.series.Next(k.span, uint64(i), latest)
			if err != nil {
				o.violate("%s: collection %s: %v", b.name, k.result, err)
			} else if b.again != nil && lean != k.lean {
				o.violate("%s: collection %s leans on %d releases, want %d", b.name, k.result, k.lean, lean)
			}
			if lean > 0 {
				o.leaning++
			}
		}
		b.mu.Unlock()
	}
}

// opRound fills the current unit, asks for it, and often lets the next one begin: a
// release leans on others only if there are some.
func (w *world) opRound() {
	now := must(dap.TimePrecision(precision).At(time.Now()))
	if now < w.frontier() {
		time.Sleep(time.Until(w.unit(now + 1)))
		now++
	}
	var reports []*report
	for range w.cfg.min {
		if len(w.oracle.reports) >= length-spare {
			break
		}
		if r := w.make(good, 0); r != nil {
			reports = append(reports, r)
		}
	}
	w.upload(reports)
	w.leader.step()
	w.helper.step()
	w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: now, Duration: 1}}))
	w.leader.step()
	if w.rng.IntN(2) == 0 && time.Since(w.start) < windowUnits/2*precision*time.Second {
		time.Sleep(precision * time.Second)
	}
}

// frontier is the first unit after all that are known to be released.
func (w *world) frontier() (t dap.Time) {
	for _, res := range w.oracle.results {
		t = max(t, res.interval.Start+dap.Time(res.interval.Duration))
	}
	return t
}

// late says whether a job of a series may have come too late: some other asks for as late
// a unit, or a later one.
func (w *world) late(j *job) bool {
	return w.cfg.series && slices.ContainsFunc(w.jobs, func(other *job) bool {
		return other != j && other.query.Interval.Start+dap.Time(other.query.Interval.Duration) > j.query.Interval.Start
	})
}

// waitsInOrder says whether a collection waits for one of an earlier interval.
func waitsInOrder(why string) bool { return strings.HasPrefix(why, "an earlier interval") }

// passed says whether a batch of a series is open and will never be released, since a
// later one was.
func (w *world) passed(batches []status.Batch, start uint64) bool {
	if !w.cfg.series {
		return false
	}
	return slices.ContainsFunc(batches, func(b status.Batch) bool { return b.State == "closed" && b.Start > start })
}
