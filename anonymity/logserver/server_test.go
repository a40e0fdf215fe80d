package logserver_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestLog: entries get places, are shown with a quorum's word, can be proved from tiles, and
// come to devices with the period after; over restarts.
func TestLog(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		if rec := b.get("checkpoint"); rec.Code != 503 {
			t.Errorf("before the first: %d", rec.Code)
		}
		time.Sleep(time.Minute)
		var m tlog.Memory
		var sizes []int64
		for i := range 300 {
			e := entry(t, fmt.Sprintf("release %d", i), 1)
			a, no := b.add(e)
			if no != "" || a.Known {
				t.Fatalf("%d: %+v %q", i, a, no)
			}
			if again, _ := b.add(e); again.Index != a.Index || !again.Known {
				t.Fatalf("%d, again: %+v", i, again)
			}
			if i%60 != 59 {
				continue
			}
			time.Sleep(time.Hour)
			w := b.checkpoint()
			tree := b.tree(w)
			hashes, err := tree.Prove(a.Index)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.o.Policy.OpenProof(&tlog.Proof{Index: a.Index, Hashes: hashes, Note: w.Note}, e, time.Now()); err != nil {
				t.Error(err)
			}
			for _, tile := range tlog.EntryTiles(0, w.Size) {
				entries, err := tile.ReadTiled(b.get(tile.Path()).Body.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				for j, e := range entries {
					if leaf, err := tree.Leaf(tile.N*256 + int64(j)); err != nil || leaf != tlog.LeafHash(e) {
						t.Fatalf("entry %d: %v", tile.N*256+int64(j), err)
					}
				}
			}
			o, next, err := b.device(m)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(o); len(got) != i+1 || got[i] != fmt.Sprintf("release %d", i) {
				t.Errorf("after %d: %d entries hold", i, len(got))
			}
			m, sizes = next, append(sizes, w.Size)
			b.stop()
			b.mustRun()
			if again := b.checkpoint(); !bytes.Equal(again.Note, w.Note) {
				t.Error("after a restart it shows something else")
			}
			if err := b.s.Audit(); err != nil {
				t.Error(err)
			}
		}
		b.stop()
		if !slices.IsSorted(sizes) || sizes[0] == sizes[len(sizes)-1] {
			t.Errorf("sizes %v", sizes)
		}
	})
}

// TestShowsOnlySigned: what witnesses have not signed is not to be had, entry or tile.
func TestShowsOnlySigned(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		defer func() { b.stop() }()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		size := b.checkpoint().Size
		b.wire.set("w1", nil)
		a, _ := b.add(entry(t, "two", 1))
		time.Sleep(2 * time.Minute)
		if got := b.checkpoint().Size; got != size {
			t.Errorf("it shows %d entries without a witness, %d before", got, size)
		}
		for _, path := range []string{fmt.Sprintf("tile/0/000.p/%d", a.Index+1), fmt.Sprintf("tile/entries/000.p/%d", a.Index+1)} {
			if rec := b.get(path); rec.Code != 404 {
				t.Errorf("%s: %d", path, rec.Code)
			}
		}
		if rec := b.get(fmt.Sprintf("tile/entries/000.p/%d", size)); rec.Code != 200 {
			t.Errorf("what is signed: %d", rec.Code)
		}
		s := b.s.Status()
		take, show := b.s.Trouble()
		if s.Trouble == "" || take != nil || show == nil || s.Witnesses[1].Error == "" || s.Entries != a.Index+1 {
			t.Errorf("%+v, %v, %v", s, take, show)
		}
		b.wire.set("w1", b.w[1])
		time.Sleep(2 * time.Minute)
		if got := b.checkpoint().Size; got != a.Index+1 {
			t.Errorf("with the witness back it shows %d entries", got)
		}
		if s := b.s.Status(); s.Trouble != "" || s.Witnesses[1].Error != "" {
			t.Errorf("%+v", s)
		}
	})
}

// TestHolding: the status counts the entries that the bundle has, and not those of a later set
// that too few have signed.
func TestHolding(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		defer func() { b.stop() }()
		b.add(entry(t, "one", 1))
		time.Sleep(90 * time.Minute)
		b.wire.set("w1", nil)
		b.add(entry(t, "two", 1))
		time.Sleep(2 * time.Hour)
		x, err := tlog.ReadBundle(b.get("bundle").Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		// Beside its entries a bundle has the set that says which they are.
		if got := b.s.Status().Holding; got != 1 || len(x.Records) != got+1 {
			t.Errorf("%d hold, by the status, and the bundle has %d", got, len(x.Records)-1)
		}
	})
}

