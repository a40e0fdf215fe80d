//go:build unix

package gateway

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/internal/p256/p256test"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

var benchSuites = []struct {
	name  string
	suite sealed.Suite
}{{"x25519", sealed.SuiteX25519}, {"x-wing", sealed.SuiteXWing}}

// cpu is the processor time of this process: other people's load on the machine does not
// count.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// histogramReport is as long as a report of a histogram of 256 buckets, 5.9 kB.
func histogramReport(b *testing.B, n int) []byte {
	r := dap.Report{
		Metadata: dap.ReportMetadata{ID: dap.ReportID{byte(n), byte(n >> 8), byte(n >> 16), 1}, Time: 7},
		Leader:   dap.HpkeCiphertext{ConfigID: 1, Enc: make([]byte, 32), Payload: make([]byte, 5600)},
		Helper:   dap.HpkeCiphertext{ConfigID: 1, Enc: make([]byte, 32), Payload: make([]byte, 100)},
	}
	body, err := dap.AppendUploadRequest(nil, []dap.Report{r})
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// BenchmarkOpen is one HPKE opening of a message as long as a padded request: the
// primitive under a gateway.
func BenchmarkOpen(b *testing.B) {
	for _, s := range benchSuites {
		b.Run(s.name, func(b *testing.B) {
			pair, err := sealed.Generate(1, s.suite)
			if err != nil {
				b.Fatal(err)
			}
			enc, ct, err := pair.Public().Seal(nil, nil, make([]byte, 8192))
			if err != nil {
				b.Fatal(err)
			}
			begin := cpu()
			n := 0
			for b.Loop() {
				if _, err := pair.Open(enc, nil, nil, ct); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(n), "cpu-µs/report")
		})
	}
}

// BenchmarkDevice is one encapsulation, on the device.
func BenchmarkDevice(b *testing.B) {
	for _, s := range benchSuites {
		b.Run(s.name, func(b *testing.B) {
			pair, err := sealed.Generate(1, s.suite)
			if err != nil {
				b.Fatal(err)
			}
			begin, n, size := cpu(), 0, 0
			for b.Loop() {
				request, _, err := ohttp.Encapsulate(1, pair.Public(), make([]byte, 8192))
				if err != nil {
					b.Fatal(err)
				}
				size = len(request)
				n++
			}
			b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(n), "cpu-µs/report")
			b.ReportMetric(float64(size), "request-bytes")
		})
	}
}

// BenchmarkGateway is a request's whole way through a gateway, from its bytes to the
// sealed answer, without network: opening, reading, checking, remembering, joining,
// sealing. The leader does nothing.
func BenchmarkGateway(b *testing.B) {
	for _, s := range benchSuites {
		for _, where := range []string{"memory", "disk"} {
			b.Run(fmt.Sprintf("%s/%s", s.name, where), func(b *testing.B) {
				pair, err := sealed.Generate(1, s.suite)
				if err != nil {
					b.Fatal(err)
				}
				var fsys disk.FS = disktest.NewMem(1)
				if where == "disk" {
					if fsys, err = disk.OS(b.TempDir()); err != nil {
						b.Fatal(err)
					}
				}
				empty := roundTripper(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
				})
				g := start(b, Options{Keys: []Key{{Pair: pair}}, FS: fsys, Transport: empty, Window: 5 * time.Millisecond})
				requests := make([][]byte, b.N)
				for i := range requests {
					requests[i], _ = sealTo(b, pair, upload(histogramReport(b, i)))
				}
				begin := cpu()
				b.ResetTimer()
				next := make(chan []byte)
				var all sync.WaitGroup
				for range 512 { // as many devices wait for a round at one time
					all.Go(func() {
						for request := range next {
							r := httptest.NewRequest("POST", "/", bytes.NewReader(request))
							r.Header.Set("Content-Type", ohttp.RequestMedia)
							w := httptest.NewRecorder()
							if g.ServeHTTP(w, r); w.Code != 200 {
								b.Errorf("status %d", w.Code)
							}
						}
					})
				}
				for _, request := range requests {
					next <- request
				}
				close(next)
				all.Wait()
				b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(b.N), "cpu-µs/report")
			})
		}
	}
}

// BenchmarkAdmit is what a request for a task that asks for tokens costs more than another,
// in multiplications of a point (M), with a token that holds, without one, and of a round
// that has no key.
func BenchmarkAdmit(b *testing.B) {
	keys := tokenKeys(time.Now())
	g := start(b, Options{Window: MaxWindow, Admission: []Admission{{Keys: keys}}})
	path := dap.CreationPath(dap.TaskID{5}, dap.ReportsResource)
	for _, c := range []struct {
		name   string
		header []ohttp.Field
	}{
		{"token", []ohttp.Field{{Name: admission.Field, Value: fresh(b, keys, 0)}}},
		{"none", nil},
		{"foreign", []ohttp.Field{{Name: admission.Field, Value: admission.Value(keys.First+7, issued(b, keys, 0))}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p256test.InUnits(b, 1, func() {
				it := item{token: g.admit(path, c.header)}
				if (it.token.by != nil) != (c.name == "token") {
					b.Fatal("let in, or not")
				}
				it.leave()
			})
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
