package hop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A batch is what a lying hop may hand on.
type batch struct {
	m       *onion.Manifest
	by      *signed.Signer
	token   string
	records [][]byte
	piece   int // records in a request
}

func rootOf(records [][]byte) [32]byte {
	var t onion.Tree
	for _, r := range records {
		t.Add(r)
	}
	return t.Root()
}

// toSecond is an honest batch of hop 1.
func (b *bench) toSecond(n uint64, contributions int) *batch {
	b.t.Helper()
	k := b.keys(n)
	x := &batch{by: b.place(onion.First).signer, token: fromFirst, piece: 4}
	for d := range contributions {
		for _, m := range b.messages(d) {
			enc, ct, err := k.Analyzer.Seal(info(3, b.s.Recipe, n), nil, m)
			if err != nil {
				b.t.Fatal(err)
			}
			enc2, ct2, err := k.Second.Seal(info(2, b.s.Recipe, n), nil, append(enc, ct...))
			if err != nil {
				b.t.Fatal(err)
			}
			x.records = append(x.records, append(enc2, ct2...))
		}
	}
	x.m = &onion.Manifest{Recipe: b.s.Recipe, Round: n, Role: onion.First, At: b.s.Flush(n), Contributions: uint64(contributions),
		Messages: uint64(contributions * b.s.Messages), Root: rootOf(x.records)}
	return x
}

// toAnalyzer is an honest batch of hop 2.
func (b *bench) toAnalyzer(n uint64, contributions int) *batch {
	b.t.Helper()
	first := b.toSecond(n, contributions)
	before, err := first.m.Sign(first.by)
	if err != nil {
		b.t.Fatal(err)
	}
	x := &batch{by: b.place(onion.Second).signer, token: fromSecond, piece: 4}
	k := b.keys(n)
	for d := range contributions {
		for _, m := range b.messages(d) {
			enc, ct, err := k.Analyzer.Seal(info(3, b.s.Recipe, n), nil, m)
			if err != nil {
				b.t.Fatal(err)
			}
			x.records = append(x.records, append(enc, ct...))
		}
	}
	x.m = &onion.Manifest{Recipe: b.s.Recipe, Round: n, Role: onion.Second, At: b.s.Flush(n), Contributions: first.m.Contributions,
		Messages: first.m.Messages, Root: rootOf(x.records), Before: before}
	return x
}

// hand hands a batch to a party, whole, and says with which word it is refused, or "".
func (b *bench) hand(to onion.Role, x *batch) string {
	b.t.Helper()
	signed, err := x.m.Sign(x.by)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.handSigned(to, x, signed)
}

func (b *bench) handSigned(to onion.Role, x *batch, manifest []byte) string {
	b.t.Helper()
	at := "batches/" + strconv.FormatUint(x.m.Round, 10)
	rec := b.ask(to, "POST", at, x.token, "application/starling-shuffle-manifest", manifest)
	var progress struct {
		Have    int
		Receipt []byte
	}
	for left := x.records; ; {
		if rec.Code != 200 {
			var p struct{ Type string }
			json.Unmarshal(rec.Body.Bytes(), &p)
			return strings.TrimPrefix(p.Type, "urn:starling:shuffle:")
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &progress); err != nil {
			b.t.Fatal(err)
		}
		if progress.Receipt != nil {
			if err := onion.OpenReceipt(progress.Receipt, &b.s, to, x.m.Round, manifest); err != nil {
				b.t.Error(err)
			}
			return ""
		}
		if len(left) == 0 {
			return "no receipt"
		}
		n := min(x.piece, len(left))
		rec = b.ask(to, "POST", fmt.Sprintf("%s/%d", at, progress.Have), x.token, "application/starling-shuffle-records", bytes.Join(left[:n], nil))
		left = left[n:]
	}
}

