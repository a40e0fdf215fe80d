package xof

import "github.com/starling-agg/starling/vdaf/internal/kernel"

var _ = kernel.Register("xof.permute", kernel.Go, true, nil)

// permute is Keccak-p[1600,12] by the implementation in use.
func permute(s *[25]uint64) { permuteGo(s) }
