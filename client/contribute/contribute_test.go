package contribute_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// TestShuffled: answers that go through both hops come out as their sum, the same envelope
// once however often it is sent, and nothing comes out before the time.
func TestShuffled(t *testing.T) {
	in(t, kind{}, func(t *testing.T, w *world) {
		c, reader := w.contributor(), w.reader()
		now := time.Now()
		if _, err := c.Prepare(client.Number(1), now); !errors.Is(err, client.ErrNoKeys) {
			t.Errorf("without keys: %v", err)
		}
		if err := c.Report(t.Context(), client.Number(1), client.Number(2), client.Number(9), client.NoValue(), client.Number(7)); err != nil {
			t.Fatal(err)
		}
		again, err := c.Prepare(client.Number(5), now)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Send(t.Context(), again, again); err != nil {
				t.Fatal(err)
			}
		}
		keys := slices.DeleteFunc(w.requests(), func(s string) bool { return !strings.HasPrefix(s, "GET ") })
		if !slices.Equal(keys, []string{"GET first.example", "GET second.example", "GET analyzer.example"}) {
			t.Errorf("asked for keys: %v", keys)
		}
		if _, err := reader.Round(t.Context(), w.shuffle.Round(now)); !errors.Is(err, collector.ErrNoResult) {
			t.Errorf("before its end: %v", err)
		}
		n := w.flushed()
		x, err := reader.Round(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		if x.ReportCount != 6 || len(x.Raw) != 1 || x.Raw[0] != 24 || x.Estimate[0] != 24 || x.RecipeID != w.checked.ID() || !x.From.Equal(w.shuffle.Begin(n)) {
			t.Errorf("%+v", x)
		}
		var written, usual map[string]any
		b, _ := json.Marshal(x)
		blank, _ := json.Marshal(&collector.Result{})
		if json.Unmarshal(b, &written) != nil || json.Unmarshal(blank, &usual) != nil || len(written) != len(usual) {
			t.Errorf("other keys: %s", b)
		}
		if _, err := c.Prepare(client.Number(5), now); !errors.Is(err, client.ErrWindow) {
			t.Errorf("after the flush: %v", err)
		}
		// in the next rounds there are other keys, of which those ahead were known
		if err := c.Report(t.Context(), client.Number(1)); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * w.shuffle.Length)
		if err := c.Report(t.Context(), client.Number(1)); err != nil {
			t.Error(err)
		}
		other, err := collector.NewReader(collector.ReaderOptions{Checked: w.checked, Token: "another", HTTP: w})
		if err != nil {
			t.Fatal(err)
		}
		p := new(dap.Problem)
		if _, err := other.Round(t.Context(), n); !errors.As(err, &p) || p.HTTPStatus() != http.StatusUnauthorized {
			t.Errorf("another token: %v", err)
		}
		if _, err := reader.Round(t.Context(), n+1); !errors.Is(err, collector.ErrNoResult) {
			t.Errorf("of one contribution: %v", err)
		}
	})
}

// TestDirect: reports that the device blurred reach the analyzer, which alone is asked for
// keys, and their count is estimated.
func TestDirect(t *testing.T) {
	in(t, kind{direct: true, counts: true}, func(t *testing.T, w *world) {
		values := make([]client.Value, 400)
		for i := range values {
			values[i] = client.Bool(i < 300)
		}
		if err := w.contributor().Report(t.Context(), values...); err != nil {
			t.Fatal(err)
		}
		if w.requests()[0] != "GET analyzer.example" || w.requests()[1] != "POST analyzer.example" {
			t.Errorf("%v", w.requests())
		}
		x, err := w.reader().Round(t.Context(), w.flushed())
		if err != nil {
			t.Fatal(err)
		}
		// epsilon0 = 4 keeps 98 % of answers: a deviation below 4; wrong once in 10^9
		if x.ReportCount != 400 || x.Sampled == nil || math.Abs(x.Estimate[0]-300) > 6.2*4 {
			t.Errorf("%d reports, estimate %v", x.ReportCount, x.Estimate)
		}
	})
}

// TestRefusedRecipe: what a device does not agree to is refused as package client does.
func TestRefusedRecipe(t *testing.T) {
	in(t, kind{counts: true}, func(t *testing.T, w *world) {
		for reason, change := range map[client.Reason]func(*client.Options){
			client.ReasonKeys:        func(o *client.Options) { o.Anchors = nil },
			client.ReasonEpsilon:     func(o *client.Options) { o.MaxEpsilon = 1e-3 },
			client.ReasonBatch:       func(o *client.Options) { o.MinBatch = 5 },
			client.ReasonMalformed:   func(o *client.Options) { o.Recipe = o.Recipe[:20] },
			client.ReasonCertificate: func(o *client.Options) { o.Recipe = w.checked.Bytes() },
		} {
			o, refused := w.options(), new(client.RefusedError)
			change(&o)
			if _, err := contribute.New(contribute.Options{Client: o}); !errors.As(err, &refused) || refused.Reason != reason {
				t.Errorf("%s: %v", reason, err)
			}
		}
		if _, err := contribute.New(contribute.Options{Client: w.options(), Lists: w}); err == nil {
			t.Error("Lists without Via")
		}
	})
}

