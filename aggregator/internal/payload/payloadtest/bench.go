package payloadtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// benched are the sizes of objects that Bench asks for.
var benched = []int{1 << 10, 64 << 10, 256 << 10, 8 << 20}

// Bench puts and reads objects of several sizes, one at a time and by 16 callers at once,
// each put slower by the delays, one after the other.
func Bench(b *testing.B, s payload.Store, delays ...time.Duration) {
	for _, size := range benched {
		object := content("bench", size)
		run := func(b *testing.B, callers int, do func(n int) error) {
			var n atomic.Int64
			var wg sync.WaitGroup
			b.SetBytes(int64(size))
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if err := do(int(i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		for _, callers := range []int{1, 16} {
			for _, delay := range delays {
				slow := new(Faults)
				slow.Slow(delay)
				slowed := slow.Wrap(s)
				b.Run(fmt.Sprintf("put/%d KiB/callers=%d/delay=%v", size>>10, callers, delay), func(b *testing.B) {
					folder := fmt.Sprintf("put-%d-%d-%d-%d/", size, callers, delay.Milliseconds(), b.N)
					run(b, callers, func(n int) error {
						return slowed.Put(context.Background(), fmt.Sprintf("%s%x/%d.obj", folder, n%16, n), object)
					})
				})
			}
			name := fmt.Sprintf("read-%d.obj", size)
			if err := payload.Keep(context.Background(), s, name, object); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("read/%d KiB/callers=%d", size>>10, callers), func(b *testing.B) {
				buffers := sync.Pool{New: func() any { p := make([]byte, size); return &p }}
				run(b, callers, func(int) error {
					p := buffers.Get().(*[]byte)
					defer buffers.Put(p)
					_, err := s.ReadAt(context.Background(), name, *p, 0)
					return err
				})
			})
		}
	}
}
