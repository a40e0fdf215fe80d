package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// A Recipe is one agreement. It is a value to build, check with [Recipe.Validate], write
// with [Recipe.Append] and then leave alone: its id is the hash of its bytes.
type Recipe struct {
	// Name and Description say to people what is asked and why: UTF-8, 1 to MaxName and 0
	// to MaxDescription bytes.
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
	// TimePrecision is the length in seconds of the unit that every time of this recipe
	// counts.
	TimePrecision dap.TimePrecision
	// Window limits when reports may be made.
	Window Window
	// Rounds divide time; nil is rounds of one unit and no grace. They agree with Rate
	// [CheckIn] and [DonationTime].
	Rounds *Rounds
	// Population says who is asked; nil leaves it to the description.
	Population *Population

	// Targeting restricts who is asked by public attributes; nil asks everybody.
	Targeting *Targeting
	// Rate is how many devices take part; required where they decide by coins.
	Rate *Rate
	// Dummies hide how many answers there are; required where devices decide by coins.
	Dummies *Dummies
	// Cover hides from the network's edge who reports; required by [Importance], optional
	// for other coins.
	Cover *Cover
	// KEM encrypts reports; X25519 when zero.
	KEM KEM
	// Relay hides who sends; without one, reports go to the leader directly and sampling
	// amplifies nothing.
	Relay *Relay
	// Epoch counts how often the same recipe was published again, because a server lost
	// what it knew of the one before. Each has an id, and a task, of its own.
	Epoch uint32
	// Unit is whose data the guarantee protects; DefaultUnit when nil.
	Unit *Unit
	// Projection shortens the vectors of a [Vector]; nil sends them whole.
	Projection *Projection
	// ServerKeys vouch for the keys that reports are encrypted to; nil takes those that
	// the servers' addresses answer with, or a manifest names.
	ServerKeys *ServerKeys
	// Tokens have each device contribute once a round; nil counts on nobody's sending more.
	Tokens *Tokens
	// Log is the transparency log in which the recipe stands; nil is none.
	Log *Log
	// DAP is the draft of DAP that the recipe's task speaks; 18 when zero.
	DAP dap.Version
	// Labels name the buckets of a [Histogram] or the groups of [GroupSums], one each, in
	// UTF-8 in normal form NFC, 1 to MaxLabel bytes, at most MaxLabels of them; nil
	// leaves them their numbers.
	Labels []string
	// Views are the wider granularities of the collection; nil for rounds alone.
	Views *Views
	// Training has devices report what a model of a training becomes on their data; nil
	// has them answer from their data alone.
	Training *Training
}

// A Claim is what the author says about privacy: one of [NoClaim] and [ApproxDP]. Nobody
// needs to believe it.
type Claim interface {
	claim() uint8
	fmt.Stringer
}

// NoClaim claims no differential privacy; it goes with [NoNoise].
type NoClaim struct{}

// ApproxDP claims that everything released over the recipe's life is (Epsilon,
// Delta)-differentially private.
type ApproxDP struct {
	// Epsilon is an upper bound, above 0.
	Epsilon Decimal
	// Delta is below 1, and 0 only where the noise bounds every loss ([Noise.Pure]).
	Delta Decimal
	// Neighbours is the relation that the claim is about; it must be [Recipe.Neighbours].
	Neighbours release.Neighbours
	// HonestServers is how many of the two, or of the hops, the claim needs to be honest:
	// what the path's Honest allows.
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

// Between allows report times t with Start <= t < End, in units of TimePrecision since
// 1970.
type Between struct{ Start, End dap.Time }

// A Population is a statement about who is asked.
type Population struct {
	// Statement is UTF-8, 1 to MaxStatement bytes, for people to read.
	Statement string
	// Expected is the number of people expected to answer over the whole window; 0 when
	// not stated.
	Expected uint64
}

func (NoClaim) claim() uint8   { return tagClaimNone }
func (ApproxDP) claim() uint8  { return tagApproxDP }
func (NoWindow) window() uint8 { return tagWindowNone }
func (Between) window() uint8  { return tagWindowInterval }

// buckets is how many an answer names one of, or groups; false for other queries.
func (r *Recipe) buckets() (uint32, bool) {
	if r.Query == nil {
		return 0, false
	}
	q := r.Given()
	if groups, ok := q.(interface{ places() uint32 }); ok {
		return groups.places(), true
	}
	return uint32(q.Aggregates()), q.Form() == Bucket
}

// ID is the SHA-256 that names a recipe, and the task_info of its DAP task.
type ID [sha256.Size]byte

// String is lower-case hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText is the hexadecimal form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the hexadecimal form.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

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

// ID returns the recipe's name: SHA-256("starling recipe v1" || its bytes). It fails
// where [Recipe.Append] does.
func (r *Recipe) ID() (ID, error) {
	b, err := r.Append([]byte(IDDomain))
	if err != nil {
		return ID{}, err
	}
	return sha256.Sum256(b), nil
}
