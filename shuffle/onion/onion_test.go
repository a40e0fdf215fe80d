package onion

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
	"golang.org/x/mod/sumdb/tlog"
)

func pair(t testing.TB) *sealed.KeyPair {
	t.Helper()
	k, err := sealed.Generate(0, Suite)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type pairs struct{ first, second, analyzer *sealed.KeyPair }

func newPairs(t testing.TB) pairs { return pairs{pair(t), pair(t), pair(t)} }

func (p pairs) keys() Keys { return Keys{p.first.Public(), p.second.Public(), p.analyzer.Public()} }

func messages(m, size int) (all [][]byte) {
	for i := range m {
		b := make([]byte, size)
		b[size-1], b[0] = byte(i>>8), byte(i)
		all = append(all, b)
	}
	return all
}

func split(b []byte, size int) (all [][]byte) {
	for ; len(b) > 0; b = b[size:] {
		all = append(all, b[:size])
	}
	return all
}

// opened peels one layer off records.
func peel(t testing.TB, s Shape, role Role, key *sealed.KeyPair, records [][]byte) []Opened {
	t.Helper()
	o, err := s.Opener(role, key)
	if err != nil {
		t.Fatal(err)
	}
	return o.Open(records, sealed.Serial)
}

// TestLayers: what was sealed comes out at the analyzer, each message once, with the tokens
// where they belong, and everything has the size that the shape says.
func TestLayers(t *testing.T) {
	p := newPairs(t)
	for _, s := range []Shape{{Round: 7, Messages: 1, Size: 1}, {Round: 7, Messages: 5, Size: 24}, {Round: 7, Messages: 3, Size: 100, EnvelopeToken: 9, MessageToken: 5}} {
		bound := make(map[string][]byte)
		present := func(to Role, aad, b []byte) ([]byte, error) {
			if !bytes.Equal(aad, s.AAD(to)) {
				t.Errorf("bound to %x, want %x", aad, s.AAD(to))
			}
			n := s.token(to)
			token := sha256.Sum256(append([]byte{byte(to)}, b...))
			bound[string(token[:n])] = bytes.Clone(b)
			return token[:n], nil
		}
		want := messages(s.Messages, s.Size)
		envelope, err := s.Seal(p.keys(), want, present)
		if err != nil {
			t.Fatal(err)
		}
		round, first, rest, err := ReadEnvelope(append(bytes.Clone(envelope), 1, 2))
		if err != nil || round != 7 || !bytes.Equal(first, envelope) || len(rest) != 2 || len(envelope) != s.Record(First) {
			t.Fatalf("%d bytes of round %d, %v", len(first), round, err)
		}
		one := peel(t, s, First, p.first, [][]byte{envelope})[0]
		n, size := s.Parts(First)
		if len(one.Parts) != n*size || size != s.Record(Second) || s.EnvelopeToken > 0 && !bytes.Equal(bound[string(one.Token)], one.Parts) {
			t.Fatalf("hop 1 has %d bytes, token %x", len(one.Parts), one.Token)
		}
		var got [][]byte
		for _, two := range peel(t, s, Second, p.second, split(one.Parts, size)) {
			if len(two.Parts) != s.Record(Analyzer) || s.MessageToken > 0 && !bytes.Equal(bound[string(two.Token)], two.Parts) {
				t.Fatalf("hop 2 has %d bytes, token %x", len(two.Parts), two.Token)
			}
			got = append(got, peel(t, s, Analyzer, p.analyzer, [][]byte{two.Parts})[0].Parts)
		}
		slices.SortFunc(got, bytes.Compare)
		slices.SortFunc(want, bytes.Compare)
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%x came out, want %x", got, want)
		}
		direct, err := s.SealDirect(p.analyzer.Public(), want, present)
		if err != nil || len(direct) != s.Record(Direct) {
			t.Fatalf("%d bytes, %v", len(direct), err)
		}
		if o := peel(t, s, Direct, p.analyzer, [][]byte{direct})[0]; !bytes.Equal(o.Parts, bytes.Join(want, nil)) || len(o.Token) != s.EnvelopeToken {
			t.Errorf("the direct path has %x", o)
		}
	}
}

