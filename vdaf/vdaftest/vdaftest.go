// Package vdaftest supports tests of VDAFs: sharding with chosen randomness, and the
// replay of test vectors in the format of VDAF-18 appendix C. Chosen randomness destroys
// privacy; nothing but tests may import this package.
package vdaftest

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
)

// A Sharder is a [vdaf.Client] of this module.
type Sharder[M any] interface {
	ShardDerandomized(ctx []byte, m M, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error)
}

// Shard is the client's Shard with the randomness of VDAF-18's shard(), RAND_SIZE bytes.
func Shard[M any](c Sharder[M], ctx []byte, m M, nonce *[vdaf.NonceSize]byte, rand []byte) (*vdaf.Shares, error) {
	return c.ShardDerandomized(ctx, m, nonce, derand.New(rand))
}

// Hex is a string of bytes that JSON shows in hexadecimal.
type Hex []byte

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Hex) UnmarshalJSON(b []byte) error {
	var s string
	err := json.Unmarshal(b, &s)
	if err == nil {
		*h, err = hex.DecodeString(s)
	}
	return err
}

// MarshalJSON implements [json.Marshaler].
func (h Hex) MarshalJSON() ([]byte, error) { return json.Marshal(hex.EncodeToString(h)) }

// Vector is one file of test vectors. Parameters that its VDAF does not have are zero.
type Vector struct {
	Operations []Operation     `json:"operations"`
	Shares     int             `json:"shares"`
	VerifyKey  Hex             `json:"verify_key"`
	AggParam   Hex             `json:"agg_param"`
	Ctx        Hex             `json:"ctx"`
	Reports    []Report        `json:"reports"`
	AggShares  []Hex           `json:"agg_shares"`
	AggResult  json.RawMessage `json:"agg_result"`

	Length         int    `json:"length,omitempty"`
	ChunkLength    int    `json:"chunk_length,omitempty"`
	MaxMeasurement uint64 `json:"max_measurement,omitempty"`
	MaxValue       uint64 `json:"max_value,omitempty"`
	MaxWeight      int    `json:"max_weight,omitempty"`
	Proofs         int    `json:"proofs,omitempty"` // in vectors of this module only
}

// Operation is one step of a vector. Where Success is false it must fail, and ends its
// report.
type Operation struct {
	Operation    string `json:"operation"`
	Round        int    `json:"round"`
	AggregatorID int    `json:"aggregator_id"`
	ReportIndex  int    `json:"report_index"`
	Success      bool   `json:"success"`
}

// Report is one report of a vector.
type Report struct {
	Measurement      json.RawMessage `json:"measurement"`
	Nonce            Hex             `json:"nonce"`
	Rand             Hex             `json:"rand"`
	PublicShare      Hex             `json:"public_share"`
	InputShares      []Hex           `json:"input_shares"`
	VerifierShares   [][]Hex         `json:"verifier_shares"`
	VerifierMessages []Hex           `json:"verifier_messages"`
	OutShares        []Hex           `json:"out_shares"`
}

// Read reads one file.
func Read(path string) (*Vector, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v := new(Vector)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// OfficialDir returns the folder of the official vectors: $STARLING_VECTORS, or
// ../shared/vectors beside the module of the working directory. The error wraps
// [fs.ErrNotExist] where there is none.
func OfficialDir() (string, error) {
	dir := os.Getenv("STARLING_VECTORS")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			return "", err
		}
		for {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
				break
			}
			up := filepath.Dir(root)
			if up == root {
				return "", fmt.Errorf("go.mod above the working directory: %w", fs.ErrNotExist)
			}
			root = up
		}
		dir = filepath.Join(root, "..", "shared", "vectors")
	}
	if _, err := os.Stat(dir); err != nil {
		return "", err
	}
	return dir, nil
}

// ShardFunc shards the measurement of a report of a vector.
type ShardFunc func(ctx []byte, m json.RawMessage, nonce *[vdaf.NonceSize]byte, rand []byte) (*vdaf.Shares, error)

// JSONSharder returns the ShardFunc of a client whose measurements are in JSON what they
// are in Go.
func JSONSharder[M any](c Sharder[M]) ShardFunc {
	return func(ctx []byte, m json.RawMessage, nonce *[vdaf.NonceSize]byte, rand []byte) (*vdaf.Shares, error) {
		var x M
		if err := json.Unmarshal(m, &x); err != nil {
			return nil, err
		}
		return Shard(c, ctx, x, nonce, rand)
	}
}

// replay is one run of a vector.
type replay struct {
	v      vdaf.VDAF
	shard  ShardFunc
	x      *Vector
	states map[[2]int]vdaf.State // by report and aggregator
	bad    map[int]bool          // reports that failed, as they should
}

// Replay runs every operation of x, each on a batch of one, and compares every result;
// then, if no operation of x is to fail, all reports once more in one batch. It returns
// the first difference.
func Replay(v vdaf.VDAF, shard ShardFunc, x *Vector) error {
	r := &replay{v, shard, x, map[[2]int]vdaf.State{}, map[int]bool{}}
	if v.Shares() != x.Shares {
		return fmt.Errorf("%d shares, want %d", v.Shares(), x.Shares)
	}
	if len(x.Operations) == 0 || len(x.Reports) == 0 {
		return errors.New("vector without operations or reports")
	}
	for i, op := range x.Operations {
		err := r.run(op)
		if op.Success && err != nil {
			return fmt.Errorf("operation %d (%s of report %d, aggregator %d): %w", i, op.Operation, op.ReportIndex,
				op.AggregatorID, err)
		}
		if !op.Success {
			if !errors.Is(err, vdaf.ErrDecode) && !errors.Is(err, vdaf.ErrVerify) {
				return fmt.Errorf("operation %d (%s of report %d, aggregator %d) should be refused, got: %v", i,
					op.Operation, op.ReportIndex, op.AggregatorID, err)
			}
			r.bad[op.ReportIndex] = true
		}
	}
	if len(r.bad) == 0 {
		if err := r.batch(); err != nil {
			return fmt.Errorf("in one batch: %w", err)
		}
	}
	return nil
}

