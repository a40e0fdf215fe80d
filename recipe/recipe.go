package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// A Recipe is one agreement. It is a value to build, check with [Recipe.Validate], write with [Recipe.Append] and
// then leave alone: its id is the hash of its bytes.
type Recipe struct {
	// Name and Description say to people what is asked and why: UTF-8, 1 to MaxName and 0 to MaxDescription bytes.
	Name        string
	Description string

	// The six choices; none may be nil.
	Query         Query
	Randomizer    Randomizer
	Participation Participation
	Path          Path
	Noise         Noise
	Claim         Claim

	// MinBatch is B: fewer reports than this are never released. At least MinBatchFloor.
	MinBatch uint64
	// TimePrecision is the length in seconds of the unit that every time of this recipe counts.
	TimePrecision dap.TimePrecision
	// Window limits when reports may be made.
	Window Window
	// Rounds divide time; nil is rounds of one unit and no grace. They agree with Rate
	// and [DonationTime].
	Rounds *Rounds
	// Population says who is asked; nil leaves it to the description.
	Population *Population

	// Targeting restricts who is asked by public attributes; nil asks everybody.
	Targeting *Targeting
	// Rate is how many devices take part; required where they decide by coins.
	Rate *Rate
	// Dummies hide how many answers there are; required where devices decide by coins.
	Dummies *Dummies
	// Cover hides from the network's edge who reports; required by [Importance], optional for other coins.
	Cover *Cover
	// KEM encrypts reports; X25519 when zero.
	KEM KEM
	// Relay hides who sends; without one, reports go to the leader directly and coins count for nothing.
	Relay *Relay
	// Epoch counts how often the same recipe was published again, because a server lost what
	// it knew of the one before. Each has an id, and a task, of its own.
	Epoch uint32
	// Unit is whose data the guarantee protects; DefaultUnit when nil.
	Unit *Unit
	// Projection shortens the vectors of a [Vector]; nil sends them whole.
	Projection *Projection
	// ServerKeys vouch for the keys that reports are encrypted to; nil takes those that
	// the servers' addresses answer with, or a manifest names.
	ServerKeys *ServerKeys
	// DAP is the draft of DAP that the recipe's task speaks; 18 when zero.
	DAP dap.Version
	// Labels name the buckets of a [Histogram], one each, in UTF-8 in normal form NFC, 1 to
	// MaxLabel bytes, at most MaxLabels of them; nil leaves them their numbers.
	Labels []string
}

// A Query says what is computed: one of [Count], [Sum], [Mean], [Histogram], [Multihot],
// [SumVec], [L1BoundSum] and [Vector].
type Query interface {
	query() uint8
	// Aggregates is the number of integers that a collection returns, before noise is accounted for.
	Aggregates() int
	fmt.Stringer
}

// Count asks each device yes or no; the answer is how many said yes (Prio3Count).
type Count struct{}

// Sum asks each device for an integer in [0, Max]; the answer is their sum (Prio3Sum).
type Sum struct{ Max uint64 }

// Mean asks each device for an integer in [0, Max]; the answer is their mean: the sum over the public count (Prio3Sum).
type Mean struct{ Max uint64 }

// Histogram asks each device for a bucket in [0, Length); the answer is how many devices named each (Prio3Histogram).
type Histogram struct {
	Length uint32 // buckets
	Chunk  uint32 // of the proof, 1 to Length; see prio3.OptimalChunk
}

// Multihot asks each device for a vector of Length zeros and ones, at most MaxWeight of them ones; the answer is their
// sum (Prio3MultihotCountVec).
type Multihot struct {
	Length    uint32
	MaxWeight uint64 // 1 to Length
	Chunk     uint32 // of the proof, 1 to Length + bits(MaxWeight)
}

// SumVec asks each device for a vector of Length integers in [0, Max]; the answer is their sum (Prio3SumVec).
type SumVec struct {
	Length uint32
	Max    uint64
	Chunk  uint32 // of the proof, 1 to Length*bits(Max)
}

// L1BoundSum asks each device for a vector of Length integers from 0 on that add up to at
// most Max; the answer is their sum (Prio3L1BoundSum). Where a device has a budget to
// spread over places, it hides behind less noise than a [SumVec] of that Max needs, which
// may have Max at every place.
type L1BoundSum struct {
	Length uint32
	Max    uint64 // of the sum of a vector
	Chunk  uint32 // of the proof, 1 to (Length+1)*bits(Max)
}

// Participation is how a device decides whether to answer: one of [Always], [Bernoulli], [Importance] and [DonationTime].
type Participation interface {
	participation() uint8
	fmt.Stringer
}

