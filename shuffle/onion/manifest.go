package onion

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// Errors of a manifest, to branch on with errors.Is, beside those of package signed.
var (
	// ErrManifest: malformed, or of another recipe, role or round than is wanted.
	ErrManifest = errors.New("onion: not the manifest that is wanted")
	// ErrFew: fewer contributions than the least batch, or what is left of them is less.
	ErrFew = errors.New("onion: a batch below the least")
	// ErrCount: the numbers of contributions, messages and records do not go together.
	ErrCount = errors.New("onion: the counts of a batch do not add up")
	// ErrEarly: flushed before the time.
	ErrEarly = errors.New("onion: a batch before its time")
	// ErrRoot: the records are not those of the manifest.
	ErrRoot = errors.New("onion: the records have another root")
)

const (
	manifestDomain = "starling shuffle manifest v1"
	receiptDomain  = "starling shuffle receipt v1"
	resultDomain   = "starling shuffle result v1"
	// MaxManifest bounds an encoded manifest, in bytes.
	MaxManifest = 2 << 10
	// MaxReceipt bounds an encoded receipt.
	MaxReceipt = 512
	// MaxBatch bounds the messages of a batch.
	MaxBatch = 1 << 24
)

// A Manifest is what a hop says of a batch that it hands on.
type Manifest struct {
	Recipe [32]byte
	Round  uint64
	Role   Role // First or Second
	// At is when the batch was flushed, by the hop's clock, in whole seconds.
	At time.Time
	// Contributions is how many the batch has: those that opened at hop 1, each once.
	Contributions uint64
	// Messages is Contributions times m.
	Messages uint64
	// Dropped are, at hop 1, envelopes that did not open, which are in no count, and at hop
	// 2 messages that did not open, which are in Messages and in no record.
	Dropped uint64
	// Doubled are messages that came again at hop 2, which are in Messages and in no record.
	// Zero at hop 1.
	Doubled uint64
	Root    [32]byte // of the records, in their order
	// Before is hop 1's signed manifest in that of hop 2, and empty in hop 1's.
	Before []byte
}

func (m *Manifest) code(c *wire.Coder) {
	c.Fixed(m.Recipe[:], "recipe")
	c.Uint64(&m.Round, "round")
	c.Uint8((*uint8)(&m.Role), "role")
	c.Seconds(&m.At, "at")
	c.Uint64(&m.Contributions, "contributions")
	c.Uint64(&m.Messages, "messages")
	c.Uint64(&m.Dropped, "dropped")
	c.Uint64(&m.Doubled, "doubled")
	c.Fixed(m.Root[:], "root")
	c.Vec16(&m.Before, 0, "hop 1's manifest")
	c.Check(m.Round <= maxRound, "round out of bounds")
	c.Check((m.Role == Second) == (len(m.Before) > 0), "hop 1's manifest stands in that of hop 2 alone")
}

// Records is how many records are handed on.
func (m *Manifest) Records() uint64 {
	if m.Role == First {
		return m.Messages
	}
	return m.Messages - m.Dropped - m.Doubled
}

// Sign returns the encoding with the hop's signature. It fails with [ErrManifest] or
// [signed.ErrWindow].
func (m *Manifest) Sign(s *signed.Signer) ([]byte, error) {
	return sign(s, manifestDomain, ErrManifest, m.code, m.At, m.At)
}

// OpenManifest reads a hop's manifest, in hop 2's that of hop 1 too, and holds each to the
// shuffle: who has signed it, the least batch, the counts, and the time. before is hop 1's;
// nil where role is First. It looks at no clock.
func OpenManifest(b []byte, s *Shuffle, role Role, round uint64) (m, before *Manifest, err error) {
	m = &Manifest{}
	if len(b) > MaxManifest {
		return nil, nil, fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
	}
	signature, message, err := read(b, ErrManifest, m.code)
	if err != nil {
		return nil, nil, err
	}
	if err := signature.Verify(s.root(role), manifestDomain, message, m.At, m.At); err != nil {
		return nil, nil, fmt.Errorf("onion: the manifest of %v: %w", role, err)
	}
	if m.Recipe != s.Recipe || m.Role != role || m.Round != round {
		return nil, nil, fmt.Errorf("%w: of another recipe, round or role", ErrManifest)
	}
	if m.At.Before(s.Flush(round)) {
		return nil, nil, fmt.Errorf("%w: at %s, want %s", ErrEarly, m.At.Format(time.RFC3339), s.Flush(round).Format(time.RFC3339))
	}
	if m.Contributions > MaxBatch || m.Messages > MaxBatch || m.Messages != m.Contributions*uint64(s.Messages) {
		return nil, nil, fmt.Errorf("%w: %d contributions of %d messages are not %d", ErrCount, m.Contributions, s.Messages, m.Messages)
	}
	if m.Contributions < s.MinBatch {
		return nil, nil, fmt.Errorf("%w: %d contributions, want %d", ErrFew, m.Contributions, s.MinBatch)
	}
	if role == First {
		if m.Doubled != 0 {
			return nil, nil, fmt.Errorf("%w: hop 1 opens no message, and says that %d came again", ErrCount, m.Doubled)
		}
		return m, nil, nil
	}
	if before, _, err = OpenManifest(m.Before, s, First, round); err != nil {
		return nil, nil, err
	}
	lost := m.Dropped + m.Doubled
	switch {
	case m.Contributions != before.Contributions || m.Messages != before.Messages:
		return nil, nil, fmt.Errorf("%w: hop 1 signed %d messages, hop 2 says %d", ErrCount, before.Messages, m.Messages)
	case m.Dropped > MaxBatch || m.Doubled > MaxBatch || lost > m.Messages:
		return nil, nil, fmt.Errorf("%w: %d of %d messages lost", ErrCount, lost, m.Messages)
	case !Enough(s, m.Records()):
		return nil, nil, fmt.Errorf("%w: %d messages are left", ErrFew, m.Records())
	}
	return m, before, nil
}

