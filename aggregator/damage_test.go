package aggregator_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/service/database"
)

// patient says whether tests ask all that they have to ask, as in the gate, or a part that
// nobody waits for long.
var patient = os.Getenv("CI") == "true"

var (
	flips    = flag.Int("flips", flipsOf(patient), "how many bits TestBitFlips turns")
	flipSeed = flag.Uint64("flip-seed", 1, "the seed that says which")
)

// sumPage puts the checksum of a database's page at its end, as who writes it knowingly
// does.
func sumPage(page []byte) {
	var s0, s1 uint32
	b := page[:len(page)-8]
	for ; len(b) > 0; b = b[8:] {
		s0 += binary.LittleEndian.Uint32(b) + s1
		s1 += binary.LittleEndian.Uint32(b[4:]) + s0
	}
	binary.LittleEndian.PutUint32(page[len(page)-8:], s0)
	binary.LittleEndian.PutUint32(page[len(page)-4:], s1)
}

// used is a pair of stores in use: one batch was released; of another, some reports are
// verified, some are sorted, of a life before and of the last one, and
// some are in the inbox as they were uploaded. Both
// processes were killed.
type used struct {
	*pair
	noisy    bool
	old      [2]tree              // before the first batch was released
	disks    [2]tree              // of leader and helper, with their records
	query    dap.CollectionJobReq // what was released
	released []byte
	next     dap.CollectionJobReq // what was not
	shares   [2][]byte            // of next, with all noise
	truth    []int64              // of next, without
	count    uint64
	said     map[string]bool // what the log says where nothing is damaged
	shift    int64
}

var message = regexp.MustCompile(`level=(?:WARN|ERROR) msg=("(?:[^"\\]|\\.)*"|\S+)`)

// warnings are the messages in the log that want somebody to look.
func (p *pair) warnings() map[string]bool {
	said := make(map[string]bool)
	for _, m := range message.FindAllStringSubmatch(p.log.String(), -1) {
		said[m[1]] = true
	}
	return said
}

func newUsed(t *testing.T, noisy bool) *used {
	t.Helper()
	s := setup{}
	if noisy {
		s.noise = must(noise.NewDiscreteGaussian(1<<40, 1))
	}
	u := &used{pair: newScheduledPair(t, s), noisy: noisy}
	p := u.pair
	one := func(n int) dap.CollectionJobReq {
		p.accept(p.reports(n)...)
		return p.at(0, 1)
	}
	u.query = one(15)
	p.step()
	l, h := p.stopped()
	u.old = [2]tree{content(t, l, "."), content(t, h, ".")}
	p.onDisks(l, h)
	_, u.released = p.released(u.query)
	p.clock.advance(precision * time.Second)
	u.next = one(10)
	p.step()
	p.onDisks(p.stopped()) // so that the database has the batch, and its log what came later
	p.between(unavailable)
	p.accept(p.reports(5)...)
	p.leader.Close()
	p.startLeader() // copies what the life before has left
	p.accept(p.reports(5)...)
	if _, err := p.leader.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p.accept(p.report(0, spoil{}), p.report(1, spoil{})) // lastRequest
	}
	u.count = 30
	u.truth = []int64{9, 9, 4, 4, 4}
	u.disks = [2]tree{content(t, p.leaderFS, "."), content(t, p.helperFS, ".")}
	for _, dir := range []string{"store.db-wal", "inbox/", "slices/", "runs/", "keys/state", "record/mark"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(u.disks[0])), func(n string) bool { return strings.HasPrefix(n, dir) }) {
			t.Fatalf("a leader without %s is not in use", dir)
		}
	}
	p.between(nil)
	p.stop()
	u.shift = p.clock.shift.Load()
	f := u.play(u.disks)
	if f.class != "harmless" && f.class != "fails" {
		t.Fatalf("with nothing turned: %+v", f)
	}
	return u
}

// fate is what became of a store with damage.
type fate struct {
	class string
	words string
}