// TestRefused: what is not to be in a log is refused with the reason, and nothing of it is
// kept.
func TestRefused(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.o.Limits = logserver.Limits{PerHour: 5, Entries: 12}
		b.mustRun()
		defer func() { b.stop() }()
		first, _ := b.add(entry(t, "one", 1))
		active, err := (&tlog.Active{Begin: time.Now(), End: time.Now().Add(time.Hour)}).Entry()
		if err != nil {
			t.Fatal(err)
		}
		leaf := tlog.LeafHash(entry(t, "one", 1))
		time.Sleep(time.Minute)
		size := b.s.Status().Entries
		for name, c := range map[string]struct {
			e    []byte
			want string
		}{
			"nothing":                        {nil, "malformed"},
			"no entry":                       {[]byte("hello"), "malformed"},
			"a byte more":                    {append(entry(t, "two", 1), 0), "malformed"},
			"too long":                       {make([]byte, tlog.MaxEntry+1), "malformed"},
			"not signed by its owner":        {entry(t, "two", 1, 1), "refused"},
			"of a kind that nobody knows":    {encode(t, tlog.Entry{Kind: 99, Body: []byte("x")}), "refused"},
			"a set of its own":               {encode(t, active), "refused"},
			"about the same":                 {entry(t, "one", 2), "duplicate"},
			"signed in the future":           {entry(t, "two", 1, 0, 25), "time"},
			"a withdrawal by another owner":  {encode(t, tlog.Entry{Kind: tlog.KindWithdrawal, Body: append([]byte{2}, leaf[:]...)}), "withdrawal"},
			"a withdrawal of what is not in": {encode(t, tlog.Entry{Kind: tlog.KindWithdrawal, Body: bytes.Repeat([]byte{7}, 33)}), "withdrawal"},
		} {
			if _, no := b.add(c.e); no != c.want {
				t.Errorf("%s: %q, want %q", name, no, c.want)
			}
		}
		if got := b.s.Status().Entries; got != size {
			t.Errorf("%d entries, %d before", got, size)
		}
		if a, _ := b.add(entry(t, "one", 1)); a != (logserver.Added{Index: first.Index, Known: true}) {
			t.Errorf("%+v", a)
		}
		// One owner may add half of what the others have left, so nobody uses up the hour.
		taken := map[byte]int{1: 1}
		for pass, owner := range []byte{1, 2, 3, 4, 1} {
			for i := range 10 {
				_, no := b.add(entry(t, fmt.Sprint(pass, owner, i), owner))
				if no == "" {
					taken[owner]++
				} else if no != "rate" {
					t.Errorf("%d: %q", i, no)
				}
			}
		}
		if want := map[byte]int{1: 3, 2: 1, 3: 1}; !maps.Equal(taken, want) {
			t.Errorf("%v entries in one hour, want %v", taken, want)
		}
		time.Sleep(26 * time.Hour)
		if _, no := b.add(entry(t, "late", 1, 0, 1)); no != "time" {
			t.Errorf("signed a day ago: %q", no)
		}
		for i := range 30 { // active sets have taken the rest
			if _, no := b.add(entry(t, fmt.Sprint("more", i), 1)); no != "full" {
				t.Errorf("%d: %q", i, no)
			}
		}
		rec := httptest.NewRecorder()
		b.s.ServeHTTP(rec, httptest.NewRequest("POST", "/add", bytes.NewReader(entry(t, "x", 1))))
		if rec.Code != 415 {
			t.Errorf("without a media type: %d", rec.Code)
		}
		for _, c := range []struct {
			method, path string
			want         int
		}{{"GET", "/add", 405}, {"POST", "/checkpoint", 405}, {"GET", "/", 404}, {"GET", "/tile/0/../000", 404}, {"GET", "/tile/0/999", 404}, {"GET", "/entries.log", 404}, {"DELETE", "/bundle", 405}} {
			rec := httptest.NewRecorder()
			b.s.ServeHTTP(rec, httptest.NewRequest(c.method, c.path, nil))
			if rec.Code != c.want {
				t.Errorf("%s %s: %d", c.method, c.path, rec.Code)
			}
		}
	})
}

