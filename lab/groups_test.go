package lab

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// TestGroups plays the lab whose devices give a number in a secret group, with every kind
// of malicious report: one more in the places of another group than was proved is refused
// like all of them. What is released has each cell of the table, with its truth.
func TestGroups(t *testing.T) {
	n := 2 * len(attacks)
	r, err := Run(t.Context(), Options{Rows: testRows, Recipe: Groups, Malicious: n, Frame: Frame{Out: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	checkJSON(t, r)
	if r.Accepted != testRows || r.Rejected["vdaf_verify_error"] != 4 {
		t.Errorf("accepted %d, rejected %v", r.Accepted, r.Rejected)
	}
	if !slices.Equal(r.Labels, []string{"excellent", "good", "fair", "poor"}) || len(r.Groups) != 15 || len(r.Certificate) == 0 {
		t.Fatalf("%q, %d cells, a certificate of %d bytes", r.Labels, len(r.Groups), len(r.Certificate))
	}
	for i, x := range r.Groups {
		if group := append(slices.Clone(r.Labels), "")[i/3]; x.Group != group || x.Of != []string{"sum", "size", "mean"}[i%3] {
			t.Errorf("cell %d is %+v", i, x)
		}
		if i%3 == 0 && i < 12 && (int64(x.Truth) != r.Truth[i/3] || x.Cell.Estimate != r.Estimate[i/3]) {
			t.Errorf("cell %d is %+v, the bar %v of %d", i, x, r.Estimate[i/3], r.Truth[i/3])
		}
		// Seven deviations of a 95 % interval are a chance below 1e-6, of the sum of two
		// Laplace draws too.
		if in := x.Cell.Interval95; i%3 != 2 && math.Abs(x.Cell.Estimate-x.Truth) > 4*(in[1]-in[0])/2+1e-9 {
			t.Errorf("cell %d is far off: %+v", i, x)
		}
	}
	// Scale 40 on each server is a deviation of 80, of a size sqrt(2 * 3/4)/20 of that.
	if x := r.Groups[1].Cell; x.Stderr < 4 || x.Stderr > 6 || x.State != sketch.Value {
		t.Errorf("the size of the first group: %+v", x)
	}
	if x := r.Groups[13].Cell; x.Estimate != testRows || x.Stderr != 0 {
		t.Errorf("the number of all: %+v", x)
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"how many people, by how they rate their health", "estimate      truth  95 % interval", "all together   sum", "616 sent, 600 accepted"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	for name, o := range map[string]Options{"population": {Recipe: Groups, Population: 2000}, "rounds": {Recipe: Groups, Rounds: 2}} {
		if err := o.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestGroupsProof: what adds up to more than the range is refused by both servers though a
// proof for a larger bound of as many bits comes with it, whose bits add up to more under
// the smaller one too; what is spread over groups within the range is not; and nobody
// shares a number out of range.
func TestGroupsProof(t *testing.T) {
	r := recipe.Recipe{Query: recipe.GroupSums{Min: -2, Max: 3, Groups: 2, Chunk: 4}}
	config, err := r.VDAFConfig()
	if err != nil {
		t.Fatal(err)
	}
	c := config.(dap.L1BoundSumConfig)
	strict, err1 := prio3.NewL1BoundSum(2, int(c.Length), c.MaxValue, int(c.ChunkLength))
	loose, err2 := prio3.NewL1BoundSum(2, int(c.Length), 7, int(c.ChunkLength))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var nonce [vdaf.NonceSize]byte
	var key [vdaf.VerifyKeySize]byte
	verify := func(s *vdaf.Shares) error {
		size, errs := strict.Sizes(), make([]error, 1)
		shares, msgs := make([][]byte, 2), make([]byte, size.VerifierMessage)
		states := []vdaf.State{strict.NewState(1), strict.NewState(1)}
		for agg, st := range states {
			in := vdaf.Reports{Nonces: [][vdaf.NonceSize]byte{nonce}, Public: [][]byte{s.Public}, Inputs: [][]byte{s.Inputs[agg]}}
			shares[agg] = make([]byte, size.VerifierShare)
			strict.VerifyInit(st, &key, nil, agg, &in, shares[agg], errs)
		}
		strict.Combine(nil, shares, msgs, errs)
		for _, st := range states {
			strict.Check(st, msgs, errs)
		}
		return errs[0]
	}
	encode := r.Query.(recipe.Encoded).Encode
	for _, x := range []struct {
		by      *prio3.L1BoundSum
		numbers []uint64
		want    error
	}{
		{strict, encode([]uint64{1, 1}), nil},
		{strict, []uint64{3, 0, 0, 2}, nil},
		{strict, []uint64{1, 1, 1, 1}, nil},
		{loose, []uint64{3, 3, 0, 0}, vdaf.ErrVerify},
		{loose, []uint64{3, 3, 0, 1}, vdaf.ErrVerify},
		{loose, []uint64{2, 1, 1, 2}, vdaf.ErrVerify},
	} {
		s, err := x.by.Shard(nil, x.numbers, &nonce)
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(s); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("%v: %v, want %v", x.numbers, err, x.want)
		}
	}
	for _, value := range []int64{-3, 4, math.MinInt64, math.MaxInt64} {
		if _, err := strict.Shard(nil, encode([]uint64{uint64(value), 0}), &nonce); !errors.Is(err, vdaf.ErrMeasurement) {
			t.Errorf("%d is shared: %v", value, err)
		}
	}
}