// play starts both on disks with some trees, lets them finish, asks for both batches, and
// says what came of it. The first time is with what is whole.
func (u *used) play(disks [2]tree) (f fate) {
	p, t := u.pair, u.t.(*testing.T)
	first := u.said == nil
	p.clock.shift.Store(u.shift)
	p.log.mu.Lock()
	p.log.b.Reset()
	p.log.mu.Unlock()
	var running []interface{ Close() error }
	defer func() {
		for _, r := range running {
			r.Close()
		}
	}()
	ctx := context.Background()
	lo, ho := p.leaderOpt, p.helperOpt
	lm, hm := diskOf(t, disks[0]), diskOf(t, disks[1])
	lo.FS, lo.Record, ho.FS, ho.Record = lm, recordOn(lm), hm, recordOn(hm)
	l, err := leader.New(ctx, lo)
	if err != nil {
		return fate{"refused", "leader: " + err.Error()}
	}
	running = append(running, l)
	h, err := helper.New(ctx, ho)
	if err != nil {
		return fate{"refused", "helper: " + err.Error()}
	}
	running = append(running, h)
	p.leader, p.helper = l, h
	lh, hh := l.Handler(), http.Handler(h.Handler())
	p.leaderHandler.Store(&lh)
	p.helperHandler.Store(&hh)
	work := func() error {
		for range 30 {
			a, err := l.Step(ctx)
			if err != nil {
				return fmt.Errorf("leader: %w", err)
			}
			b, err := h.Step(ctx)
			if err != nil {
				return fmt.Errorf("helper: %w", err)
			}
			if !a && !b {
				break
			}
		}
		return nil
	}
	loud := func() string {
		for _, m := range slices.Sorted(maps.Keys(p.warnings())) { // what became of logs first
			if !u.said[m] {
				return m
			}
		}
		return ""
	}
	if err := work(); err != nil {
		return fate{"stopped", err.Error()}
	}
	ask := func(q dap.CollectionJobReq) (a answer, stopped error) {
		a = p.ask(q)
		for range 4 {
			if a.status/100 != 2 {
				return a, nil
			}
			if stopped = work(); stopped != nil {
				return a, stopped
			}
			got := p.poll(a.header.Get("Location"))
			if got.status != http.StatusOK || len(got.body) > 0 {
				return got, nil
			}
			p.clock.advance(11 * time.Minute)
		}
		return answer{}, nil
	}
	again, err := ask(u.query)
	if err != nil {
		return fate{"stopped", err.Error()}
	}
	if again.status == http.StatusOK && !bytes.Equal(again.body, u.released) {
		if got, want := p.opened(u.query, again.body), p.opened(u.query, u.released); !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
			return fate{"fails", "another answer for a batch that was released"}
		}
	}
	got, err := ask(u.next)
	if err != nil {
		return fate{"stopped", err.Error()}
	}
	if first {
		u.shares, u.said = p.opened(u.next, got.body), p.warnings()
	}
	st, err := l.Status(ctx)
	if err != nil {
		return fate{"stopped", err.Error()}
	}
	counts := st.Tasks[0].Counts
	rejected := uint64(0)
	for _, n := range counts.Rejected {
		rejected += n
	}
	said := loud()
	if got.status != http.StatusOK || len(got.body) == 0 || again.status != http.StatusOK || len(again.body) == 0 {
		if said == "" {
			return fate{"fails", fmt.Sprintf("no answer (%d %d), and no word", again.status, got.status)}
		}
		return fate{"waits", said}
	}
	resp, sum := p.open(u.next, got.body)
	switch {
	case said == tornWords && resp.ReportCount == u.count-lastRequest:
		return fate{"torn", said}
	case said == tornWords && resp.ReportCount < u.count:
		return fate{"cut", said}
	case strings.Contains(said, "set aside") && st.Lost != nil && resp.ReportCount+rejected < u.count:
		return fate{"set aside", said}
	case resp.ReportCount+rejected != u.count:
		return fate{"fails", fmt.Sprintf("%d reports counted and %v refused of %d; %s", resp.ReportCount, counts.Rejected, u.count, said)}
	case resp.ReportCount < u.count && said == "":
		return fate{"fails", fmt.Sprintf("%d reports in silence", rejected)}
	case !u.noisy && !plausible(sum, u.truth, resp.ReportCount):
		return fate{"fails", fmt.Sprintf("a wrong number: %v for %d of %v", sum, resp.ReportCount, u.truth)}
	case resp.ReportCount < u.count:
		return fate{"counted", said}
	}
	if shares := p.opened(u.next, got.body); !bytes.Equal(shares[0], u.shares[0]) || !bytes.Equal(shares[1], u.shares[1]) {
		return fate{"fails", "another share for the same reports; " + said}
	}
	if faults, err := l.Audit(ctx); err != nil || len(faults) > 0 {
		return fate{"said", fmt.Sprintf("the leader's audit: %v %v", faults, err)}
	}
	if faults, err := h.Audit(ctx); err != nil || len(faults) > 0 {
		return fate{"said", fmt.Sprintf("the helper's audit: %v %v", faults, err)}
	}
	if said != "" {
		return fate{"mended", said}
	}
	return fate{"harmless", ""}
}

