package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

// attack plays the attackers of a lab of vectors, each of whom sends two reports. The
// first is the worst that a proof lets through: all of the proved bound in one direction,
// the first entry, and no noise. The second is one hundredth over it there. It returns
// what the first kind adds to the sum of the first entry, in units of the entries.
func (v *vectors) attack(ctx context.Context, f *frame) (float64, error) {
	q, _ := f.recipe.Vector()
	config, ok := q.VDAFConfig().(dap.PineConfig)
	if !ok {
		return 0, errors.New("attackers know the proofs of package pine only")
	}
	proof, err := pine.New(config.PineParams())
	if err != nil {
		return 0, err
	}
	attacker, err := newForger(ctx, f, v.o.Malicious)
	if err != nil {
		return 0, err
	}
	push := make([]int64, q.Dimension)
	push[0] = int64(q.Bound)
	width := int(config.PineParams().Field) / 8 // bytes of an entry of the leader's share, lowest first
	for range v.o.Malicious {
		for _, spoil := range []func(*vdaf.Shares){nil, func(s *vdaf.Shares) { add(s.Inputs[0][:width], q.Bound/100+1) }} {
			report, err := attacker.seal(f.asked, func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
				return proof.ShardIntegers(ctx, push, nonce)
			}, spoil)
			if err != nil {
				return 0, fmt.Errorf("forge: %w", err)
			}
			body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
			if err != nil {
				return 0, err
			}
			if err := attacker.upload(ctx, attacker.reports, body); err != nil {
				return 0, fmt.Errorf("send: %w", err)
			}
		}
	}
	return float64(v.o.Malicious) * q.Norm(), nil
}

// add adds x to a little-endian number, modulo its length. A number that is no element of
// its field then is refused like any other lie.
func add(number []byte, x uint64) {
	for i := range number {
		x += uint64(number[i])
		number[i] = byte(x)
		x >>= 8
	}
}