// list is a party's own list.
func (w *world) list(role onion.Role, host string) *onion.KeyList {
	w.t.Helper()
	r, err := http.NewRequest("GET", "https://"+host+"/"+onion.KeysPath(w.shuffle.Recipe), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	var b bytes.Buffer
	b.ReadFrom(resp.Body)
	root := w.checked.Recipe().Parties()[role-1].Key
	l, err := onion.OpenKeyList(b.Bytes(), root, w.shuffle.Recipe, role)
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// TestHostileLists: a list that is signed by another, of another recipe or party, without
// the present round, of later, oversized, or with keys that are another's too, is
// refused, and no list is taken then.
func TestHostileLists(t *testing.T) {
	in(t, kind{}, func(t *testing.T, w *world) {
		first, second := w.list(onion.First, "first.example"), w.list(onion.Second, "second.example")
		stranger := signedtest.Signer(t, signed.Generate(), time.Now().Add(-time.Hour), 80*24*time.Hour)
		for name, c := range map[string]struct {
			change func(l *onion.KeyList)
			signer *signed.Signer
			want   error
		}{
			"signed by another": {nil, stranger, signed.ErrSignature},
			"another recipe":    {func(l *onion.KeyList) { l.Recipe[3] ^= 1 }, nil, onion.ErrKeys},
			"another party":     {func(l *onion.KeyList) { l.Role = onion.Analyzer }, nil, onion.ErrKeys},
			"round missing": {func(l *onion.KeyList) {
				for n := w.shuffle.Round(time.Now()); l.First <= n; {
					l.First, l.Keys = l.First+1, l.Keys[1:]
				}
			}, nil, contribute.ErrStale},
			"rounds over":   {func(l *onion.KeyList) { l.First -= 100; l.Until = w.shuffle.Flush(l.First + uint64(len(l.Keys)) - 1) }, nil, contribute.ErrStale},
			"of later":      {func(l *onion.KeyList) { l.Issued = l.Issued.Add(2 * time.Minute) }, nil, contribute.ErrStale},
			"other rounds":  {func(l *onion.KeyList) { l.Until = l.Until.Add(time.Second) }, nil, contribute.ErrStale},
			"one key twice": {func(l *onion.KeyList) { l.Keys[1] = l.Keys[0] }, nil, contribute.ErrSharedKey},
			"another's key": {func(l *onion.KeyList) { l.Keys[0] = first.Keys[0] }, nil, contribute.ErrSharedKey},
		} {
			l := *second
			l.Keys = slices.Clone(second.Keys)
			if c.change != nil {
				c.change(&l)
			}
			if c.signer == nil {
				c.signer = w.signers[onion.Second]
			}
			b, err := l.Sign(c.signer)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w.answer = func(host string, r *http.Request) *http.Response {
				if host == "second.example" && r.Method == "GET" {
					return replies(onion.KeysMedia, b)
				}
				return nil
			}
			x, wrong := w.contributor(), new(contribute.KeysError)
			if err := x.Refresh(t.Context()); !errors.Is(err, c.want) || !errors.As(err, &wrong) || wrong.Party != onion.Second {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if _, err := x.Prepare(client.Number(1), time.Now()); !errors.Is(err, client.ErrNoKeys) {
				t.Errorf("%s: sealed all the same: %v", name, err)
			}
		}
		for name, a := range map[string]*http.Response{
			"oversized":   replies(onion.KeysMedia, make([]byte, onion.MaxKeyList+1)),
			"other media": replies("text/plain", []byte("keys")),
		} {
			w.answer = func(host string, r *http.Request) *http.Response { return a }
			if err := w.contributor().Refresh(t.Context()); !errors.Is(err, client.ErrAnswer) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// a party that gives another key of a round than before
		w.answer = nil
		x := w.contributor()
		if err := x.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(w.shuffle.Begin(second.First + uint64(len(second.Keys)))))
		fresh := w.list(onion.Second, "second.example")
		fresh.Keys[len(fresh.Keys)-1], fresh.Keys[0] = fresh.Keys[0], fresh.Keys[len(fresh.Keys)-1]
		b, err := fresh.Sign(w.signers[onion.Second])
		if err != nil {
			t.Fatal(err)
		}
		w.answer = func(host string, r *http.Request) *http.Response {
			if host == "second.example" {
				return replies(onion.KeysMedia, b)
			}
			return nil
		}
		if err := x.Refresh(t.Context()); !errors.Is(err, contribute.ErrConflict) {
			t.Errorf("another key of the same round: %v", err)
		}
	})
}

// TestSend: what is no envelope of the recipe is not sent, a hop that is away is asked
// again, and one that stays away fails the call.
func TestSend(t *testing.T) {
	in(t, kind{}, func(t *testing.T, w *world) {
		c := w.contributor()
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, err := c.Prepare(client.Number(1), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if odd := new(client.ValueError); true {
			if _, err := c.Prepare(client.Number(10), time.Now()); !errors.As(err, &odd) {
				t.Errorf("no answer: %v", err)
			}
			if _, err := c.Prepare(client.Bool(true), time.Now()); !errors.As(err, &odd) {
				t.Errorf("an answer of another kind: %v", err)
			}
		}
		key, err := w.list(onion.First, "first.example").Key(w.shuffle.Round(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		small, err := onion.Shape{Recipe: w.shuffle.Recipe, Messages: 1, Size: 3}.SealDirect(key, [][]byte{make([]byte, 3)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.forget()
		for name, b := range map[string][]byte{"none": nil, "another size": small, "cut": e[:len(e)-1], "two": slices.Concat(e, e), "none in it": make([]byte, len(e))} {
			if err := c.Send(t.Context(), e, b); !errors.Is(err, onion.ErrEnvelope) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(w.requests()) > 0 {
			t.Errorf("sent: %v", w.requests())
		}
		left := 2
		w.answer = func(host string, r *http.Request) *http.Response {
			if left--; left >= 0 {
				return &http.Response{StatusCode: 503, Body: http.NoBody, Header: http.Header{}}
			}
			return nil
		}
		if err := c.Send(t.Context(), e); err != nil || len(w.requests()) != 3 {
			t.Errorf("after %v: %v", w.requests(), err)
		}
		left = math.MaxInt
		away := new(client.UnavailableError)
		if err := c.Send(t.Context(), e); !errors.As(err, &away) {
			t.Errorf("away: %v", err)
		}
	})
}

// TestHostileResults: what is not signed by the analyzer and both hops, of the round and of
// counts that go together, is no result; and one of which messages are missing has no value.
func TestHostileResults(t *testing.T) {
	in(t, kind{}, func(t *testing.T, w *world) {
		if err := w.contributor().Report(t.Context(), client.Number(1), client.Number(2), client.Number(3), client.Number(4)); err != nil {
			t.Fatal(err)
		}
		n := w.flushed()
		reader := w.reader()
		var b []byte
		good := func() *onion.Result {
			w.answer = nil
			r, _ := http.NewRequest("GET", "https://analyzer.example/"+onion.ResultPath(w.shuffle.Recipe, n), nil)
			r.Header.Set("Authorization", "Bearer "+readers)
			resp, err := w.do(r)
			if err != nil {
				t.Fatal(err)
			}
			var all bytes.Buffer
			all.ReadFrom(resp.Body)
			b = bytes.Clone(all.Bytes())
			x, err := onion.OpenResult(b, w.shuffle, n)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		ask := func(b []byte) (*collector.Result, error) {
			w.answer = func(string, *http.Request) *http.Response { return replies(onion.ResultMedia, b) }
			return reader.Round(t.Context(), n)
		}
		good()
		if x, err := ask(b); err != nil || x.Raw[0] != 10 {
			t.Fatalf("%+v, %v", x, err)
		}
		for at := range b {
			changed := bytes.Clone(b)
			changed[at] ^= 1
			if x, err := ask(changed); x != nil || !errors.Is(err, collector.ErrAnswer) {
				t.Fatalf("byte %d of %d changed: %+v, %v", at, len(b), x, err)
			}
		}
		for name, c := range map[string]struct {
			change func(x *onion.Result)
			want   error
		}{
			"one contribution more": {func(x *onion.Result) { x.Counts.Contributions++; x.Counts.Messages += uint64(w.shuffle.Messages) }, onion.ErrCount},
			"one message less":      {func(x *onion.Result) { x.Counts.Messages-- }, onion.ErrCount},
			"below the least":       {func(x *onion.Result) { x.Counts.Contributions--; x.Counts.Messages -= uint64(w.shuffle.Messages) }, onion.ErrFew},
			"another round":         {func(x *onion.Result) { x.Round++ }, onion.ErrResult},
			"another recipe":        {func(x *onion.Result) { x.Recipe[0] ^= 1 }, onion.ErrResult},
			"early":                 {func(x *onion.Result) { x.At = w.shuffle.Begin(n) }, onion.ErrFew},
			"hops' word changed":    {func(x *onion.Result) { x.Manifest[40] ^= 1 }, nil},
			"no tally":              {func(x *onion.Result) { x.Tally = []byte("{}") }, recipe.ErrOutcome},
			"other tally":           {func(x *onion.Result) { x.Tally = []byte(`{"tally":{"sums":[10],"reports":5,"rejected":0}}`) }, recipe.ErrOutcome},
			"two sums":              {func(x *onion.Result) { x.Tally = []byte(`{"tally":{"sums":[10,1],"reports":4,"rejected":0}}`) }, recipe.ErrOutcome},
			"spaces":                {func(x *onion.Result) { x.Tally = append(x.Tally, ' ') }, recipe.ErrOutcome},
			"unknown problem":       {func(x *onion.Result) { x.Tally = []byte(`{"problem":"tired"}`) }, recipe.ErrOutcome},
		} {
			x := good()
			c.change(x)
			changed, err := x.Sign(w.signers[onion.Analyzer])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ask(changed); got != nil || !errors.Is(err, collector.ErrAnswer) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
		ruined := new(collector.RuinedError)
		x := good()
		x.Counts.Dropped = 1 // an analyzer that gives a sum all the same
		b, err := x.Sign(w.signers[onion.Analyzer])
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ask(b); got != nil || !errors.As(err, &ruined) || ruined.Missing != 1 || ruined.Problem != recipe.MessagesMissing {
			t.Errorf("one missing: %+v, %v", got, err)
		}
		x = good()
		x.Tally = []byte(`{"problem":"unusable"}`)
		if b, err = x.Sign(w.signers[onion.Analyzer]); err != nil {
			t.Fatal(err)
		}
		if got, err := ask(b); got != nil || !errors.As(err, &ruined) || ruined.Problem != recipe.MessagesUnusable {
			t.Errorf("unusable: %+v, %v", got, err)
		}
	})
}

// TestRuined: an envelope whose onions open nowhere counts, and the sum is ruined: the real
// analyzer says so.
func TestRuined(t *testing.T) {
	in(t, kind{}, func(t *testing.T, w *world) {
		c := w.contributor()
		if err := c.Report(t.Context(), client.Number(1), client.Number(2), client.Number(3), client.Number(4), client.Number(5)); err != nil {
			t.Fatal(err)
		}
		n := w.shuffle.Round(time.Now())
		first, err := w.list(onion.First, "first.example").Key(n)
		if err != nil {
			t.Fatal(err)
		}
		messages := make([][]byte, w.shuffle.Messages)
		for i := range messages {
			messages[i] = make([]byte, w.shuffle.Size)
		}
		bad, err := w.shuffle.Shape(n).Seal(onion.Keys{First: first, Second: first, Analyzer: first}, messages, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		ruined := new(collector.RuinedError)
		if x, err := w.reader().Round(t.Context(), w.flushed()); x != nil || !errors.As(err, &ruined) || ruined.Missing != uint64(w.shuffle.Messages) || ruined.Contributions != 6 {
			t.Errorf("%+v, %v", x, err)
		}
	})
}

// TestPerson: the ledger of a person lets one contribution out in a round, of as many rounds
// as the recipe has.
func TestPerson(t *testing.T) {
	in(t, kind{counts: true}, func(t *testing.T, w *world) {
		o := w.options()
		o.Recipe, o.Checked = nil, w.checked
		p, err := sender.OpenPerson(t.Context(), sender.Options{Client: o}, sender.Home{Dir: t.TempDir(), Limits: participate.LedgerOptions{MaxEpsilon: 100, MaxDelta: 1e-3}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		d, err := p.Decide(t.Context(), client.Bool(true))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.Send(t.Context()); !errors.Is(err, participate.ErrSent) {
			t.Errorf("sent again: %v", err)
		}
		if _, err := p.Decide(t.Context(), client.Bool(true)); !errors.Is(err, participate.ErrDecided) {
			t.Errorf("decided again: %v", err)
		}
		if e := p.Ledger().Entries(); len(e) != 1 || !(e[0].Loss.Epsilon > 0) {
			t.Errorf("%+v", e)
		}
		many, err := sender.New(sender.Options{Client: o})
		if err != nil {
			t.Fatal(err)
		}
		if sent, err := many.Send(t.Context(), []client.Value{client.Bool(true), client.Bool(false), client.Bool(true)}); err != nil || sent.Values != 3 {
			t.Errorf("%+v, %v", sent, err)
		}
		x, err := w.reader().Round(t.Context(), w.flushed())
		if err != nil || x.ReportCount != 4 {
			t.Errorf("%+v, %v", x, err)
		}
	})
}