// TestLyingFirstHop: each way in which hop 1 may hand on something else than what came is
// refused by hop 2, or told; and an honest batch is taken after it, but where hop 1 has
// signed another one.
func TestLyingFirstHop(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(b *bench, x *batch)
		word string
		tied bool // to its lie
	}{
		"honest":                     {func(*bench, *batch) {}, "", true},
		"it says it was early":       {func(b *bench, x *batch) { x.m.At = x.m.At.Add(-time.Second) }, "early", false},
		"four contributions":         {func(b *bench, x *batch) { *x = *b.toSecond(x.m.Round, 4) }, "few", false},
		"a message more than counts": {func(b *bench, x *batch) { x.m.Messages++ }, "count", false},
		"a message less":             {func(b *bench, x *batch) { x.m.Messages-- }, "count", false},
		"another root":               {func(b *bench, x *batch) { x.m.Root[0]++ }, "root", true},
		"a record replaced":          {func(b *bench, x *batch) { x.records[3] = x.records[4] }, "root", true},
		"records in another order":   {func(b *bench, x *batch) { slices.Reverse(x.records) }, "root", true},
		"a record dropped":           {func(b *bench, x *batch) { x.records = x.records[1:] }, "no receipt", true},
		"a record too many":          {func(b *bench, x *batch) { x.records = append(x.records, x.records[0]) }, "count", true},
		"a record of another size":   {func(b *bench, x *batch) { x.records[5] = append(x.records[5], 7) }, "count", true},
		"a round that is not over":   {func(b *bench, x *batch) { *x = *b.toSecond(x.m.Round+1, 6) }, "not-yet", false},
		"a round that is far away":   {func(b *bench, x *batch) { x.m.Round += 99 }, "round", false},
		"another recipe's":           {func(b *bench, x *batch) { x.m.Recipe[0]++ }, "manifest", false},
		"signed by a stranger":       {func(b *bench, x *batch) { x.by = b.place(onion.Analyzer).signer }, "signature", false},
		"without the token":          {func(b *bench, x *batch) { x.token = fromGateway }, "token", false},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, false, func(t *testing.T, b *bench) {
				n := b.round()
				honest := b.toSecond(n, 6)
				x := b.toSecond(n, 6)
				c.lie(b, x)
				time.Sleep(time.Until(b.s.Flush(n)))
				if word := b.hand(onion.Second, x); word != c.word {
					t.Errorf("%q, want %q", word, c.word)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if b.result(n) != nil != (c.word == "") {
					t.Error("what became of it")
				}
				want := ""
				if c.tied {
					want = "conflict" // one round, one manifest
				}
				if word := b.hand(onion.Second, honest); word != want {
					t.Errorf("the honest one: %q, want %q", word, want)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if want == "" || c.word == "" {
					b.holdDevices(n, upTo(6)...)
				}
			})
		})
	}
}