// Of damage in the last request of the last log nobody can tell that it was acknowledged.
const (
	lastRequest = 2 // reports
	tornWords   = `"a log ends in bytes that are no record: a loss of power tears what was not acknowledged, and damage at the end looks the same"`
)

// plausible says whether a sum is that of n reports of the truth.
func plausible(sum, truth []int64, n uint64) bool {
	total := int64(0)
	for i, v := range sum {
		if v < 0 || v > truth[i] {
			return false
		}
		total += v
	}
	return total == int64(n)
}

// kindOf is the kind of a file, for the table.
func kindOf(name string) string {
	switch dir := path.Dir(name); {
	case strings.HasSuffix(name, ".hpke"):
		return "keys/*.hpke"
	case dir == "record/data-keys":
		return "record/data-keys/*.key"
	case dir == "runs" || dir == "inbox" || dir == "slices":
		top, _, _ := strings.Cut(dir, "/")
		return top + "/*"
	}
	return name
}

// flipsOf is how many bits TestBitFlips turns unless told: fewer where a person waits.
func flipsOf(ci bool) int {
	if ci {
		return 100
	}
	return 40
}

// TestBitFlips turns single bits in the files of leader and helper, in use and killed:
// each is refused, mended, counted or harmless. What was released is answered with the
// same bytes or not at all, what is released later is of the same reports with the same
// noise, or of fewer that are counted as lost.
func TestBitFlips(t *testing.T) {
	type cell struct{ role, kind string }
	var mu sync.Mutex
	table := make(map[cell]map[string]int)
	examples := make(map[string]string)
	const workers = 4
	t.Run("all", func(t *testing.T) {
		for w := range workers {
			t.Run(fmt.Sprint(w), func(t *testing.T) {
				t.Parallel()
				u := newUsed(t, w%2 == 0)
				rng := rand.New(rand.NewPCG(*flipSeed, uint64(w)))
				for i := w; i < *flips; i += workers {
					side := rng.IntN(2)
					files := u.disks[side]
					byKind := make(map[string][]string)
					for _, name := range slices.Sorted(maps.Keys(files)) {
						if len(files[name]) > 0 {
							byKind[kindOf(name)] = append(byKind[kindOf(name)], name)
						}
					}
					kinds := slices.Sorted(maps.Keys(byKind))
					kind := kinds[rng.IntN(len(kinds))]
					name := byKind[kind][rng.IntN(len(byKind[kind]))]
					bit := rng.IntN(8 * len(files[name]))
					disks := u.disks
					disks[side] = maps.Clone(files)
					turned := bytes.Clone(files[name])
					turned[bit/8] ^= 1 << (bit % 8)
					disks[side][name] = turned
					f := u.play(disks)
					c := cell{[]string{"leader", "helper"}[side], kind}
					if f.class == "fails" || f.class == "cut" || f.class == "set aside" || f.words == "" && f.class != "harmless" {
						t.Errorf("%s %s (noise %v), bit %d of %d: %+v", c.role, name, u.noisy, bit, 8*len(turned), f)
					}
					mu.Lock()
					if table[c] == nil {
						table[c] = make(map[string]int)
					}
					table[c][f.class]++
					examples[c.kind+" "+f.class] = f.words
					mu.Unlock()
				}
				u.onDisks(diskOf(t, u.disks[0]), diskOf(t, u.disks[1])) // for the audit at the end
			})
		}
	})
	var b strings.Builder
	classes := []string{"refused", "stopped", "mended", "counted", "torn", "waits", "said", "harmless", "fails"}
	fmt.Fprintf(&b, "| files | of | flips | %s |\n|---|---|%s\n", strings.Join(classes, " | "), strings.Repeat("---:|", len(classes)+1))
	cells := slices.SortedFunc(maps.Keys(table), func(a, b cell) int { return strings.Compare(a.kind+a.role, b.kind+b.role) })
	totals, sum := make(map[string]int), 0
	for _, c := range cells {
		n := 0
		row := ""
		for _, class := range classes {
			row += fmt.Sprintf(" %d |", table[c][class])
			n += table[c][class]
			totals[class] += table[c][class]
		}
		sum += n
		fmt.Fprintf(&b, "| `%s` | %s | %d |%s\n", c.kind, c.role, n, row)
	}
	fmt.Fprintf(&b, "| all | | %d |", sum)
	for _, class := range classes {
		fmt.Fprintf(&b, " %d |", totals[class])
	}
	t.Logf("\n%s", b.String())
	for _, k := range slices.Sorted(maps.Keys(examples)) {
		t.Logf("%s: %s", k, examples[k])
	}
	if totals["harmless"] > sum/2 {
		t.Errorf("%d of %d flips were in nothing that is read", totals["harmless"], sum)
	}
}