func same(what string, got, want []byte) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s is %x, want %x", what, got, want)
	}
	return nil
}

func (r *replay) run(op Operation) error {
	x, v, sizes := r.x, r.v, r.v.Sizes()
	errs := make([]error, 1)
	switch op.Operation {
	case "shard":
		rep := &x.Reports[op.ReportIndex]
		got, err := r.shard(x.Ctx, rep.Measurement, (*[vdaf.NonceSize]byte)(rep.Nonce), rep.Rand)
		if err != nil {
			return err
		}
		if err := same("public share", got.Public, rep.PublicShare); err != nil {
			return err
		}
		if len(got.Inputs) != len(rep.InputShares) {
			return fmt.Errorf("%d input shares, want %d", len(got.Inputs), len(rep.InputShares))
		}
		for j, s := range rep.InputShares {
			if err := same(fmt.Sprint("input share ", j), got.Inputs[j], s); err != nil {
				return err
			}
		}
		return nil
	case "verify_init":
		rep := &x.Reports[op.ReportIndex]
		st := v.NewState(1)
		r.states[[2]int{op.ReportIndex, op.AggregatorID}] = st
		share := make([]byte, sizes.VerifierShare)
		in := vdaf.Reports{Nonces: [][vdaf.NonceSize]byte{[vdaf.NonceSize]byte(rep.Nonce)},
			Public: [][]byte{rep.PublicShare}, Inputs: [][]byte{rep.InputShares[op.AggregatorID]}}
		v.VerifyInit(st, (*[vdaf.VerifyKeySize]byte)(x.VerifyKey), x.Ctx, op.AggregatorID, &in, share, errs)
		if errs[0] != nil {
			return errs[0]
		}
		return same("verifier share", share, rep.VerifierShares[0][op.AggregatorID])
	case "verifier_shares_to_message":
		rep := &x.Reports[op.ReportIndex]
		var shares [][]byte
		for _, s := range rep.VerifierShares[op.Round] {
			shares = append(shares, s)
		}
		msg := make([]byte, sizes.VerifierMessage)
		v.Combine(x.Ctx, shares, msg, errs)
		if errs[0] != nil {
			return errs[0]
		}
		return same("verifier message", msg, rep.VerifierMessages[op.Round])
	case "verify_next":
		rep := &x.Reports[op.ReportIndex]
		st := r.states[[2]int{op.ReportIndex, op.AggregatorID}]
		v.Check(st, rep.VerifierMessages[op.Round-1], errs)
		if errs[0] != nil {
			return errs[0]
		}
		out := v.NewAggShare()
		v.Accumulate(st, nil, nil, []*vdaf.AggShare{out}, errs)
		return same("output share", out.Append(nil), rep.OutShares[op.AggregatorID])
	case "aggregate":
		sum := v.NewAggShare()
		for i := range x.Reports {
			v.Accumulate(r.states[[2]int{i, op.AggregatorID}], nil, nil, []*vdaf.AggShare{sum}, errs)
		}
		return same("aggregate share", sum.Append(nil), x.AggShares[op.AggregatorID])
	case "unshard":
		return r.unshard()
	}
	return fmt.Errorf("unknown operation %q", op.Operation)
}

func (r *replay) unshard() error {
	var shares []*vdaf.AggShare
	for _, b := range r.x.AggShares {
		s, err := r.v.ReadAggShare(b)
		if err != nil {
			return err
		}
		shares = append(shares, s)
	}
	got, err := r.v.Unshard(shares)
	if err != nil {
		return err
	}
	var want []int64
	if strings.HasPrefix(strings.TrimSpace(string(r.x.AggResult)), "[") {
		err = json.Unmarshal(r.x.AggResult, &want)
	} else {
		want = make([]int64, 1)
		err = json.Unmarshal(r.x.AggResult, &want[0])
	}
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("result is %d, want %d", got, want)
	}
	return nil
}

// batch verifies all reports together, every aggregator in turn.
func (r *replay) batch() error {
	x, v, sizes := r.x, r.v, r.v.Sizes()
	n := len(x.Reports)
	errs := make([]error, n)
	all := make([][]byte, x.Shares)
	states := make([]vdaf.State, x.Shares)
	for j := range all {
		var in vdaf.Reports
		for i := range x.Reports {
			rep := &x.Reports[i]
			in.Nonces = append(in.Nonces, [vdaf.NonceSize]byte(rep.Nonce))
			in.Public = append(in.Public, rep.PublicShare)
			in.Inputs = append(in.Inputs, rep.InputShares[j])
		}
		all[j] = make([]byte, n*sizes.VerifierShare)
		states[j] = v.NewState(n)
		v.VerifyInit(states[j], (*[vdaf.VerifyKeySize]byte)(x.VerifyKey), x.Ctx, j, &in, all[j], errs)
	}
	msgs := make([]byte, n*sizes.VerifierMessage)
	v.Combine(x.Ctx, all, msgs, errs)
	for j, st := range states {
		v.Check(st, msgs, errs)
		sum := v.NewAggShare()
		v.Accumulate(st, nil, nil, []*vdaf.AggShare{sum}, errs)
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if err := same("aggregate share", sum.Append(nil), x.AggShares[j]); err != nil {
			return err
		}
	}
	return nil
}
