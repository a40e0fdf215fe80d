//go:build linux

// Command room measures what a full disk does to a leader and a helper in processes of
// their own, each on a file system of its own: uploads at a steady rate, the disk of one
// or of both filled to the last block and kept full, and room again. It prints the
// table of docs/bench/room.md, and fails where a party ends, an acknowledged report is not
// aggregated by both in the end, a store is not sound, or the parties need more than ten
// seconds to go on.
//
//	go run ./test/room
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/test/internal/parties"
)

// options are of all scenarios.
type options struct {
	binary, kind string
	full, before time.Duration
	rate         int   // uploads a second
	size         int64 // of each disk, in bytes
	goOn         time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.binary, "starling", "", "the binary that plays leader and helper; built if not given")
	flag.DurationVar(&o.full, "full", 10*time.Minute, "how long the disk is full")
	flag.DurationVar(&o.before, "before", 10*time.Second, "how long it is not, before and after")
	flag.IntVar(&o.rate, "uploads", 50, "uploads a second, of one report each")
	flag.StringVar(&o.kind, "fs", "ext4", "ext4 in a file, which takes root, or tmpfs")
	mib := flag.Int64("size", 96, "MiB of each disk")
	where := flag.String("disks", "leader,helper,both,both without min_free", "whose disk is full, one after the other")
	flag.DurationVar(&o.goOn, "within", 10*time.Second, "how soon all has to go on once there is room")
	flag.Parse()
	o.size = *mib << 20
	if os.Getenv(inside) == "" {
		code, err := enter()
		if err != nil {
			log.Fatal(err)
		}
		os.Exit(code)
	}
	if err := run(o, strings.Split(*where, ",")); err != nil {
		log.Fatal(err)
	}
}