// TestLyingSecondHop: the same for hop 2 and the analyzer.
func TestLyingSecondHop(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(b *bench, x *batch)
		word string
	}{
		"honest":                    {func(*bench, *batch) {}, ""},
		"early":                     {func(b *bench, x *batch) { x.m.At = x.m.At.Add(-time.Second) }, "early"},
		"other counts than hop 1's": {func(b *bench, x *batch) { x.m.Contributions, x.m.Messages = 7, 21 }, "count"},
		"more lost than there were": {func(b *bench, x *batch) { x.m.Dropped = 19 }, "count"},
		"so many lost that too few are left": {func(b *bench, x *batch) {
			x.m.Dropped, x.records = 4, x.records[4:]
			x.m.Root = rootOf(x.records)
		}, "few"},
		"a message dropped and not counted": {func(b *bench, x *batch) { x.records = x.records[1:] }, "no receipt"},
		"another root":                      {func(b *bench, x *batch) { x.m.Root[31]++ }, "root"},
		"a record replaced":                 {func(b *bench, x *batch) { x.records[0] = bytes.Clone(x.records[0]); x.records[0][40]++ }, "root"},
		"hop 1's manifest changed":          {func(b *bench, x *batch) { x.m.Before[70]++ }, "signature"},
		"its own as hop 1's": {func(b *bench, x *batch) {
			y := b.toSecond(x.m.Round, 6)
			x.m.Before, _ = y.m.Sign(x.by)
		}, "signature"},
		"hop 1's of another round": {func(b *bench, x *batch) {
			y := b.toSecond(x.m.Round, 6)
			y.m.Round--
			x.m.Before, _ = y.m.Sign(y.by)
		}, "manifest"},
		"hop 1 in its place": {func(b *bench, x *batch) { *x = *b.toSecond(x.m.Round, 6); x.token = fromSecond }, "signature"},
		"hop 1's token":      {func(b *bench, x *batch) { x.token = fromFirst }, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, false, func(t *testing.T, b *bench) {
				n := b.round()
				x := b.toAnalyzer(n, 6)
				c.lie(b, x)
				time.Sleep(time.Until(b.s.Flush(n)))
				if word := b.hand(onion.Analyzer, x); word != c.word {
					t.Errorf("%q, want %q", word, c.word)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if (b.result(n) != nil) != (c.word == "") || b.tallied() > 1 {
					t.Errorf("a result: %v, %d tallies", b.result(n) != nil, b.tallied())
				}
			})
		})
	}
}

// TestUnseen: what the next party cannot see is what package hop says it cannot:
// contributions that hop 1 drops before it counts or adds of its own, and messages that
// hop 2 replaces. Those that it doubles are told.
func TestUnseen(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		padded := b.toSecond(n, 9) // of which three are its own
		time.Sleep(time.Until(b.s.Flush(n)))
		if word := b.hand(onion.Second, padded); word != "" {
			t.Error(word)
		}
		x := b.toAnalyzer(n+1, 6)
		y := b.toAnalyzer(n+1, 7)
		x.records[0] = y.records[20] // replaced
		x.records[1] = x.records[2]  // doubled
		x.m.Root = rootOf(x.records)
		time.Sleep(time.Until(b.s.Flush(n + 1)))
		if word := b.hand(onion.Analyzer, x); word != "" {
			t.Error(word)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		b.holdDevices(n, upTo(9)...)
		r := b.result(n + 1)
		if got := devices(r); r.Counts != (onion.Counts{Contributions: 6, Messages: 18, Doubled: 1}) || got[6] != 1 || got[0] != 1 {
			t.Errorf("%+v, %v", r.Counts, got)
		}
	})
}

// TestReplayed: a batch that was taken is taken once: the same again is signed for again, in
// every state of the round and after a restart, and nothing is counted twice; another one of
// the round is refused.
func TestReplayed(t *testing.T) {
	in(t, false, func(t *testing.T, b *bench) {
		n := b.round()
		x := b.toSecond(n, 6)
		other := b.toSecond(n, 7)
		time.Sleep(time.Until(b.s.Flush(n)))
		b.wire.set(host(onion.Analyzer), nil)
		for i := range 4 {
			if word := b.hand(onion.Second, x); word != "" {
				t.Errorf("the %d. time: %q", i+1, word)
			}
			if word := b.hand(onion.Second, other); word != "conflict" {
				t.Errorf("another: %q", word)
			}
			switch i {
			case 0:
				time.Sleep(time.Minute)
			case 1:
				b.restart(b.place(onion.Second))
				b.wire.set(host(onion.Analyzer), b.place(onion.Analyzer).s)
				time.Sleep(10 * time.Minute)
			case 2:
				b.restart(b.place(onion.Second))
			}
			synctest.Wait()
		}
		b.holdDevices(n, upTo(6)...)
		if s := b.recipeStatus(onion.Second); s.Totals.Rounds["delivered"] != 1 || s.Totals.Contributions != 6 {
			t.Errorf("%+v", s.Totals)
		}
		if rec := b.ask(onion.Second, "POST", fmt.Sprintf("batches/%d/0", n), fromFirst, "application/starling-shuffle-records", x.records[0]); rec.Code != 404 {
			t.Errorf("a piece of a round that is over: %d", rec.Code)
		}
	})
}