// Always answers whenever it is asked.
type Always struct{}

// A Path is how reports travel: only [TwoServer] in this version.
type Path interface {
	path() uint8
	fmt.Stringer
}

// TwoServer is DAP: each report is split in two shares, and a leader and a helper that do not collude see one each.
type TwoServer struct {
	// Leader and Helper are base URLs, ASCII, https (http only to a loopback address), kept byte for byte.
	Leader, Helper string
	// BatchMode is dap.TimeInterval (the collector names a time interval) or dap.LeaderSelected (the leader cuts batches
	// of MinBatch or more reports as they come).
	BatchMode dap.BatchMode
}

// A Claim is what the author says about privacy: one of [NoClaim] and [ApproxDP]. Nobody needs to believe it.
type Claim interface {
	claim() uint8
	fmt.Stringer
}

// NoClaim claims no differential privacy; it goes with [NoNoise].
type NoClaim struct{}

// ApproxDP claims that everything released over the recipe's life is (Epsilon, Delta)-differentially private.
type ApproxDP struct {
	// Epsilon is an upper bound, above 0.
	Epsilon Decimal
	// Delta is in (0, 1).
	Delta Decimal
	// Neighbours is the relation that the claim is about; it must be [Recipe.Neighbours].
	Neighbours release.Neighbours
	// HonestServers is how many of the two the claim needs to be honest, 1 or 2.
	HonestServers uint8
	// Rounds is the number of rounds in which one unit may have a report, one in each; at
	// least 1. If it is more, leader and helper release each round alone. Devices count
	// their own.
	Rounds uint32
}

// A Window is when reports may be made: one of [NoWindow] and [Between].
type Window interface {
	window() uint8
	fmt.Stringer
}

// NoWindow sets no limit in time.
type NoWindow struct{}

// Between allows report times t with Start <= t < End, in units of TimePrecision since 1970.
type Between struct{ Start, End dap.Time }

// A Population is a statement about who is asked.
type Population struct {
	// Statement is UTF-8, 1 to MaxStatement bytes, for people to read.
	Statement string
	// Expected is the number of people expected to answer over the whole window; 0 when not stated.
	Expected uint64
}

func (Count) query() uint8     { return tagCount }
func (Sum) query() uint8       { return tagSum }
func (Mean) query() uint8      { return tagMean }
func (Histogram) query() uint8 { return tagHistogram }
func (Multihot) query() uint8  { return tagMultihot }
func (SumVec) query() uint8    { return tagSumVec }

func (L1BoundSum) query() uint8 { return tagL1BoundSum }

// Aggregates is 1.
func (Count) Aggregates() int { return 1 }

// Aggregates is 1.
func (Sum) Aggregates() int { return 1 }

// Aggregates is 1.
func (Mean) Aggregates() int { return 1 }

// Aggregates is the number of buckets.
func (q Histogram) Aggregates() int { return int(q.Length) }

// Aggregates is the length of the vector.
func (q Multihot) Aggregates() int { return int(q.Length) }

// Aggregates is the length of the vector.
func (q SumVec) Aggregates() int { return int(q.Length) }

// Aggregates is the length of the vector.
func (q L1BoundSum) Aggregates() int { return int(q.Length) }

func (Always) participation() uint8 { return tagAlways }
func (TwoServer) path() uint8       { return tagTwoServer }
func (NoClaim) claim() uint8        { return tagClaimNone }
func (ApproxDP) claim() uint8       { return tagApproxDP }
func (NoWindow) window() uint8      { return tagWindowNone }
func (Between) window() uint8       { return tagWindowInterval }

// buckets is how many a [Histogram] has; false for other queries.
func (r *Recipe) buckets() (uint32, bool) {
	q, ok := r.Query.(Histogram)
	return q.Length, ok
}

// ID is the SHA-256 that names a recipe, and the task_info of its DAP task.
type ID [sha256.Size]byte

// String is lower-case hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText is the hexadecimal form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseID reads the form that [ID.String] writes.
func ParseID(s string) (ID, error) {
	var id ID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != s {
		return ID{}, fmt.Errorf("recipe: an id is %d lower-case hexadecimal digits", 2*len(id))
	}
	copy(id[:], b)
	return id, nil
}

// ID returns the recipe's name: SHA-256("starling recipe v1" || its bytes). It fails where [Recipe.Append] does.
func (r *Recipe) ID() (ID, error) {
	b, err := r.Append([]byte(IDDomain))
	if err != nil {
		return ID{}, err
	}
	return sha256.Sum256(b), nil
}