// ReadManifest reads hop 2's manifest with that of hop 1 in it, as an entry of a
// transparency log has them, and by which root keys they are signed: whether these are the
// hops', and the batch one of the recipe's, is for who knows that ([OpenManifest]). It fails
// with [ErrManifest], [ErrCount], or an error of package signed.
func ReadManifest(b []byte) (m *Manifest, roots [2]signed.PublicKey, err error) {
	one := func(b []byte, role Role) (*Manifest, signed.PublicKey, error) {
		m := &Manifest{}
		var root signed.PublicKey
		if len(b) > MaxManifest {
			return nil, root, fmt.Errorf("%w: longer than %d bytes", ErrManifest, MaxManifest)
		}
		signature, message, err := read(b, ErrManifest, m.code)
		if err != nil {
			return nil, root, err
		}
		if m.Role != role {
			return nil, root, fmt.Errorf("%w: of %v, want that of %v", ErrManifest, m.Role, role)
		}
		root = signature.Delegation.Root
		if err := signature.Verify(root, manifestDomain, message, m.At, m.At); err != nil {
			return nil, root, fmt.Errorf("onion: the manifest of %v: %w", role, err)
		}
		return m, root, nil
	}
	if m, roots[1], err = one(b, Second); err != nil {
		return nil, roots, err
	}
	first, root, err := one(m.Before, First)
	if err != nil {
		return nil, roots, err
	}
	roots[0] = root
	switch {
	case first.Recipe != m.Recipe || first.Round != m.Round:
		return nil, roots, fmt.Errorf("%w: hop 1's is of another batch", ErrManifest)
	case first.Contributions != m.Contributions || first.Messages != m.Messages:
		return nil, roots, fmt.Errorf("%w: hop 1 signed %d messages, hop 2 says %d", ErrCount, first.Messages, m.Messages)
	}
	return m, roots, nil
}

// Enough says whether the messages that are left of a batch are as many as the least batch
// has: whoever fills a batch with what does not open makes it smaller than it looks.
func Enough(s *Shuffle, messages uint64) bool {
	return s.MinBatch <= math.MaxUint64/uint64(s.Messages) && messages >= s.MinBatch*uint64(s.Messages)
}

// A Receipt is the word of a party that it has all of a batch, on its disk, and that the one
// before may destroy it.
type Receipt struct {
	Recipe   [32]byte
	Round    uint64
	Role     Role      // of who has it
	At       time.Time // whole seconds
	Manifest [32]byte  // SHA-256 of the signed manifest
}

func (r *Receipt) code(c *wire.Coder) {
	c.Fixed(r.Recipe[:], "recipe")
	c.Uint64(&r.Round, "round")
	c.Uint8((*uint8)(&r.Role), "role")
	c.Seconds(&r.At, "at")
	c.Fixed(r.Manifest[:], "manifest")
}

// ErrReceipt: malformed, or not for that batch.
var ErrReceipt = errors.New("onion: not the receipt that is wanted")

// Sign returns the encoding with its owner's signature.
func (r *Receipt) Sign(s *signed.Signer) ([]byte, error) {
	return sign(s, receiptDomain, ErrReceipt, r.code, r.At, r.At)
}

// OpenReceipt says whether the next party has the batch of a signed manifest: it fails with
// [ErrReceipt], or with an error of package signed.
func OpenReceipt(b []byte, s *Shuffle, role Role, round uint64, manifest []byte) error {
	r := &Receipt{}
	if len(b) > MaxReceipt {
		return fmt.Errorf("%w: longer than %d bytes", ErrReceipt, MaxReceipt)
	}
	signature, message, err := read(b, ErrReceipt, r.code)
	if err != nil {
		return err
	}
	if r.Recipe != s.Recipe || r.Round != round || r.Role != role || r.Manifest != sha256.Sum256(manifest) {
		return fmt.Errorf("%w: for another batch", ErrReceipt)
	}
	if err := signature.Verify(s.root(role), receiptDomain, message, r.At, r.At); err != nil {
		return fmt.Errorf("onion: the receipt of %v: %w", role, err)
	}
	return nil
}

