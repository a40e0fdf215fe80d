package hop_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

var benchContributions = flag.Int("contributions", 2000, "of BenchmarkHops, of 10 messages each; docs/bench/shuffle.md has figures")

// A setClock is one that a test sets: rounds end when it says so.
type setClock struct {
	ahead atomic.Int64
	look  time.Duration // timers end within it; default 50 ms
}

func (c *setClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *setClock) NewTimer(d time.Duration) disk.Timer {
	return disk.SystemClock.NewTimer(min(d, cmp.Or(c.look, 50*time.Millisecond))) // it may be set in the meantime
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak notes the largest resident size of this process, in MB, until it is stopped.
func peak(stop <-chan struct{}) (most float64) {
	for {
		select {
		case <-stop:
			return most
		case <-time.After(20 * time.Millisecond):
		}
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return 0
		}
		pages, _ := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
		most = max(most, pages*float64(os.Getpagesize())/1e6)
	}
}

// BenchmarkHops takes contributions of 10 messages of 24 bytes through both hops, over
// sockets of this machine and on its disk, in one process: from the first request to hop
// 1 until the analyzer has all of the batch. The envelopes are made beforehand and lie in
// a file; the analyzer's own opening and its tally are timed apart. Processor seconds are
// those of all parties and of whoever sends; divided by two they are the time on two
// cores that do nothing else.
func BenchmarkHops(b *testing.B) {
	n := *benchContributions
	dir := b.TempDir()
	clock := &setClock{}
	s := onion.Shuffle{Recipe: [32]byte{1}, Messages: 10, Size: 24, MinBatch: uint64(n / 2), Length: time.Hour, Grace: time.Minute}
	roots := []*signed.PrivateKey{signed.Generate(), signed.Generate(), signed.Generate()}
	s.First, s.Second, s.Analyzer = roots[0].Public(), roots[1].Public(), roots[2].Public()
	signer := func(i int) *signed.Signer {
		return signedtest.Signer(b, roots[i], time.Now().Add(-time.Hour), 48*time.Hour)
	}
	open := func(name string) disk.FS {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			b.Fatal(err)
		}
		fsys, err := disk.OS(at)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { fsys.Close() })
		return fsys
	}
	var taken, tallied atomic.Int64 // processor nanoseconds at which it was
	total := make(chan onion.Counts, 1)
	a, err := analyzer.New(analyzer.Options{Signer: signer(2), Shuffles: []onion.Shuffle{s}, FS: open("analyzer"), Tokens: []string{fromSecond}, Readers: []string{ofCollector}, Clock: clock,
		Tally: func(_ context.Context, x *analyzer.Batch) ([]byte, error) {
			seen := make(map[uint64]bool, x.Counts.Messages)
			for m := range x.Messages {
				seen[binary.BigEndian.Uint64(m)] = true
			}
			tallied.Store(int64(cpu()))
			x.Counts.Messages -= x.Counts.Tallied() - uint64(len(seen)) // none doubled
			total <- x.Counts
			return nil, nil
		}})
	if err != nil {
		b.Fatal(err)
	}
	url := make(map[string]string)
	serve := func(name string, h http.Handler) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		server := &http.Server{Handler: h}
		go server.Serve(l)
		b.Cleanup(func() { server.Close() })
		url[name] = "http://" + l.Addr().String()
	}
	serve("analyzer", a)
	var hops [2]*hop.Hop
	for i := range 2 {
		i = 1 - i // hop 2 first
		number, token, next, to := i+1, []string{fromGateway, fromFirst}[i], []string{"hop2", "analyzer"}[i], []string{fromFirst, fromSecond}[i]
		h, err := hop.New(hop.Options{Number: number, Signer: signer(i), FS: open(fmt.Sprint("hop", number)), Tokens: []string{token}, Clock: clock,
			Shuffles: []hop.Shuffle{{Shuffle: s, Next: hop.Next{URL: url[next], Token: to}}}})
		if err != nil {
			b.Fatal(err)
		}
		hops[i] = h
		serve(fmt.Sprint("hop", number), h)
	}
	round := s.Round(clock.Now())
	key := func(name string, root signed.PublicKey, role onion.Role) *sealed.PublicKey {
		resp, err := http.Get(url[name] + "/" + onion.KeysPath(s.Recipe))
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		list := new(bytes.Buffer)
		list.ReadFrom(resp.Body)
		l, err := onion.OpenKeyList(list.Bytes(), root, s.Recipe, role)
		if err != nil {
			b.Fatal(err)
		}
		k, err := l.Key(round)
		if err != nil {
			b.Fatal(err)
		}
		return k
	}
	keys := onion.Keys{First: key("hop1", s.First, onion.First), Second: key("hop2", s.Second, onion.Second), Analyzer: key("analyzer", s.Analyzer, onion.Analyzer)}
	file := filepath.Join(dir, "envelopes")
	begun := time.Now()
	makeEnvelopes(b, file, s.Shape(round), keys, n)
	b.Logf("%d contributions made in %v", n, time.Since(begun).Round(time.Second))
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, p := range []service{hops[0], hops[1], a} {
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				b.Error(err)
				end()
			}
		})
	}
	defer func() { end(); running.Wait(); hops[0].Close(); hops[1].Close(); a.Close() }()
	debug.FreeOSMemory()
	stop, most := make(chan struct{}), make(chan float64, 1)
	go func() { most <- peak(stop) }()
	b.ResetTimer()
	wall, from := time.Now(), cpu()
	contributeAll(b, url["hop1"]+"/"+onion.ContributionsPath(s.Recipe), file, s.Shape(round).Record(onion.First))
	uploaded := cpu()
	clock.ahead.Store(int64(time.Until(s.Flush(round)) + time.Second))
	for { // until the analyzer has signed for it
		if st := hops[1].Status().Shuffles[0]; st.Totals.Rounds["delivered"] > 0 {
			break
		}
		if ctx.Err() != nil {
			b.Fatal("a party has ended")
		}
		time.Sleep(5 * time.Millisecond)
	}
	taken.Store(int64(cpu()))
	through := time.Since(wall)
	counts := <-total
	all := time.Since(wall)
	close(stop)
	b.StopTimer()
	if counts != (onion.Counts{Contributions: uint64(n), Messages: uint64(10 * n)}) {
		b.Errorf("%+v", counts)
	}
	b.ReportMetric(through.Seconds(), "s")
	b.ReportMetric((uploaded - from).Seconds(), "cpu-s/upload")
	b.ReportMetric((time.Duration(taken.Load()) - from).Seconds(), "cpu-s/hops")
	b.ReportMetric((time.Duration(tallied.Load()) - time.Duration(taken.Load())).Seconds(), "cpu-s/analyzer")
	b.ReportMetric((all - through).Seconds(), "s/analyzer")
	b.ReportMetric(<-most, "MB")
	b.ReportMetric(0, "ns/op")
}

