//go:build unix

package client

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"filippo.io/nistec"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// BenchmarkCredentials is what a report costs its device, with credentials and without, in
// processor time: cut, proved, shown and sealed to both. M is one multiplication of a point
// of P-256 in constant time.
func BenchmarkCredentials(b *testing.B) {
	processor := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	scalar, point := make([]byte, 32), nistec.NewP256Point().SetGenerator()
	for i := range scalar {
		scalar[i] = byte(i * 37)
	}
	for _, q := range []recipe.Histogram{{Length: 16, Chunk: 4}, {Length: 1024, Chunk: 32}} {
		for _, credited := range []bool{false, true} {
			b.Run(fmt.Sprintf("histogram of %d, credited=%v", q.Length, credited), func(b *testing.B) {
				c := benchClient(b, q, credited)
				const units = 16
				var of, unit time.Duration
				for b.Loop() {
					start := processor()
					if _, err := c.Prepare(Bucket(3), now); err != nil {
						b.Fatal(err)
					}
					between := processor()
					for range units {
						if _, err := point.ScalarMult(point, scalar); err != nil {
							b.Fatal(err)
						}
					}
					of += between - start
					unit += processor() - between
				}
				b.ReportMetric(float64(of.Microseconds())/float64(b.N), "µs-cpu/report")
				b.ReportMetric(units*float64(of)/float64(unit), "M/report")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// benchClient has keys, and credentials of both issuers where its recipe counts devices.
func benchClient(b *testing.B, q recipe.Query, credited bool) *Client {
	r, x := countedRecipe(b, q)
	if !credited {
		r.Tokens = nil
	}
	s := newServers(b, r)
	deployment, err := r.Deployment()
	if err != nil {
		b.Fatal(err)
	}
	h := &held{b, map[uint64]*Held{}, map[uint64][2]*arc.Verifier{}}
	h.issue(deployment, uint64(now.Unix())/uint64(r.ServerKeys.EpochLength))
	c := s.client(func(o *Options) { o.AnyKeys, o.Anchors, o.Credentials = false, x.anchors, h })
	for to, k := range map[*aggregator]*sealed.KeyPair{&c.leader: s.leader, &c.helper: s.helper} {
		config := dap.NewHpkeConfig(k)
		public, err := config.PublicKey()
		if err != nil {
			b.Fatal(err)
		}
		to.set(&sealingKey{id: k.ID(), public: public, expires: now.Add(time.Hour), until: now.Add(time.Hour)})
	}
	return c
}
