//go:build unix

package aggregator_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"filippo.io/nistec"

	"github.com/starling-agg/starling/dap"
)

// processor is the processor time of the process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// unit is M, one multiplication of a point of P-256 in constant time, as the mean of many.
func unit(b *testing.B) time.Duration {
	const n = 500
	k := make([]byte, 32)
	for i := range k {
		k[i] = byte(i * 37)
	}
	p := nistec.NewP256Point().SetGenerator()
	start := processor(b)
	for range n {
		if _, err := p.ScalarMult(p, k); err != nil {
			b.Fatal(err)
		}
	}
	return (processor(b) - start) / n
}

// BenchmarkCredentials is what reports cost whose tasks count devices, and whose do not, in
// processor time: a job at the helper, without its leader; and leader and helper together,
// from the upload to the last commit.
func BenchmarkCredentials(b *testing.B) {
	const reports = 256
	for _, part := range []string{"helper", "both"} {
		for _, credited := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s, credited=%v", part, credited), func(b *testing.B) {
				var c *counted
				var holders []holder
				if credited {
					c = newCounted(b, setup{})
					for range reports {
						holders = append(holders, c.holder())
					}
				} else {
					c = &counted{pair: newPair(b, setup{})}
				}
				var spent, m time.Duration
				for n := range b.N { // a report of a holder counts once in a round
					if n%8 == 0 && n > 0 && credited {
						for i := range holders {
							holders[i] = c.holder()
						}
					}
					var list []dap.Report
					for i := range reports {
						s := spoil{}
						if credited {
							s = c.shows(holders[i], c.now()-dap.Time(n%8))
						}
						list = append(list, c.report(1, s))
					}
					body := c.initReq(c.kit.Inits(list...), nil)
					m += unit(b)
					start := processor(b)
					if part == "helper" {
						if a := c.postInit(body); a.status/100 != 2 {
							b.Fatalf("status %d", a.status)
						}
						c.anew()
					} else {
						c.accept(list...)
						c.step()
					}
					spent += processor(b) - start
				}
				if want := uint64(b.N * reports); c.helperCounts().Aggregated != want {
					b.Fatalf("%d of %d reports are counted", c.helperCounts().Aggregated, want)
				}
				b.ReportMetric(float64(spent.Microseconds())/float64(b.N*reports), "µs-cpu/report")
				b.ReportMetric(float64(spent)/float64(m)/reports, "M/report")
				b.ReportMetric(float64(m.Microseconds())/float64(b.N), "µs/M")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