// TestBundleStays: in one period all have the same bytes, whatever is logged meanwhile,
// and each size under which a bundle was shown is one from which the next go on, over
// restarts.
func TestBundleStays(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.o.Period, b.o.Interval, b.o.Republish = 24*time.Hour, time.Second, time.Hour
		b.mustRun()
		defer func() { b.stop() }()
		var sizes []int64
		number := 0
		look := func() []byte {
			time.Sleep(time.Minute)
			file := b.get("bundle").Body.Bytes()
			x, err := tlog.ReadBundle(file)
			if err != nil {
				t.Fatal(err)
			}
			var steps []int64
			for _, s := range x.Steps {
				steps = append(steps, s.Size)
			}
			c, err := tlog.TextOf(x.Note)
			if err != nil {
				t.Fatal(err)
			}
			if known := slices.Index(sizes, c.Size); known < 0 {
				sizes = append(sizes, c.Size)
			}
			if want := sizes[:len(sizes)-1]; !slices.Equal(steps, want) {
				t.Fatalf("it goes on from %v, want %v", steps, want)
			}
			return file
		}
		add := func() {
			number++
			if _, refused := b.add(entry(t, fmt.Sprintf("e%d", number), 1)); refused != "" {
				t.Fatal(refused)
			}
		}
		for day := range 3 {
			first := look()
			for range 5 {
				add()
				if !bytes.Equal(look(), first) {
					t.Errorf("day %d: the bundle changes within its period", day)
				}
			}
			if b.checkpoint().Size < sizes[len(sizes)-1]+5 {
				t.Error("the checkpoint does not go on")
			}
			b.stop()
			b.mustRun()
			restarted := look()
			time.Sleep(5 * time.Hour)
			if !bytes.Equal(look(), restarted) {
				t.Errorf("day %d: the bundle changes within its period, after a restart", day)
			}
			add()
			time.Sleep(2 * time.Hour) // it is signed anew before it is too old
			if again := look(); bytes.Equal(again, restarted) {
				t.Errorf("day %d: the bundle is as old as its period", day)
			}
			time.Sleep(17 * time.Hour)
		}
	})
}

// TestWithdrawn: what its owner withdraws is gone from the bundle with the next period, and
// does not come back.
func TestWithdrawn(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		defer func() { b.stop() }()
		one := entry(t, "one", 1)
		b.add(one)
		b.add(entry(t, "two", 1))
		time.Sleep(time.Hour + time.Minute)
		o, m, err := b.device(tlog.Memory{})
		if err != nil || fmt.Sprint(names(o)) != "[one two]" {
			t.Fatalf("%v, %v", names(o), err)
		}
		leaf := tlog.LeafHash(one)
		if _, no := b.add(encode(t, tlog.Entry{Kind: tlog.KindWithdrawal, Body: append([]byte{1}, leaf[:]...)})); no != "" {
			t.Fatal(no)
		}
		time.Sleep(time.Hour)
		if o, _, err = b.device(m); err != nil || fmt.Sprint(names(o)) != "[two]" {
			t.Errorf("%v, %v", names(o), err)
		}
		if _, no := b.add(entry(t, "one", 1, 0, 2)); no != "duplicate" {
			t.Errorf("again: %q", no)
		}
	})
}

// TestFreshness: a log to which nothing comes signs all the same, so that devices see that
// it lives; one that has stopped they leave after a day.
func TestFreshness(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		_, m, err := b.device(tlog.Memory{})
		if err != nil {
			t.Fatal(err)
		}
		for range 80 {
			time.Sleep(time.Hour)
			o, next, err := b.device(m)
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(o.Time); age > time.Hour+time.Minute {
				t.Errorf("the checkpoint is %v old", age)
			}
			m = next
		}
		b.end()
		<-b.ended
		time.Sleep(23 * time.Hour)
		if _, _, err := b.device(m); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Hour)
		if _, _, err := b.device(m); err == nil || !strings.Contains(err.Error(), "nothing new") && !strings.Contains(err.Error(), "stopped") {
			t.Errorf("a day later: %v", err)
		}
		b.s.Close()
	})
}