// Counts are what became of the messages of a round.
type Counts struct {
	Contributions uint64 `json:"contributions"`
	// Messages is how many there should be: Contributions times m.
	Messages uint64 `json:"messages"`
	// Refused are envelopes that did not open, at hop 1 or on the direct path; they are in no
	// other count, and of hop 1 it is that hop's word.
	Refused uint64 `json:"refused"`
	// DroppedSecond did not open at hop 2, and DoubledSecond came there again. Zero on the
	// direct path.
	DroppedSecond uint64 `json:"dropped_second"`
	DoubledSecond uint64 `json:"doubled_second"`
	// Dropped did not open at the analyzer, Doubled came there again.
	Dropped uint64 `json:"dropped"`
	Doubled uint64 `json:"doubled"`
}

// Missing is how many messages of contributions that count are not among the tallied: sums
// over shares are wrong where it is not zero.
func (c Counts) Missing() uint64 {
	return c.DroppedSecond + c.DoubledSecond + c.Dropped + c.Doubled
}

// Tallied is how many messages are left.
func (c Counts) Tallied() uint64 { return c.Messages - c.Missing() }

func (c *Counts) code(w *wire.Coder) {
	for _, f := range []struct {
		v    *uint64
		name string
	}{{&c.Contributions, "contributions"}, {&c.Messages, "messages"}, {&c.Refused, "refused"}, {&c.DroppedSecond, "dropped at hop 2"},
		{&c.DoubledSecond, "doubled at hop 2"}, {&c.Dropped, "dropped"}, {&c.Doubled, "doubled"}} {
		w.Uint64(f.v, f.name)
	}
}

// A Result is what the analyzer makes of a round.
type Result struct {
	Recipe [32]byte
	Round  uint64
	Role   Role      // Analyzer or Direct
	At     time.Time // whole seconds
	Counts Counts
	// Manifest is hop 2's, with hop 1's in it; empty on the direct path.
	Manifest []byte
	// Tally is the recipe's own.
	Tally []byte
}

func (r *Result) code(c *wire.Coder) {
	c.Fixed(r.Recipe[:], "recipe")
	c.Uint64(&r.Round, "round")
	c.Uint8((*uint8)(&r.Role), "role")
	c.Seconds(&r.At, "at")
	r.Counts.code(c)
	c.Vec16(&r.Manifest, 0, "manifest")
	c.Vec32(&r.Tally, 0, "tally")
	c.Check((r.Role == Direct) == (len(r.Manifest) == 0), "the manifest is that of the shuffled path")
}

// ErrResult: malformed, or not the result that is wanted.
var ErrResult = errors.New("onion: not the result that is wanted")

// MaxTally bounds what a recipe's tally may be, in bytes.
const MaxTally = 64 << 20

// Sign returns the encoding with the analyzer's signature.
func (r *Result) Sign(s *signed.Signer) ([]byte, error) {
	if len(r.Tally) > MaxTally {
		return nil, fmt.Errorf("%w: a tally of %d bytes, at most %d", ErrResult, len(r.Tally), MaxTally)
	}
	return sign(s, resultDomain, ErrResult, r.code, r.At, r.At)
}

// OpenResult reads a result and holds it to the shuffle: the analyzer's signature, and behind
// hops their manifests, the least batch, and the counts. It fails with [ErrResult] and as
// [OpenManifest].
func OpenResult(b []byte, s *Shuffle, round uint64) (*Result, error) {
	r := &Result{}
	signature, message, err := read(b, ErrResult, r.code)
	if err != nil {
		return nil, err
	}
	role := Analyzer
	if s.Direct() {
		role = Direct
	}
	if r.Recipe != s.Recipe || r.Round != round || r.Role != role {
		return nil, fmt.Errorf("%w: of another recipe, round or path", ErrResult)
	}
	if err := signature.Verify(s.Analyzer, resultDomain, message, r.At, r.At); err != nil {
		return nil, fmt.Errorf("onion: the result: %w", err)
	}
	c := r.Counts
	if c.Contributions < s.MinBatch || r.At.Before(s.Flush(round)) {
		return nil, fmt.Errorf("%w: %d contributions at %v", ErrFew, c.Contributions, r.At)
	}
	if c.Contributions > MaxBatch || c.Messages != c.Contributions*uint64(s.Messages) ||
		max(c.DroppedSecond, c.DoubledSecond, c.Dropped, c.Doubled) > c.Messages || c.Missing() > c.Messages {
		return nil, fmt.Errorf("%w: of the result", ErrCount)
	}
	if role == Direct {
		return r, nil
	}
	m, before, err := OpenManifest(r.Manifest, s, Second, round)
	if err != nil {
		return nil, err
	}
	if c.Contributions != m.Contributions || c.Refused != before.Dropped || c.DroppedSecond != m.Dropped || c.DoubledSecond != m.Doubled {
		return nil, fmt.Errorf("%w: the result has others than the manifests", ErrCount)
	}
	return r, nil
}