// TestFlippedShare: one bit of an aggregate share in the database made a release of -256
// for 0, and the audit content. Now the page is refused, and where somebody makes its
// checksum right, the row.
func TestFlippedShare(t *testing.T) {
	u := newUsed(t, false)
	for side, role := range []string{"leader", "helper"} {
		db, err := database.Open(database.Options{
			FS: diskOf(t, u.disks[side]), Name: "store.db", Migrations: os.DirFS("internal/store/sqlite/migrations"),
			Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: share\nSELECT share FROM batch WHERE share IS NOT NULL")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var share []byte
		err = db.View(t.Context(), "share", func(tx *database.Tx) error {
			_, err := tx.One("share", nil, &share)
			return err
		})
		db.Close()
		at := bytes.LastIndex(u.disks[side]["store.db"], share)
		if err != nil || len(share) < buckets*8 || at < 0 {
			t.Fatalf("%s: a share of %d bytes at %d: %v", role, len(share), at, err)
		}
		for _, resummed := range []bool{false, true} {
			for bit := 3; bit < 8*len(share); bit += 61 {
				disks := u.disks
				disks[side] = maps.Clone(disks[side])
				turned := bytes.Clone(disks[side]["store.db"])
				turned[at+bit/8] ^= 1 << (bit % 8)
				want := ", in batch"
				if resummed {
					page := at / 4096 * 4096
					sumPage(turned[page : page+4096])
					want = "its aggregate share is not what was written"
				}
				disks[side]["store.db"] = turned
				if f := u.play(disks); f.class != "refused" || !strings.Contains(f.words, want) {
					t.Errorf("%s, bit %d of the share: %+v, want it refused: %s", role, bit, f, want)
				}
			}
		}
	}
	u.onDisks(diskOf(t, u.disks[0]), diskOf(t, u.disks[1]))
}

// mishaps are what is done to a file; nil is a file that is gone.
var mishaps = []struct {
	name string
	to   func(u *used, side int, name string, b []byte) (now []byte, applies bool)
}{
	{"missing", func(*used, int, string, []byte) ([]byte, bool) { return nil, true }},
	{"empty", func(*used, int, string, []byte) ([]byte, bool) { return []byte{}, true }},
	{"cut in half", func(_ *used, _ int, _ string, b []byte) ([]byte, bool) { return b[:len(b)/2], true }},
	{"one bit turned", func(_ *used, _ int, _ string, b []byte) ([]byte, bool) {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 16
		return b, true
	}},
	{"older", func(u *used, side int, name string, b []byte) ([]byte, bool) {
		old, ok := u.old[side][name]
		return old, ok && !bytes.Equal(old, b)
	}},
	{"the other party's", func(u *used, side int, name string, b []byte) ([]byte, bool) {
		others := slices.Sorted(maps.Keys(u.disks[1-side]))
		i := slices.IndexFunc(others, func(n string) bool { return kindOf(n) == kindOf(name) && len(u.disks[1-side][n]) > 0 })
		if i < 0 {
			return nil, false
		}
		return u.disks[1-side][others[i]], true
	}},
	{"of a later version", func(_ *used, _ int, name string, b []byte) ([]byte, bool) {
		b = bytes.Clone(b)
		switch kindOf(name) {
		case "store.db":
			binary.BigEndian.PutUint32(b[60:], 999) // user_version
			sumPage(b[:4096])
		case "inbox/*":
			binary.BigEndian.PutUint32(b[16:], 3)
			binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
		case "record/mark":
			b = bytes.ReplaceAll(b, []byte("mark v1"), []byte("mark v2"))
		default:
			return nil, false
		}
		return b, true
	}},
}

var writeDamage = flag.Bool("write-damage", false, "write the matrix in docs/bench/damage.md anew")

// TestDamageMatrix does to each kind of file of leader, helper and both what disks and
// people do, and holds what comes of it to the table in docs/bench/damage.md. Nothing
// comes of it silently, whatever the table says.
func TestDamageMatrix(t *testing.T) {
	u := newUsed(t, true)
	kinds := make(map[string]bool)
	for _, files := range u.disks {
		for name := range files {
			kinds[kindOf(name)] = true
		}
	}
	var b strings.Builder
	b.WriteString("| file | of |")
	for _, d := range mishaps {
		b.WriteString(" " + d.name + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(mishaps)) + "\n")
	cells := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for who, sides := range [][]int{{0}, {1}, {0, 1}} {
			row, any := "", false
			for _, d := range mishaps {
				disks, done := u.disks, 0
				for _, side := range sides {
					disks[side] = maps.Clone(disks[side])
					for name, file := range u.disks[side] {
						if kindOf(name) != kind || len(file) == 0 {
							continue
						}
						now, applies := d.to(u, side, name, file)
						if !applies {
							continue
						}
						done |= 1 << side
						if disks[side][name] = now; now == nil {
							delete(disks[side], name)
						}
					}
				}
				if want := []int{1, 2, 3}[who]; done != want {
					row += " |"
					continue
				}
				f := u.play(disks)
				role := []string{"leader", "helper", "both"}[who]
				t.Logf("%s of %s, %s: %s: %s", kind, role, d.name, f.class, f.words)
				if f.class == "fails" {
					t.Errorf("%s of %s, %s: %s", kind, role, d.name, f.words)
				}
				class := f.class
				if kind == "runs/*" && role == "both" && (class == "mended" || class == "waits") {
					class = "mended or waits" // by which file has which place, and names are random
				}
				row += " " + class + " |"
				any = true
				cells++
			}
			if any {
				fmt.Fprintf(&b, "| `%s` | %s |%s\n", kind, []string{"leader", "helper", "both"}[who], row)
			}
		}
	}
	u.onDisks(diskOf(t, u.disks[0]), diskOf(t, u.disks[1]))
	const file, begin, end = "../docs/bench/damage.md", "<!-- matrix -->\n", "<!-- end -->\n"
	doc := string(must(os.ReadFile(file)))
	before, rest, _ := strings.Cut(doc, begin)
	table, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no matrix", file)
	}
	if *writeDamage {
		if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != b.String() {
		t.Errorf("%d cells; %s says\n%s\nand it is\n%s", cells, file, table, b.String())
	}
}