// TestDeviceOrder: a device hands its onions to hop 1 in each of the 6 orders of three as
// often as in the others. Of 480 contributions each order has 80 expected; one off by 50,
// which is 6.1 standard deviations, has a probability below 6 * 1e-7.
func TestDeviceOrder(t *testing.T) {
	p := newPairs(t)
	s := Shape{Messages: 3, Size: 1}
	counts := make(map[string]int)
	for range 480 {
		envelope, err := s.Seal(p.keys(), messages(3, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		one := peel(t, s, First, p.first, [][]byte{envelope})[0]
		var order string
		for _, two := range peel(t, s, Second, p.second, split(one.Parts, s.Record(Second))) {
			order += fmt.Sprint(peel(t, s, Analyzer, p.analyzer, [][]byte{two.Parts})[0].Parts[0])
		}
		counts[order]++
	}
	for order, n := range counts {
		if len(counts) != 6 || n < 30 || n > 130 {
			t.Errorf("%s came %d times of 480, %d orders", order, n, len(counts))
		}
	}
}

// TestOpensNowhereElse: with one bit changed, for another recipe, round, role or key, cut or
// with more behind it a record opens at nobody's, and spoils no other.
func TestOpensNowhereElse(t *testing.T) {
	p := newPairs(t)
	s := Shape{Recipe: [32]byte{1}, Round: 7, Messages: 2, Size: 3}
	good, err := s.Seal(p.keys(), messages(2, 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	var bad [][]byte
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x80 // of the encapsulated key too, whose highest bit X25519 does not look at
		bad = append(bad, b)
	}
	bad = append(bad, nil, good[:12], good[:len(good)-1], append(bytes.Clone(good), 0))
	for _, change := range []func(*Shape){func(s *Shape) { s.Recipe[31]++ }, func(s *Shape) { s.Round++ }} {
		other := s
		change(&other)
		b, err := other.Seal(p.keys(), messages(2, 3), nil)
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, b)
		copy(b, good[:headerSize])
		bad = append(bad, b) // with the right round in the clear
	}
	swapped := p
	swapped.first = p.second
	b, err := s.Seal(swapped.keys(), messages(2, 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	bad = append(bad, b)
	for i, o := range peel(t, s, First, p.first, append(slices.Clone(bad), good)) {
		if (o.Parts != nil) != (i == len(bad)) {
			t.Errorf("record %d of %d: opened %v", i, len(bad), o.Parts != nil)
		}
	}
	onions := split(peel(t, s, First, p.first, [][]byte{good})[0].Parts, s.Record(Second))
	if o := peel(t, s, Analyzer, p.second, onions)[0]; o.Parts != nil {
		t.Error("an onion opens in another role")
	}
}

func TestShapeRefused(t *testing.T) {
	p := newPairs(t)
	good := Shape{Messages: 2, Size: 3}
	for name, c := range map[string]struct {
		s        Shape
		messages [][]byte
	}{
		"no messages": {Shape{Size: 3}, nil}, "one too few": {good, messages(1, 3)}, "too short": {good, messages(2, 2)},
		"too long": {good, messages(2, 4)}, "no size": {Shape{Messages: 2}, messages(2, 1)}, "a token that is missing": {Shape{Messages: 2, Size: 3, MessageToken: 1}, messages(2, 3)},
		"larger than an envelope may be": {Shape{Messages: 1000, Size: 5000}, messages(1000, 5000)}, "a token below zero": {Shape{Messages: 2, Size: 3, EnvelopeToken: -1}, messages(2, 3)},
		"too many": {Shape{Messages: MaxMessages + 1, Size: 1}, messages(MaxMessages+1, 1)},
	} {
		if _, err := c.s.Seal(p.keys(), c.messages, nil); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a token that is missing" {
			continue
		}
		if _, err := c.s.SealDirect(p.analyzer.Public(), c.messages, nil); !errors.Is(err, ErrShape) {
			t.Errorf("%s, directly: %v", name, err)
		}
	}
	if _, err := good.Seal(Keys{}, messages(2, 3), nil); !errors.Is(err, ErrShape) {
		t.Errorf("without keys: %v", err)
	}
}

func FuzzReadEnvelope(f *testing.F) {
	s := Shape{Round: 3, Messages: 1, Size: 1}
	f.Add(append(s.header(First), make([]byte, s.Record(First)-headerSize)...))
	f.Add([]byte{1, 0, 0, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, envelope, rest, err := ReadEnvelope(b)
		if err != nil {
			if !errors.Is(err, ErrEnvelope) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(append(bytes.Clone(envelope), rest...), b) || len(envelope) == 0 {
			t.Errorf("%d and %d of %d bytes", len(envelope), len(rest), len(b))
		}
	})
}

// TestTree: roots are those of another implementation of the same trees.
func TestTree(t *testing.T) {
	var mine Tree
	var hashes []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) (all []tlog.Hash, err error) {
		for _, i := range indexes {
			all = append(all, hashes[i])
		}
		return all, nil
	})
	if mine.Root() != sha256.Sum256(nil) {
		t.Error("the root of the empty tree")
	}
	for n := range int64(200) {
		record := fmt.Appendf(nil, "record %d", n)
		more, err := tlog.StoredHashes(n, record, reader)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, more...)
		mine.Add(record)
		want, err := tlog.TreeHash(n+1, reader)
		if err != nil || mine.Root() != want || mine.Records() != uint64(n+1) {
			t.Fatalf("%d records: %x, want %x, %v", n+1, mine.Root(), want, err)
		}
	}
}

// now is in the middle of the life of every signer.
var now = time.Unix(1_800_000_000, 0).UTC()

type owner struct {
	root   *signed.PrivateKey
	signer *signed.Signer
}

func newOwner(t testing.TB) owner {
	root := signed.Generate()
	return owner{root, signedtest.Signer(t, root, now.Add(-24*time.Hour), 48*time.Hour)}
}

type house struct {
	Shuffle
	first, second, analyzer owner
}

func newHouse(t testing.TB) *house {
	h := &house{first: newOwner(t), second: newOwner(t), analyzer: newOwner(t)}
	h.Shuffle = Shuffle{Recipe: [32]byte{9}, Messages: 3, Size: 8, MinBatch: 5, Length: time.Hour, Grace: 5 * time.Minute,
		First: h.first.root.Public(), Second: h.second.root.Public(), Analyzer: h.analyzer.root.Public()}
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	return h
}

// over is a round that is over at now.
func (h *house) over() uint64 { return h.Round(now) - 2 }

func (h *house) firstManifest() *Manifest {
	return &Manifest{Recipe: h.Recipe, Round: h.over(), Role: First, At: now, Contributions: 6, Messages: 18, Dropped: 1, Root: [32]byte{1}}
}

func (h *house) secondManifest(t testing.TB) *Manifest {
	b, err := h.firstManifest().Sign(h.first.signer)
	if err != nil {
		t.Fatal(err)
	}
	return &Manifest{Recipe: h.Recipe, Round: h.over(), Role: Second, At: now, Contributions: 6, Messages: 18, Dropped: 1, Doubled: 1, Root: [32]byte{2}, Before: b}
}

func TestTimes(t *testing.T) {
	h := newHouse(t)
	n := h.Round(now)
	if h.Begin(n).After(now) || !h.Begin(n+1).After(now) || h.Flush(n) != h.Begin(n).Add(65*time.Minute) {
		t.Errorf("round %d begins %v, flush %v", n, h.Begin(n), h.Flush(n))
	}
	if far := h.Flush(math.MaxUint64 - 1); far.Year() < 10_000 {
		t.Errorf("a round that is far away is flushed at %v", far)
	}
}

func TestShuffleRefused(t *testing.T) {
	for name, change := range map[string]func(*Shuffle){
		"a batch of one": func(s *Shuffle) { s.MinBatch = 1 }, "no round": func(s *Shuffle) { s.Length = 0 }, "half seconds": func(s *Shuffle) { s.Length += time.Second / 2 },
		"a grace below zero": func(s *Shuffle) { s.Grace = -time.Second }, "one owner of two hops": func(s *Shuffle) { s.Second = s.First },
		"hop 2 is the analyzer": func(s *Shuffle) { s.Analyzer = s.Second }, "one hop": func(s *Shuffle) { s.Second = signed.PublicKey{} },
		"no analyzer": func(s *Shuffle) { s.Analyzer = signed.PublicKey{} }, "no messages": func(s *Shuffle) { s.Messages = 0 },
		"a round of a thousand years": func(s *Shuffle) { s.Length = 200 * 366 * 24 * time.Hour },
	} {
		s := newHouse(t).Shuffle
		if change(&s); !errors.Is(s.Validate(), ErrShape) {
			t.Errorf("%s: %v", name, s.Validate())
		}
	}
	s := newHouse(t).Shuffle
	if s.First, s.Second = (signed.PublicKey{}), (signed.PublicKey{}); s.Validate() != nil || !s.Direct() {
		t.Error(s.Validate())
	}
}

// TestManifest: what a hop signs is what the next one reads, and everything that a lying hop
// could put into it is refused by its name.
func TestManifest(t *testing.T) {
	h := newHouse(t)
	open := func(m *Manifest, by *signed.Signer) error {
		b, err := m.Sign(by)
		if err != nil {
			return err
		}
		_, _, err = OpenManifest(b, &h.Shuffle, m.Role, h.over())
		return err
	}
	b, err := h.secondManifest(t).Sign(h.second.signer)
	if err != nil {
		t.Fatal(err)
	}
	m, before, err := OpenManifest(b, &h.Shuffle, Second, h.over())
	if err != nil || m.Records() != 16 || before.Records() != 18 || before.Dropped != 1 {
		t.Fatalf("%+v, %+v, %v", m, before, err)
	}
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   error
	}{
		"as it is": {func(*Manifest) {}, nil}, "another recipe": {func(m *Manifest) { m.Recipe[0]++ }, ErrManifest}, "another round": {func(m *Manifest) { m.Round-- }, ErrManifest},
		"a second early":             {func(m *Manifest) { m.At = h.Flush(h.over()).Add(-time.Second) }, ErrEarly},
		"at the second":              {func(m *Manifest) { m.At = h.Flush(h.over()) }, nil},
		"below the least batch":      {func(m *Manifest) { m.Contributions, m.Messages = 4, 12 }, ErrFew},
		"a message more":             {func(m *Manifest) { m.Messages++ }, ErrCount},
		"a message less":             {func(m *Manifest) { m.Messages-- }, ErrCount},
		"contributions that wrap":    {func(m *Manifest) { m.Contributions, m.Messages = 1<<63+6, 1<<63+18 }, ErrCount},
		"more than a batch may have": {func(m *Manifest) { m.Contributions, m.Messages = MaxBatch, 3*MaxBatch }, ErrCount},
		"messages that came again":   {func(m *Manifest) { m.Doubled = 1 }, ErrCount},
		"hop 1's own before":         {func(m *Manifest) { m.Before = []byte{1} }, ErrManifest},
	} {
		m := h.firstManifest()
		c.change(m)
		if err := open(m, h.first.signer); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("hop 1, %s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   error
	}{
		"as it is": {func(*Manifest) {}, nil}, "another count": {func(m *Manifest) { m.Contributions, m.Messages = 7, 21 }, ErrCount},
		"more dropped than there are": {func(m *Manifest) { m.Dropped = 19 }, ErrCount}, "sums that wrap": {func(m *Manifest) { m.Dropped, m.Doubled = 1<<63, 1<<63 }, ErrCount},
		"what is left is less than a batch": {func(m *Manifest) { m.Dropped = 3 }, ErrFew},
		"early":                             {func(m *Manifest) { m.At = h.Flush(h.over()).Add(-time.Second) }, ErrEarly},
		"no manifest of hop 1":              {func(m *Manifest) { m.Before = nil }, ErrManifest},
		"hop 1's with a bit changed":        {func(m *Manifest) { m.Before[60] ^= 1 }, signed.ErrSignature},
		"its own in the place of hop 1's": {func(m *Manifest) {
			m.Before, _ = h.firstManifest().Sign(h.second.signer)
		}, signed.ErrSignature},
	} {
		m := h.secondManifest(t)
		c.change(m)
		if err := open(m, h.second.signer); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("hop 2, %s: %v", name, err)
		}
	}
	if err := open(h.firstManifest(), h.analyzer.signer); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("by another: %v", err)
	}
	for i := range b {
		x := bytes.Clone(b)
		x[i] ^= 1
		if _, _, err := OpenManifest(x, &h.Shuffle, Second, h.over()); err == nil {
			t.Errorf("byte %d changed: taken", i)
		}
		if _, _, err := OpenManifest(b[:i], &h.Shuffle, Second, h.over()); err == nil {
			t.Errorf("%d bytes: taken", i)
		}
	}
	if _, _, err := OpenManifest(append(b, make([]byte, MaxManifest)...), &h.Shuffle, Second, h.over()); !errors.Is(err, ErrManifest) {
		t.Errorf("too long: %v", err)
	}
}