// makeEnvelopes writes envelopes to a file, one behind another.
func makeEnvelopes(b *testing.B, file string, s onion.Shape, keys onion.Keys, n int) {
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	const block = 512
	for at := 0; at < n; at += block {
		out := make([][]byte, min(block, n-at))
		var all sync.WaitGroup
		workers := runtime.GOMAXPROCS(0)
		for worker := range workers {
			all.Go(func() {
				for i := worker; i < len(out); i += workers {
					var messages [][]byte
					for m := range s.Messages {
						messages = append(messages, binary.BigEndian.AppendUint64(nil, uint64((at+i)*s.Messages+m)))
						messages[m] = append(messages[m], make([]byte, s.Size-8)...)
					}
					e, err := s.Seal(keys, messages, nil)
					if err != nil {
						b.Error(err)
						return
					}
					out[i] = e
				}
			})
		}
		all.Wait()
		for _, e := range slices.All(out) {
			w.Write(e)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	f.Close()
}

// contributeAll sends a file of envelopes as a gateway does, many joined in a request of
// at most 1 MiB, four at a time.
func contributeAll(b *testing.B, url, file string, size int) {
	f, err := os.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	per := min(256, 1<<20/size)
	var all sync.WaitGroup
	places := make(chan struct{}, 4)
	for {
		body := make([]byte, per*size)
		n, _ := f.Read(body)
		if n == 0 {
			break
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			r, err := http.NewRequest("POST", url, bytes.NewReader(body[:n]))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header = http.Header{"Content-Type": {onion.ContributionsMedia}, "Authorization": {"Bearer " + fromGateway}}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				b.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	all.Wait()
}