// TestSameForAll: two devices get the same bytes, whatever they send along.
func TestSameForAll(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		defer func() { b.stop() }()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		want := b.get("bundle")
		for _, h := range []http.Header{{"Range": {"bytes=0-10"}}, {"Accept-Encoding": {"gzip"}}, {"If-None-Match": {"*"}}, {"Cookie": {"a=b"}}} {
			r := httptest.NewRequest("GET", "/bundle", nil)
			r.Header = h
			rec := httptest.NewRecorder()
			b.s.ServeHTTP(rec, r)
			if rec.Code != 200 || !bytes.Equal(rec.Body.Bytes(), want.Body.Bytes()) || fmt.Sprint(rec.Header()) != fmt.Sprint(want.Header()) {
				t.Errorf("%v: %d, %d bytes, %v", h, rec.Code, rec.Body.Len(), rec.Header())
			}
		}
	})
}

// TestHostileWitness: answers that are none, and signatures of others, count for nothing;
// what one witness does wrong does not keep the other's from counting.
func TestHostileWitness(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		stray := tlogtest.Secret(t, "w1.example", tlog.CosignEd)
		answer := func(status int, media, text string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", media)
				w.WriteHeader(status)
				w.Write([]byte(text))
			})
		}
		b.wire.set("w1", nil)
		b.mustRun()
		defer func() { b.stop() }()
		for name, h := range map[string]http.Handler{
			"nobody": nil, "no signature": answer(200, "text/plain", ""), "rubbish": answer(200, "text/plain", "hello\n"),
			"very much":           answer(200, "text/plain", strings.Repeat("x", 1<<20)),
			"a size that is none": answer(409, "text/x.tlog.size", "-1\n"), "a larger size": answer(409, "text/x.tlog.size", "1000\n"),
			"a size for ever": answer(409, "text/x.tlog.size", "0\n"), "not a size": answer(409, "text/plain", "0\n"), "a fault": answer(500, "text/plain", "x"),
			"another's signature": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := new(bytes.Buffer)
				body.ReadFrom(r.Body)
				s, err := tlog.ReadSubmission(body.Bytes())
				if err != nil {
					t.Error(err)
					return
				}
				c, err := tlog.TextOf(s.Note)
				if err != nil {
					t.Error(err)
					return
				}
				lines, err := tlog.Cosign(c.Text(), time.Now(), stray)
				if err != nil {
					t.Error(err)
				}
				w.Write(lines)
			}),
		} {
			b.wire.set("w1", h)
			b.add(entry(t, name, 1))
			time.Sleep(5 * time.Minute)
			if rec := b.get("checkpoint"); rec.Code != 503 {
				t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
			}
			if s := b.s.Status(); s.Witnesses[1].Error == "" || s.Witnesses[0].Error != "" {
				t.Errorf("%s: %+v", name, s.Witnesses)
			}
		}
		b.wire.set("w1", b.w[1])
		time.Sleep(5 * time.Minute)
		b.checkpoint()
	})
}

// TestFork: a second log under the same key, which forks the first, gets no quorum: an
// honest witness of the two is enough.
func TestFork(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.mustRun()
		b.add(entry(t, "one", 1))
		time.Sleep(time.Minute)
		before := b.checkpoint()
		b.stop()
		fork := *b
		fork.o.FS, fork.o.Record = disktest.NewMem(3), disktest.NewMem(3)
		// One witness plays along: it begins anew.
		s, err := witness.New(witness.Options{Keys: []*tlog.Secret{tlogtest.Secret(t, "x", tlog.CosignEd)}, Logs: []*tlog.Key{b.o.Key.Key()}, FS: disktest.NewMem(1)})
		if err != nil {
			t.Fatal(err)
		}
		b.wire.set("w0", s)
		fork.mustRun()
		defer func() { fork.stop() }()
		for i := range 5 {
			fork.add(entry(t, fmt.Sprint("other", i), 1))
		}
		time.Sleep(time.Hour)
		if rec := fork.get("checkpoint"); rec.Code != 503 {
			t.Errorf("a fork is shown: %d %s", rec.Code, rec.Body)
		}
		st := fork.s.Status()
		if !strings.Contains(st.Witnesses[1].Error, "another runs under its key") {
			t.Errorf("%+v, of size %d before", st.Witnesses, before.Size)
		}
	})
}
