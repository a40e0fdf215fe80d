package pine

import "github.com/starling-agg/starling/vdaf"

var (
	testKey = [vdaf.VerifyKeySize]byte{1, 2, 3}
	testCtx = []byte("starling test")
)

// must returns v, for constructors whose parameters are known to be good.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}