func TestReceipt(t *testing.T) {
	h := newHouse(t)
	manifest := []byte("a signed manifest")
	good := Receipt{Recipe: h.Recipe, Round: 3, Role: Second, At: now, Manifest: sha256.Sum256(manifest)}
	for name, c := range map[string]struct {
		change func(*Receipt)
		by     *signed.Signer
		want   error
	}{
		"good": {func(*Receipt) {}, h.second.signer, nil}, "another round": {func(r *Receipt) { r.Round++ }, h.second.signer, ErrReceipt},
		"another recipe": {func(r *Receipt) { r.Recipe[1]++ }, h.second.signer, ErrReceipt}, "another role": {func(r *Receipt) { r.Role = First }, h.second.signer, ErrReceipt},
		"another manifest": {func(r *Receipt) { r.Manifest[1]++ }, h.second.signer, ErrReceipt}, "by another": {func(*Receipt) {}, h.first.signer, signed.ErrSignature},
	} {
		r := good
		c.change(&r)
		b, err := r.Sign(c.by)
		if err == nil {
			err = OpenReceipt(b, &h.Shuffle, Second, 3, manifest)
		}
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := OpenReceipt(nil, &h.Shuffle, Second, 3, manifest); !errors.Is(err, ErrReceipt) {
		t.Error(err)
	}
}

func TestKeyList(t *testing.T) {
	h := newHouse(t)
	keys := [][32]byte{[32]byte(pair(t).Public().Bytes()), [32]byte(pair(t).Public().Bytes())}
	l := &KeyList{Recipe: h.Recipe, Role: Second, First: 41, Keys: keys, Issued: now, Until: now.Add(time.Hour)}
	b, err := l.Sign(h.second.signer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := OpenKeyList(b, h.Shuffle.Second, h.Recipe, Second)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range keys {
		if k, err := got.Key(41 + uint64(i)); err != nil || !bytes.Equal(k.Bytes(), want[:]) {
			t.Errorf("round %d: %v", 41+i, err)
		}
	}
	for _, n := range []uint64{0, 40, 43, math.MaxUint64} {
		if _, err := got.Key(n); !errors.Is(err, ErrKeys) {
			t.Errorf("round %d: %v", n, err)
		}
	}
	for name, err := range map[string]error{
		"another recipe": second(OpenKeyList(b, h.Shuffle.Second, [32]byte{1}, Second)), "another role": second(OpenKeyList(b, h.Shuffle.Second, h.Recipe, First)),
		"too long": second(OpenKeyList(make([]byte, MaxKeyList+1), h.Shuffle.Second, h.Recipe, Second)), "nothing": second(OpenKeyList(nil, h.Shuffle.Second, h.Recipe, Second)),
	} {
		if !errors.Is(err, ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenKeyList(b, h.Shuffle.First, h.Recipe, Second); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("another root: %v", err)
	}
	if l.Keys = nil; second(l.Sign(h.second.signer)) == nil {
		t.Error("a list of no keys is signed")
	}
	l.Keys, l.Until = keys, now.Add(48*time.Hour)
	if _, err := l.Sign(h.second.signer); !errors.Is(err, signed.ErrWindow) {
		t.Errorf("longer than the signer lasts: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestResult: a collector takes a result only with the signatures of all, and with counts that
// are those of the manifests.
func TestResult(t *testing.T) {
	h := newHouse(t)
	manifest, err := h.secondManifest(t).Sign(h.second.signer)
	if err != nil {
		t.Fatal(err)
	}
	good := Result{Recipe: h.Recipe, Round: h.over(), Role: Analyzer, At: now, Manifest: manifest, Tally: []byte("7"),
		Counts: Counts{Contributions: 6, Messages: 18, Refused: 1, DroppedSecond: 1, DoubledSecond: 1, Dropped: 2, Doubled: 1}}
	for name, c := range map[string]struct {
		change func(*Result)
		want   error
	}{
		"good": {func(*Result) {}, nil}, "another round": {func(r *Result) { r.Round++ }, ErrResult}, "another recipe": {func(r *Result) { r.Recipe[0]++ }, ErrResult},
		"another path": {func(r *Result) { r.Role, r.Manifest = Direct, nil }, ErrResult}, "no manifest": {func(r *Result) { r.Manifest = nil }, ErrResult},
		"another count": {func(r *Result) { r.Counts.Contributions, r.Counts.Messages = 7, 21 }, ErrCount}, "other losses": {func(r *Result) { r.Counts.DroppedSecond = 0 }, ErrCount},
		"a message more": {func(r *Result) { r.Counts.Messages++ }, ErrCount}, "losses that wrap": {func(r *Result) { r.Counts.Dropped, r.Counts.Doubled = 1<<63, 1<<63 }, ErrCount},
		"few": {func(r *Result) { r.Counts.Contributions, r.Counts.Messages = 4, 12 }, ErrFew}, "early": {func(r *Result) { r.At = h.Begin(r.Round) }, ErrFew},
		"a manifest changed": {func(r *Result) { r.Manifest = append([]byte{1}, r.Manifest[1:]...) }, signed.ErrSignature},
	} {
		r := good
		c.change(&r)
		b, err := r.Sign(h.analyzer.signer)
		if err == nil {
			var got *Result
			if got, err = OpenResult(b, &h.Shuffle, h.over()); err == nil && (string(got.Tally) != "7" || got.Counts.Missing() != 5 || got.Counts.Tallied() != 13) {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := good.Sign(h.first.signer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenResult(b, &h.Shuffle, h.over()); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("by another: %v", err)
	}
	direct := h.Shuffle
	direct.First, direct.Second = signed.PublicKey{}, signed.PublicKey{}
	r := Result{Recipe: h.Recipe, Round: h.over(), Role: Direct, At: now, Counts: Counts{Contributions: 5, Messages: 15}}
	if b, err = r.Sign(h.analyzer.signer); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenResult(b, &direct, h.over()); err != nil {
		t.Error(err)
	}
}

// FuzzManifest: what is taken is written again as it was.
func FuzzManifest(f *testing.F) {
	h := newHouse(f)
	b, err := h.secondManifest(f).Sign(h.second.signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(h.secondManifest(f).Before)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &Manifest{}
		_, message, err := read(b, ErrManifest, m.code)
		if err != nil {
			return
		}
		again, err := m.Sign(h.second.signer)
		if err == nil && !bytes.Equal(again[:len(again)-signed.SignatureSize], message) {
			t.Errorf("%x is written as %x", message, again)
		}
	})
}

// TestDrawnShapes: sizes add up for shapes that are drawn.
func TestDrawnShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(14, 1))
	for range 2000 {
		s := Shape{Messages: 1 + rng.IntN(200), Size: 1 + rng.IntN(2000), EnvelopeToken: rng.IntN(2) * rng.IntN(999), MessageToken: rng.IntN(2) * rng.IntN(999)}
		for _, r := range []Role{First, Second, Analyzer, Direct} {
			n, size := s.Parts(r)
			want := overhead + s.token(r) + n*size
			if framed(r) {
				want += headerSize
			}
			if s.Record(r) != want {
				t.Errorf("%+v at %v: %d bytes, want %d", s, r, s.Record(r), want)
			}
		}
	}
}
