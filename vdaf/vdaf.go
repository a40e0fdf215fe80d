package vdaf

import (
	"errors"
)

// Version is the byte that opens every domain separation tag (VDAF drafts 18 to 20,
// section 6.2). Drafts 19 and 20 changed no bytes, so they keep it.
const Version = 18

// Sizes in bytes of what every VDAF here shares (VDAF-18 section 5).
const (
	NonceSize     = 16
	VerifyKeySize = 32
	SeedSize      = 32
)

// Errors that say why one report of a batch was refused. They are wrapped with detail;
// branch with [errors.Is].
var (
	// ErrDecode: a share or message is not the one valid encoding of its type.
	ErrDecode = errors.New("vdaf: malformed encoding")
	// ErrVerify: the proof does not hold, or the aggregators' joint randomness disagrees.
	ErrVerify = errors.New("vdaf: verification failed")
)

// Reports is a batch of n reports as one aggregator holds them: column-wise, owned by the
// caller, read only here. All three slices have length n.
type Reports struct {
	Nonces [][NonceSize]byte
	Public [][]byte // encoded public shares
	Inputs [][]byte // encoded input shares of this aggregator
}

// Sizes are the fixed lengths of one instance's encodings, in bytes.
type Sizes struct {
	Public          int
	LeaderInput     int // aggregator 0
	HelperInput     int // aggregators 1 and up
	VerifierShare   int
	VerifierMessage int // zero where the VDAF has no joint randomness
	AggShare        int
	OutLen          int // elements in an output share, an aggregate share and a result
}

// A VDAF is one instance: a type, its parameters and its number of shares. It is
// immutable and safe for concurrent use; scratch memory and output shares live in a
// [State], one per worker.
//
// All calls take a batch. errs has length n and is both input and output: a report whose
// entry is non-nil on entry is skipped (its bytes may be nil), and a report refused by
// the call gets its entry set. One bad report never changes the outcome of another. The
// bytes that a call writes for a skipped or refused report are unspecified. Errors wrap
// [ErrDecode] or [ErrVerify], but for a context above 65,527 bytes, and name no report,
// share or key. Calls panic only on misuse by the caller (lengths that do not agree, a
// State of another instance).
type VDAF interface {
	// ID is the codepoint in the VDAF registry (VDAF-18 section 10), part of every domain
	// separation tag.
	ID() uint32
	// Shares is the number of aggregators.
	Shares() int
	Sizes() Sizes

	// NewState returns scratch for batches of at most capacity reports.
	NewState(capacity int) State

	// VerifyInit begins verification of a batch by aggregator agg (0 is the leader): it
	// writes report i's verifier share to shares[i*VerifierShare:] and keeps its output
	// share in st, replacing whatever st held. (VDAF-18 section 7.2.2, verify_init.)
	VerifyInit(st State, key *[VerifyKeySize]byte, ctx []byte, agg int, in *Reports, shares []byte, errs []error)

	// Combine checks the proofs from all aggregators' verifier shares (shares[agg] is
	// laid out as VerifyInit wrote it) and writes report i's verifier message to
	// msgs[i*VerifierMessage:]. (verifier_shares_to_message.)
	Combine(ctx []byte, shares [][]byte, msgs []byte, errs []error)

	// Check compares each verifier message with what st expects (verify_next) and refuses
	// the reports that differ. It may be called before Accumulate, to learn the verdicts
	// without yet knowing which reports are replays.
	Check(st State, msgs []byte, errs []error)

	// Accumulate adds the output share of every report with keep[i] and errs[i] == nil to
	// aggs[bucket[i]]. A nil keep keeps all; a nil bucket is all zeros. Call it once per
	// State, after Check.
	Accumulate(st State, keep []bool, bucket []int32, aggs []*AggShare, errs []error)

	// NewAggShare returns the zero aggregate share (agg_init).
	NewAggShare() *AggShare
	// ReadAggShare decodes exactly one aggregate share; it refuses elements that are not
	// reduced.
	ReadAggShare(b []byte) (*AggShare, error)

	// Unshard adds the aggregate shares of all aggregators and returns OutLen integers,
	// each centred: an element x of the field of size q stands for x if x <= q/2 and for
	// x-q otherwise, so server noise below zero stays below zero. Values that leave int64
	// give ErrRange.
	Unshard(shares []*AggShare) ([]int64, error)
}

// ErrMeasurement: a client was asked to shard what its VDAF cannot represent. The text
// names the bound, never the value.
var ErrMeasurement = errors.New("vdaf: measurement out of range")

// ErrRange: an aggregate does not fit the integer type asked for.
var ErrRange = errors.New("vdaf: aggregate out of range")

// State holds one worker's scratch memory and the output shares of its last batch. It is
// not safe for concurrent use.
type State interface{ Capacity() int }

// Shares is one sharded measurement: what the client seals for each aggregator.
type Shares struct {
	Public []byte
	Inputs [][]byte // one per aggregator, leader first
}

// A Client shards measurements of type M (VDAF-18 section 5.1). Randomness comes from
// crypto/rand; package vdaftest has the derandomised twin.
type Client[M any] interface {
	Shard(ctx []byte, m M, nonce *[NonceSize]byte) (*Shares, error)
}