// TestTamperedWay: whoever sits between the hops can have nothing taken but what hop 1 has
// signed, and hop 1 destroys nothing for a receipt that hop 2 has not signed. An honest try
// afterwards goes through.
func TestTamperedWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.limits.Piece = 500
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		b.contribute(b.envelopes(n, 0, 8)...)
		forger := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			receipt, err := (&onion.Receipt{Recipe: b.s.Recipe, Round: n, Role: onion.Second, At: time.Now()}).Sign(b.place(onion.First).signer)
			if err != nil {
				t.Error(err)
			}
			json.NewEncoder(w).Encode(map[string]any{"have": 24, "receipt": receipt})
		})
		b.wire.set(host(onion.Second), forger)
		b.flushed(n)
		if s := b.roundStatus(onion.First); s.Stage != "committed" || s.Trouble == "" {
			t.Errorf("%+v", s)
		}
		var mu sync.Mutex
		pieces, bad := 0, 3
		b.wire.look = func(_ string, r *http.Request, body []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if strings.Count(r.URL.Path, "/") == 5 { // a piece
				if pieces++; pieces == bad {
					body[7] ^= 1
				}
			}
			return nil
		}
		b.wire.set(host(onion.Second), b.place(onion.Second).s)
		time.Sleep(time.Hour / 2)
		synctest.Wait()
		b.holdDevices(n, upTo(8)...)
		if pieces < 12 {
			t.Errorf("only %d pieces: the changed one was taken", pieces)
		}
		if s := b.recipeStatus(onion.Second).Requests; s["refused"] != 1 {
			t.Errorf("%v", s)
		}
	})
}

// TestStuck: a next party that says nothing, knows nothing, or takes pieces without an
// end holds a round up for Hold and no longer, and no other round.
func TestStuck(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refuses":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"knows nothing": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("thank you")) },
		"has all":       func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"have":1000}`)) },
		"never has any": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"have":0}`)) },
		"says nothing":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, false, 1)
				b.hold = 3 * time.Hour
				b.mustRun()
				defer b.stopAll()
				n := b.round()
				b.contribute(b.envelopes(n, 0, 6)...)
				b.wire.set(host(onion.Second), answer)
				b.flushed(n)
				if s := b.roundStatus(onion.First); s.Stage != "committed" {
					t.Errorf("%+v", s)
				}
				time.Sleep(4 * time.Hour)
				if s := b.recipeStatus(onion.First); s.Totals.Rounds["expired"] != 1 || s.Totals.LeftOver != 18 {
					t.Errorf("%+v", s)
				}
				if left := b.left(b.place(onion.First), n+1); len(left) > 0 {
					t.Errorf("it keeps %v", left)
				}
				b.wire.set(host(onion.Second), b.place(onion.Second).s)
				n = b.round()
				b.contribute(b.envelopes(n, 0, 6)...)
				b.flushed(n)
				b.holdDevices(n, upTo(6)...)
			})
		})
	}
}

// TestRefusedIsTyped: what the next party says is told with its word, and matches its error.
func TestRefusedIsTyped(t *testing.T) {
	for word, want := range map[string]error{"root": onion.ErrRoot, "few": onion.ErrFew, "count": onion.ErrCount, "early": onion.ErrEarly, "conflict": hop.ErrConflict,
		"not-yet": hop.ErrNotYet, "round": hop.ErrRound, "offset": hop.ErrOffset, "signature": signed.ErrSignature, "manifest": onion.ErrManifest} {
		if err := error(&hop.RefusedError{Word: word}); !errors.Is(err, want) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
