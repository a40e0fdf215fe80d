// Command kill ends leader and helper with kill -9 at random times under load, starts them
// again, and asks whether any report was lost or counted twice.
//
//	go run ./test/kill -runs 20
//
// # One run
//
// Devices upload reports of one round, several requests at a time, and come again with
// what was not acknowledged. At a random time the leader, the helper or both are killed,
// and in one run of three killed again while they start, or once more while the round is
// collected. Each report of a round has a bucket of one histogram for itself, and no noise
// is added. So the result is known: a 1 for each report, and anything else is a report that
// was lost or doubled.
//
// After some runs both are stopped in order, `starling doctor` audits both stores, and the
// next runs have a new deployment. Everything is asked over HTTP and by commands, so that
// whatever keeps the data may stand behind it: -leader and -helper are lines that the
// configurations get, as for another engine.
//
// With -replicas leader and helper are several processes each, on a server of PostgreSQL of
// their own, behind something that spreads connections. Any of them is killed, one or more at
// once, and either server with all of its processes. With -objects the leader's uploads are
// larger, and most of them lie in object storage: in an S3 server in this process, or in a
// versitygw (-gateway), which test/objects builds.
//
//	go run ./test/kill -runs 20 -replicas 2 -objects
//
// The seed chooses who is killed and how long after; what a process is doing then, the
// machine does. The tool fails where a run does, and where the kills met nothing under way.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/test/internal/parties"
)

const (
	reports   = 240 // of a round, each in a bucket of its own
	atOnce    = 4   // requests under way
	largest   = 12  // reports of a request
	precision = 60  // seconds of a round
	patience  = 4 * time.Minute
)

// options are of all runs.
type options struct {
	binary, dir    string
	runs, each     int
	seed           uint64
	leader, helper string // lines of their configurations
	verbose        bool
	replicas       int    // processes of each; 0: one, with a store of its own
	objects        bool   // the leader's uploads lie in object storage
	gateway        string // the program that keeps them; empty: this one
}

// largest is how many reports a request has at most.
func (o *options) largest() int {
	if o.objects {
		return 90 // half a megabyte, of which a quarter becomes an object
	}
	return largest
}

func main() {
	var o options
	flag.StringVar(&o.binary, "starling", "", "the binary that plays leader and helper; built if not given")
	flag.IntVar(&o.runs, "runs", 20, "how many runs")
	flag.IntVar(&o.each, "each", 20, "how many of them one deployment has")
	flag.Uint64Var(&o.seed, "seed", 1, "of the first run; the next ones have those that follow")
	flag.StringVar(&o.leader, "leader", "", "lines that leader.toml begins with")
	flag.StringVar(&o.helper, "helper", "", "lines that helper.toml begins with")
	flag.IntVar(&o.replicas, "replicas", 0, "how many processes leader and helper have each, on PostgreSQL; default one, on the embedded engine")
	flag.BoolVar(&o.objects, "objects", false, "with -replicas: have uploads lie in object storage")
	flag.StringVar(&o.gateway, "gateway", "", "with -objects: the program versitygw, which keeps them in place of this one")
	flag.BoolVar(&o.verbose, "v", false, "print a line for each run")
	flag.Parse()
	if err := run(o); err != nil {
		log.Fatal(err)
	}
}

func run(o options) (err error) {
	if o.dir, err = os.MkdirTemp("", "starling-kill-"); err != nil {
		return err
	}
	if o.binary == "" {
		if o.binary, err = parties.Build(o.dir); err != nil {
			return err
		}
	}
	var all tally
	begin := time.Now()
	for first := 0; first < o.runs; first += o.each {
		if err := deployment(o, first, &all); err != nil {
			return fmt.Errorf("%w\nall of it is left in %s", err, o.dir)
		}
	}
	fmt.Printf("%d runs, %s\n%v\n", o.runs, time.Since(begin).Round(time.Second), &all)
	if o.runs >= 20 {
		err = all.check(o.replicas > 0)
	}
	return errors.Join(err, os.RemoveAll(o.dir))
}