func run(o options, scenarios []string) error {
	top, err := os.MkdirTemp("", "starling-room-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(top)
	if o.binary == "" {
		if o.binary, err = parties.Build(top); err != nil {
			return err
		}
	}
	fmt.Printf("%v full, on %s of %d MiB, %d uploads a second\n\n", o.full, o.kind, o.size>>20, o.rate)
	fmt.Println("| full disk | taken before, while full, after | refused | no answer | statuses while full | uploads go on after | verifying goes on after | backlog then, done after | acknowledged, aggregated by leader and helper |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	var all error
	for i, s := range scenarios {
		if err := scenario(o, filepath.Join(top, fmt.Sprint(i)), s); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", s, err))
		}
	}
	return all
}

// scenario fills the disks that name says: "leader", "helper" or "both", and
// "... without min_free" where nothing stops in good time.
func scenario(o options, dir, name string) (err error) {
	who, overwhelmed := strings.CutSuffix(name, " without min_free")
	keep := o.size / 3
	if overwhelmed {
		keep = -1
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	disks := map[string]string{}
	for _, role := range []string{"leader", "helper"} {
		disks[role] = filepath.Join(dir, role+"-disk")
		if err := mount(o.kind, disks[role], o.size); err != nil {
			return err
		}
	}
	p, err := parties.Start(o.binary, filepath.Join(dir, "deployment"), func(role, text string) string {
		for old, new := range map[string]string{
			fmt.Sprintf("\ndata = %q", role):             fmt.Sprintf("\ndata = %q", filepath.Join(disks[role], "data")),
			fmt.Sprintf("\nrecord = %q", role+".record"): fmt.Sprintf("\nrecord = %q", filepath.Join(disks[role], "record")),
			"\nclock_skew =":                             fmt.Sprintf("\nmin_free = %d\nclock_skew =", keep),
		} {
			text = strings.Replace(text, old, new, 1)
		}
		return text
	})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		for _, s := range p.Both() {
			if b, _ := os.ReadFile(s.Config + ".log"); len(b) > 0 {
				log.Printf("the %s's log ends with\n%s", s.Role, b[max(0, len(b)-3000):])
			}
		}
		p.Stop()
	}()
	m := &measure{options: o, pair: p, disks: disks}
	switch who {
	case "both":
		m.full = []string{"leader", "helper"}
	case "leader", "helper":
		m.full = []string{who}
	default:
		return fmt.Errorf("no such disk: %q", who)
	}
	if err := m.run(); err != nil {
		return err
	}
	if err := p.Stop(); err != nil {
		return err
	}
	for role, id := range map[string]dap.Role{"leader": dap.RoleLeader, "helper": dap.RoleHelper} {
		a, err := deploy.LoadAggregator(filepath.Join(p.Dir, role+".toml"), id)
		if err != nil {
			return err
		}
		faults, err := a.Audit(context.Background())
		if err != nil || len(faults) > 0 {
			return fmt.Errorf("the %s's store: %v, %w", role, faults, err)
		}
	}
	fmt.Printf("| %s | %s |\n", name, strings.Join(m.row, " | "))
	return errors.Join(m.late...)
}

// A measure is one scenario under way.
type measure struct {
	options
	pair  *parties.Pair
	disks map[string]string
	full  []string // whose disk becomes full
	row   []string
	late  []error // what took too long

	taken, refused, unknown atomic.Int64
	mu                      sync.Mutex
	// of the uploads taken, and refused, since there is room again
	first, last time.Time
	room        time.Time
}

func (m *measure) run() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var uploads sync.WaitGroup
	uploads.Go(func() { m.upload(ctx) })
	defer func() { stop(); uploads.Wait() }()
	if err := m.watch(m.before, nil); err != nil {
		return err
	}
	taken := []int64{m.taken.Load()}
	if taken[0] == 0 {
		return errors.New("no upload was taken before the disk was full")
	}

	var heavy []*ballast
	for _, role := range m.full {
		b, err := fill(m.disks[role])
		if err != nil {
			return err
		}
		heavy = append(heavy, b)
	}
	asked, answered := 0, 0
	err := m.watch(m.options.full, func() {
		for _, s := range m.pair.Both() {
			asked++
			if _, err := s.Status(); err == nil {
				answered++
			}
		}
	})
	for _, role := range m.full {
		if f := free(m.disks[role]); err == nil && f > 1<<20 {
			err = fmt.Errorf("%d bytes are free on the full disk", f)
		}
	}
	if err != nil {
		return err
	}
	taken = append(taken, m.taken.Load())
	s, err := patient(m.pair.Leader)
	if err != nil {
		return err
	}
	then := s.Tasks[0].Counts
	for _, b := range heavy {
		if err := b.remove(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.room = time.Now()
	m.mu.Unlock()
	again, done, err := m.recover(then.Aggregated, then.Acknowledged)
	if err != nil {
		return err
	}
	if err := m.watch(m.before, nil); err != nil {
		return err
	}
	stop()
	uploads.Wait()
	taken = append(taken, m.taken.Load())
	acknowledged, sums, err := m.settle()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	uploadsAgain := max(m.first.Sub(m.room), m.last.Sub(m.room))
	for what, took := range map[string]time.Duration{"uploads": uploadsAgain, "verifying": again} {
		if took > m.goOn {
			m.late = append(m.late, fmt.Errorf("%s went on after %v", what, took))
		}
	}
	if answered < asked {
		m.late = append(m.late, fmt.Errorf("%d of %d statuses were not answered", asked-answered, asked))
	}
	round := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	m.row = []string{
		fmt.Sprintf("%d, %d, %d", taken[0], taken[1]-taken[0], taken[2]-taken[1]), fmt.Sprint(m.refused.Load()), fmt.Sprint(m.unknown.Load()),
		fmt.Sprintf("%d of %d", answered, asked), round(uploadsAgain), round(again),
		fmt.Sprintf("%d, %s", then.Acknowledged-then.Aggregated, round(done)), fmt.Sprintf("%d, %d, %d", acknowledged, sums[0], sums[1]),
	}
	return nil
}

// watch lets a time pass in which both have to live, and calls f each second.
func (m *measure) watch(for_ time.Duration, f func()) error {
	end := time.After(for_)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-end:
			return m.pair.Failed()
		case <-second.C:
			if err := m.pair.Failed(); err != nil {
				return err
			}
			if f != nil {
				f()
			}
		}
	}
}

