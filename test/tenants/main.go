// Command tenants measures what one tenant of a leader feels of another: acknowledgements of
// a steady one, alone, while the other sends as much as its quota, and ten times as much, in
// turn. It prints what docs/bench/tenants.md shows.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/test/internal/parties"
)

// How the other tenant behaves in a phase.
const (
	alone   = "alone"
	atQuota = "at its quota"
	tenfold = "ten times its quota"
)

type options struct {
	binary, against       string
	profiles              string
	seconds, rounds       int
	rate, quota, together int
	nice                  int
}

func main() {
	var o options
	flag.StringVar(&o.binary, "starling", "", "the binary that plays leader and helper; built if not given")
	flag.StringVar(&o.against, "against", "", "another binary, which is measured in turn with the first")
	flag.StringVar(&o.profiles, "profiles", "", "a directory for the leader's processor profile of each kind of phase")
	flag.IntVar(&o.seconds, "seconds", 8, "of each phase")
	flag.IntVar(&o.rounds, "rounds", 5, "of all phases, one after the other")
	flag.IntVar(&o.rate, "rate", 100, "uploads a second of the steady tenant, of one report each")
	flag.IntVar(&o.quota, "quota", 1000, "reports a second of the other tenant")
	flag.IntVar(&o.together, "together", 10, "reports in an upload of the other tenant")
	flag.IntVar(&o.nice, "nice", 19, "of the other tenant's load generator, so that it takes what the servers leave, as one on another machine would")
	send := flag.String("send", "", "play the other tenant's load generator with the uploads of a file")
	url := flag.String("url", "", "with -send: where to")
	perSecond := flag.Int("per-second", 0, "with -send: uploads")
	flag.Parse()
	var err error
	if *send != "" {
		err = generate(*send, *url, *perSecond, o.seconds)
	} else {
		err = run(o)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(o options) error {
	dir, err := os.MkdirTemp("", "starling-tenants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		if o.binary, err = parties.Build(dir); err != nil {
			return err
		}
	}
	var all []*served
	for _, binary := range []string{o.binary, o.against} {
		if binary == "" {
			continue
		}
		s, err := serve(o, binary, filepath.Join(dir, fmt.Sprint("deployment", len(all))))
		if err != nil {
			return err
		}
		defer s.pair.Stop()
		all = append(all, s)
	}
	return measure(o, dir, all)
}

// served are the processes of one binary.
type served struct {
	name          string
	pair          *parties.Pair
	steady, other *parties.Tenant
	results       map[string]*result
}

func serve(o options, binary, dir string) (*served, error) {
	p, tenants, err := parties.StartTenants(binary, dir, account.Options{
		Name: "count", Query: recipe.Count{}, MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1},
	}, []string{"steady", "other"}, func(tenant, role, text string) string {
		if tenant == "other" && role == "leader" {
			text += fmt.Sprintf("\n[quota]\nreports_per_second = %d\nrequests = 32\n", o.quota)
		}
		return text
	})
	if err != nil {
		return nil, err
	}
	s := &served{filepath.Base(binary), p, tenants["steady"], tenants["other"], map[string]*result{}}
	for _, k := range kinds {
		s.results[k] = &result{}
	}
	warm, err := uploads(s.steady.Client, 3*o.rate, 1)
	if err != nil {
		return nil, err
	}
	phase(&result{}, s.steady, warm, o.rate)
	return s, nil
}

// uploads prepares requests.
func uploads(c *client.Client, n, together int) ([][]byte, error) {
	all := make([][]byte, n)
	var wait sync.WaitGroup
	errs := make([]error, n)
	places := make(chan struct{}, 2)
	for i := range all {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			reports := make([]dap.Report, together)
			for k := range reports {
				if reports[k], errs[i] = c.Prepare(client.Bool(true), time.Now()); errs[i] != nil {
					return
				}
			}
			all[i], errs[i] = dap.AppendUploadRequest(nil, reports)
		})
	}
	wait.Wait()
	return all, errors.Join(errs...)
}

var kinds = []string{alone, atQuota, tenfold}

// A result is what was measured in all phases of one kind.
type result struct {
	took                           []time.Duration
	failed                         int
	leader, helper, generator, sec float64
	taken, turned                  int
	p99                            []time.Duration // of each phase
}

func measure(o options, dir string, all []*served) error {
	for round := range o.rounds {
		for _, kind := range kinds {
			for _, s := range all {
				if err := once(o, dir, s, kind, round == o.rounds-1 && o.profiles != ""); err != nil {
					return err
				}
			}
		}
	}
	print(all)
	return nil
}