// deployment has the runs from first on in a deployment of their own.
func deployment(o options, first int, all *tally) (err error) {
	dir := filepath.Join(o.dir, fmt.Sprint(first))
	task := account.Options{Name: "kill", Query: recipe.Histogram{Length: reports}, MinBatch: reports / 2, TimePrecision: precision}
	var p *parties.Pair
	if o.replicas > 0 {
		r := parties.Replicas{Each: o.replicas}
		if o.objects {
			s, err := newStorage(dir+".objects", o.gateway)
			if err != nil {
				return err
			}
			defer s.end()
			r.Objects = s.section
			defer func() {
				if all.objects += s.puts.Load(); err == nil && s.puts.Load() == 0 && o.gateway == "" {
					err = errors.New("no upload became an object")
				}
			}()
		}
		p, err = parties.StartReplicas(o.binary, dir, task, r)
	} else {
		p, err = parties.StartTask(o.binary, dir, task, func(role, text string) string {
			return map[string]string{"leader": o.leader, "helper": o.helper}[role] + "\n" + text
		})
	}
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		defer p.End()
		if stopped {
			return
		}
		for _, s := range p.All() {
			if b, _ := os.ReadFile(s.Config + ".log"); len(b) > 0 {
				log.Printf("the %s's log ends with\n%s", s.Role, b[max(0, len(b)-3000):])
			}
		}
		p.Stop()
	}()
	now := time.Now()
	for i := first; i < min(first+o.each, o.runs); i++ {
		r := newRun(p, o.largest(), o.seed+uint64(i), now.Truncate(precision*time.Second).Add(-time.Duration(i-first+1)*precision*time.Second))
		if err := r.play(); err != nil {
			return fmt.Errorf("seed %d: %w", o.seed+uint64(i), err)
		}
		if o.verbose {
			fmt.Printf("seed %d: %v\n", o.seed+uint64(i), &r.tally)
		}
		all.add(&r.tally)
	}
	if err := counts(p, min(o.each, o.runs-first)); err != nil {
		return err
	}
	stopped = true
	if err := p.Stop(); err != nil {
		return err
	}
	for _, s := range p.All() {
		if err := audit(o.binary, s.Config); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// counts holds what both say of all runs to what was sent.
func counts(p *parties.Pair, runs int) error {
	sent := uint64(runs * reports)
	for _, s := range p.Both() {
		st, err := s.Status()
		if err != nil {
			return err
		}
		c := st.Tasks[0].Counts
		for code, n := range c.Rejected {
			// A report that came again after its acknowledgement was lost.
			if n > 0 && code != dap.ReportReplayed.String() {
				return fmt.Errorf("the %s rejected %d reports: %s", s.Role, n, code)
			}
		}
		if c.Aggregated != sent || c.Collected != sent || c.Waiting != 0 {
			return fmt.Errorf("the %s aggregated %d and collected %d of %d reports, %d wait", s.Role, c.Aggregated, c.Collected, sent, c.Waiting)
		}
	}
	return nil
}

// audit has starling doctor look at the store of a party that is stopped. That the other
// party does not answer either is its only other finding.
func audit(binary, config string) error {
	out, err := exec.CommandContext(context.Background(), binary, "doctor", "--json", config).Output()
	var found struct {
		Findings []struct {
			Check, Found string
			OK           bool
		}
	}
	if err2 := json.Unmarshal(out, &found); err2 != nil {
		return fmt.Errorf("doctor %s: %w, %w", config, err, err2)
	}
	audited := false
	for _, f := range found.Findings {
		audited = audited || f.Check == "store" || f.Check == "database"
		if !f.OK && !strings.HasSuffix(f.Check, " answers") {
			return fmt.Errorf("doctor %s: %s: %s", config, f.Check, f.Found)
		}
	}
	if !audited {
		return fmt.Errorf("doctor %s looked at no store: %s", config, out)
	}
	return nil
}