// recover waits until more is aggregated than was, and until all that was acknowledged is.
func (m *measure) recover(aggregated, acknowledged uint64) (again, done time.Duration, err error) {
	for time.Since(m.room) < 10*time.Minute {
		if err := m.pair.Failed(); err != nil {
			return 0, 0, err
		}
		if s, err := m.pair.Leader.Status(); err == nil {
			now := s.Tasks[0].Counts.Aggregated
			if again == 0 && now > aggregated {
				again = time.Since(m.room)
			}
			if now >= acknowledged && again > 0 {
				return again, time.Since(m.room), nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, 0, errors.New("verifying did not go on")
}

// patient asks for a status again where a busy machine gives none in time.
func patient(p *parties.Party) (s *status.Status, err error) {
	for range 5 {
		if s, err = p.Status(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// settle waits until nothing waits, and holds the counts of the two to the answers that
// uploads got.
func (m *measure) settle() (acknowledged uint64, aggregated [2]uint64, err error) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		l, err := patient(m.pair.Leader)
		if err != nil {
			return 0, aggregated, err
		}
		h, err := patient(m.pair.Helper)
		if err != nil {
			return 0, aggregated, err
		}
		c := l.Tasks[0].Counts
		acknowledged, aggregated = c.Acknowledged, [2]uint64{c.Aggregated, h.Tasks[0].Counts.Aggregated}
		if c.Waiting == 0 && aggregated[0] == acknowledged && aggregated[1] == acknowledged {
			break
		}
	}
	// One that is refused in the middle of its write may be kept: it counts once, also
	// where its client comes again.
	taken, unknown := uint64(m.taken.Load()), uint64(m.unknown.Load()+m.refused.Load())
	if acknowledged < taken || acknowledged > taken+unknown || aggregated[0] != acknowledged || aggregated[1] != acknowledged {
		return 0, aggregated, fmt.Errorf("%d uploads got 200 and %d another answer, or none; %d are acknowledged, %v aggregated by leader and helper",
			taken, unknown, acknowledged, aggregated)
	}
	return acknowledged, aggregated, nil
}

// upload sends reports at the rate until the context ends. One that is refused is given
// up: a client would come again.
func (m *measure) upload(ctx context.Context) {
	url := m.pair.Client.UploadURL().String()
	device := &http.Client{Transport: new(http.Transport), Timeout: 30 * time.Second}
	defer device.CloseIdleConnections()
	var under sync.WaitGroup
	defer under.Wait()
	ticker := time.NewTicker(time.Second / time.Duration(m.rate))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		under.Go(func() {
			begun := time.Now()
			report, err := m.pair.Client.Prepare(client.Bool(true), begun)
			if err != nil {
				log.Print(err)
				return
			}
			body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
			if err != nil {
				log.Print(err)
				return
			}
			resp, err := device.Post(url, dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
			if err != nil {
				m.unknown.Add(1)
				return
			}
			said, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			m.note(begun, resp, said, err)
		})
	}
}

// note counts the answer to an upload. One of another kind than taken and 503 with a
// Retry-After is none.
func (m *measure) note(begun time.Time, resp *http.Response, said []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	after := !m.room.IsZero() && begun.After(m.room)
	switch {
	case err == nil && resp.StatusCode == http.StatusOK && len(said) == 0:
		m.taken.Add(1)
		if after && m.first.IsZero() {
			m.first = time.Now()
		}
	case resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "":
		m.refused.Add(1)
		if after {
			m.last = time.Now()
		}
	default:
		m.unknown.Add(1)
		log.Printf("an upload got %d: %s, %v", resp.StatusCode, said, err)
	}
}