// once has one phase.
func once(o options, dir string, s *served, kind string, profile bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, steady, other, r := s.pair, s.steady, s.other, s.results[kind]
	own, err := uploads(steady.Client, o.seconds*o.rate, 1)
	if err != nil {
		return err
	}
	perSecond := map[string]int{atQuota: o.quota / o.together, tenfold: 10 * o.quota / o.together}[kind]
	file := filepath.Join(dir, "uploads")
	if perSecond > 0 {
		theirs, err := uploads(other.Client, (o.seconds+2)*o.quota/o.together, o.together)
		if err != nil {
			return err
		}
		if err := write(file, theirs); err != nil {
			return err
		}
	}
	if err := idle(other, steady); err != nil {
		return err
	}
	var out bytes.Buffer
	var cmd *exec.Cmd
	if perSecond > 0 {
		cmd = exec.Command("nice", "-n", fmt.Sprint(o.nice), self, "-send", file, "-url", other.Client.UploadURL().String(),
			"-per-second", fmt.Sprint(perSecond), "-seconds", fmt.Sprint(o.seconds+1))
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // until it is under way
	}
	profiled := make(chan error, 1)
	if profile {
		go func() {
			b, err := p.Leader.Profile(o.seconds - 2)
			if err == nil {
				err = os.WriteFile(filepath.Join(o.profiles, s.name+"-"+strings.ReplaceAll(kind, " ", "-")+".pprof"), b, 0o644)
			}
			profiled <- err
		}()
	} else {
		profiled <- nil
	}
	begin, leader, helper := time.Now(), p.Leader.Seconds(), p.Helper.Seconds()
	phase(r, steady, own, o.rate)
	r.sec += time.Since(begin).Seconds()
	r.leader += p.Leader.Seconds() - leader
	r.helper += p.Helper.Seconds() - helper
	if err := <-profiled; err != nil {
		return err
	}
	if cmd != nil {
		if err := cmd.Wait(); err != nil {
			return err
		}
		var said struct {
			Taken, Turned int
		}
		if err := json.Unmarshal(out.Bytes(), &said); err != nil {
			return err
		}
		r.taken, r.turned = r.taken+said.Taken, r.turned+said.Turned
		r.generator += cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds()
	}
	return nil
}

// print writes the table.
func print(all []*served) {
	fmt.Printf("| binary | the other tenant | acknowledged | p50 | p99 | p99.9 | p99 of each phase | p99 to alone | uploads of the other: taken, turned away | processor s a second: leader, helper, the other's generator |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		base := at(s.results[alone].took, .99)
		for _, kind := range kinds {
			r := s.results[kind]
			var each []string
			for _, d := range r.p99 {
				each = append(each, d.Round(100*time.Microsecond).String())
			}
			fmt.Printf("| %s | %s | %d of %d | %v | %v | %v | %s | %.2f | %d, %d | %.2f, %.2f, %.2f |\n", s.name, kind, len(r.took)-r.failed, len(r.took),
				at(r.took, .5).Round(10*time.Microsecond), at(r.took, .99).Round(10*time.Microsecond), at(r.took, .999).Round(10*time.Microsecond), strings.Join(each, " "),
				float64(at(r.took, .99))/float64(base), r.taken, r.turned, r.leader/r.sec, r.helper/r.sec, r.generator/r.sec)
		}
	}
}

// idle waits until nothing of a tenant is left to verify.
func idle(tenants ...*parties.Tenant) error {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		waiting := uint64(0)
		for _, t := range tenants {
			s, err := t.Leader.Status()
			if err != nil {
				return err
			}
			waiting += s.Tasks[0].Counts.Waiting
		}
		if waiting == 0 {
			return nil
		}
		if time.Since(begin) > time.Minute {
			return fmt.Errorf("%d reports still wait to be verified", waiting)
		}
	}
}

// at is a quantile.
func at(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[int(q*float64(len(sorted)-1))]
}

// phase uploads at a rate, and adds how long each upload took from when it was due.
func phase(r *result, t *parties.Tenant, bodies [][]byte, rate int) {
	url := t.Client.UploadURL().String()
	device := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
	defer device.CloseIdleConnections()
	took := make([]time.Duration, len(bodies))
	var failed atomic.Int64
	var wait sync.WaitGroup
	begin := time.Now()
	for i, body := range bodies {
		due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		wait.Go(func() {
			resp, err := device.Post(url, dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
			if err == nil {
				n, _ := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || n > 0 {
					err = errors.New(resp.Status)
				}
			}
			if took[i] = time.Since(due); err != nil {
				failed.Add(1)
			}
		})
	}
	wait.Wait()
	r.took, r.failed, r.p99 = append(r.took, took...), r.failed+int(failed.Load()), append(r.p99, at(took, .99))
}

// write keeps uploads in a file, each behind its length.
func write(file string, all [][]byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, b := range all {
		binary.Write(w, binary.BigEndian, uint32(len(b)))
		w.Write(b)
	}
	return errors.Join(w.Flush(), f.Close())
}

func read(file string) (all [][]byte, err error) {
	text, err := os.ReadFile(file)
	for len(text) > 4 {
		n := binary.BigEndian.Uint32(text)
		all, text = append(all, text[4:4+n]), text[4+n:]
	}
	return all, err
}

// generate sends the uploads of a file at a rate; one that is turned away comes again after
// the others.
func generate(file, url string, perSecond, seconds int) error {
	all, err := read(file)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer stop()
	queue := make(chan []byte, len(all))
	for _, b := range all {
		queue <- b
	}
	sender := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}, Timeout: 30 * time.Second}
	var taken, turned atomic.Int64
	var wait sync.WaitGroup
	places := make(chan struct{}, 64)
	begin := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		var body []byte
		select {
		case body = <-queue:
		case <-ctx.Done():
			continue
		}
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			resp, err := sender.Post(url, dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					taken.Add(1)
					return
				}
			}
			turned.Add(1)
			queue <- body
		})
	}
	wait.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]int64{"Taken": taken.Load(), "Turned": turned.Load()})
}
