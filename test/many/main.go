// Command many measures what a number of live tasks costs a leader and a helper: how long
// each takes to start, the memory that it has then and after its traffic, the processor
// time that it needs when nothing happens, and the processor time a report. It makes the
// stores once and measures each figure in a process of its own. It prints the table of
// docs/bench/tasks.md, a line a number of tasks.
//
//	go run ./test/many -tasks 1,1000,100000
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Figures are those of one process.
type Figures struct {
	Start    time.Duration `json:"start"`
	StartCPU time.Duration `json:"start_cpu"`     // of it, what processors worked
	Started  int64         `json:"started_bytes"` // resident, when it was open
	Peak     int64         `json:"peak_bytes"`
	Idle     float64       `json:"idle"` // processors
	CPU      time.Duration `json:"cpu"`  // a report, of both together
	PerSec   float64       `json:"reports_per_second"`
	Reports  int           `json:"reports"`
	Touching int           `json:"touching"` // tasks that the reports are of
}

const (
	leaderURL = "https://leader.example/"
	helperURL = "https://helper.example/"
)

var (
	dir     = flag.String("dir", "", "where stores are made; a temporary directory if empty")
	tasks   = flag.String("tasks", "1,1000,100000", "numbers of live tasks")
	idle    = flag.Duration("idle", 30*time.Second, "how long nothing happens")
	reports = flag.Int("reports", 50_000, "reports of the traffic")
	touch   = flag.Int("touch", 1, "tasks that the traffic is of")
	config  = flag.Bool("configured", false, "give the tasks to each start, in place of the store's registry")
	profile = flag.String("profile", "", "file of a processor profile of one process")
	one     = flag.String("one", "", "what a process of its own measures: fill, leader, helper or both")
	number  = flag.Int("number", 0, "its number of tasks")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if *one != "" {
		f, err := measure(*one, *number)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(f)
	}
	if *dir == "" {
		d, err := os.MkdirTemp("", "many")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		*dir = d
	}
	fmt.Println("| tasks | role | start | processor time of it | resident after it | peak | idle, % of a core |")
	fmt.Println("|---|---|---|---|---|---|---|")
	var rates []string
	for text := range strings.SplitSeq(*tasks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if _, err := child("fill", n); err != nil {
			return err
		}
		for _, role := range []string{"leader", "helper"} {
			f, err := child(role, n)
			if err != nil {
				return err
			}
			fmt.Printf("| %d | %s | %.2f s | %.2f s | %d MB | %d MB | %.2f |\n", n, role, f.Start.Seconds(), f.StartCPU.Seconds(), f.Started>>20, f.Peak>>20, 100*f.Idle)
		}
		f, err := child("both", n)
		if err != nil {
			return err
		}
		rates = append(rates, fmt.Sprintf("| %d | %d | %d | %.1f µs | %.0f | %d MB |", n, f.Touching, f.Reports, float64(f.CPU.Nanoseconds())/1e3, f.PerSec, f.Peak>>20))
	}
	fmt.Println("\n| tasks | of them with traffic | reports | processor time a report, leader and helper | reports/s | peak of both |")
	fmt.Println("|---|---|---|---|---|---|")
	fmt.Println(strings.Join(rates, "\n"))
	return nil
}

// child measures in a process of its own.
func child(what string, n int) (f Figures, err error) {
	args := []string{"-one", what, "-number", strconv.Itoa(n), "-dir", filepath.Join(*dir, strconv.Itoa(n)), "-idle", idle.String(),
		"-reports", strconv.Itoa(*reports), "-touch", strconv.Itoa(*touch), fmt.Sprintf("-configured=%t", *config)}
	if *profile != "" {
		args = append(args, "-profile", *profile+"."+what+"."+strconv.Itoa(n))
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("%s of %d tasks: %w", what, n, err)
	}
	return f, json.Unmarshal(out, &f)
}

// kit is a task and what its parties know; all tasks have the same keys.
type kit struct{ *aggregatortest.Task }

func newKit(n int) (*kit, error) {
	count, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		Leader: []byte(leaderURL), Helper: []byte(helperURL), TimePrecision: 3600, MinBatchSize: 100, BatchMode: dap.TimeInterval,
		VDAFType: dap.TypePrio3Count, TaskInfo: binary.BigEndian.AppendUint32(nil, uint32(n)),
	})
	if err != nil {
		return nil, err
	}
	t := &aggregatortest.Task{Config: count, ID: count.TaskID(), VerifyKey: sha256.Sum256([]byte("verify"))}
	for i, k := range []**sealed.KeyPair{&t.Leader, &t.Helper, &t.Collector} {
		if *k, err = key(i); err != nil {
			return nil, err
		}
	}
	t.VDAF, err = count.VDAF()
	return &kit{t}, err
}

// keys are those of the parties, the same in all processes.
var keys [3]*sealed.KeyPair

func key(i int) (k *sealed.KeyPair, err error) {
	if keys[i] != nil {
		return keys[i], nil
	}
	file := filepath.Join(*dir, strconv.Itoa(i)+".key")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if k, err = sealed.Generate(uint8(i+1), sealed.SuiteX25519); err != nil {
			return nil, err
		}
		if b, err = k.Marshal(); err != nil {
			return nil, err
		}
		if err = os.MkdirAll(*dir, 0o700); err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
	}
	if err == nil {
		keys[i], err = sealed.ParseKeyPair(b)
	}
	return keys[i], err
}

// provide makes a task again.
func provide(_ context.Context, _ aggregator.Form, made, _ []byte) (t aggregator.Task, err error) {
	c, err := dap.ReadTaskConfiguration(dap.Draft18, made)
	if err != nil {
		return t, err
	}
	k, err := newKit(int(binary.BigEndian.Uint32(c.TaskInfo)))
	if err != nil {
		return t, err
	}
	return k.Aggregator(), nil
}

// options are those of one role with n tasks.
func options(role string, n int, fill bool) (o aggregator.Options, closeAll func(), err error) {
	var open []*disk.OSFS
	closeAll = func() {
		for _, f := range open {
			f.Close()
		}
	}
	for _, into := range []*aggregator.FS{&o.FS, &o.Record} {
		name := filepath.Join(*dir, role)
		if into == &o.Record {
			name += ".record"
		}
		f, err := aggregator.Dir(name)
		if err != nil {
			return o, closeAll, err
		}
		open, *into = append(open, f), f
	}
	o.Base = map[string]string{"leader": leaderURL, "helper": helperURL}[role]
	first, err := newKit(0)
	if err != nil {
		return o, closeAll, err
	}
	own := first.Leader
	if role == "helper" {
		own = first.Helper
	}
	if o.Keys, err = sealed.NewKeyring(own); err != nil {
		return o, closeAll, err
	}
	o.Provide = provide
	if !fill && !*config {
		return o, closeAll, nil
	}
	for i := range n {
		k, err := newKit(i)
		if err != nil {
			return o, closeAll, err
		}
		if *config {
			o.Tasks = append(o.Tasks, k.Aggregator())
			continue
		}
		o.Import = append(o.Import, aggregator.Provision{
			Task: k.Aggregator(), Form: aggregator.Configuration, Made: k.Config.Bytes(), Terms: []byte("{}"), Source: aggregator.Imported, By: "many",
		})
	}
	return o, closeAll, nil
}

func measure(what string, n int) (f Figures, err error) {
	roles := []string{what}
	if what == "fill" || what == "both" {
		roles = []string{"helper", "leader"}
	}
	var made [2]aggregator.Options
	for i, role := range roles {
		o, closeAll, err := options(role, n, what == "fill")
		if err != nil {
			return f, err
		}
		defer closeAll()
		made[i] = o
	}
	if *profile != "" {
		out, err := os.Create(*profile)
		if err != nil {
			return f, err
		}
		defer out.Close()
		if err := pprof.StartCPUProfile(out); err != nil {
			return f, err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	parties := &parties{}
	begin, worked := time.Now(), processor()
	for i, role := range roles {
		if err := parties.open(ctx, role, made[i]); err != nil {
			return f, err
		}
	}
	f.Start, f.StartCPU = time.Since(begin), processor()-worked
	made = [2]aggregator.Options{} // a configured task is in memory once
	if f.Started, err = resident("VmRSS"); err != nil {
		return f, err
	}
	defer func() {
		stop()
		err = errors.Join(err, parties.close())
		if err == nil {
			f.Peak, err = resident("VmHWM")
		}
	}()
	switch what {
	case "fill":
		return f, nil
	case "both":
		return f, parties.traffic(ctx, n, &f)
	}
	go parties.run(ctx)
	time.Sleep(5 * time.Second) // what a start leaves to be done
	before, begin := processor(), time.Now()
	time.Sleep(*idle)
	f.Idle = float64(processor()-before) / float64(time.Since(begin))
	return f, nil
}

// parties are those of one process.
type parties struct {
	leader *leader.Leader
	helper *helper.Helper
	ended  chan struct{}
}

func (p *parties) open(ctx context.Context, role string, o aggregator.Options) (err error) {
	if role == "helper" {
		p.helper, err = helper.New(ctx, helper.Options{Options: o})
		return err
	}
	p.leader, err = leader.New(ctx, leader.Options{Options: o, Transport: p, Agree: time.Minute})
	return err
}

// RoundTrip brings the leader's requests to the helper of the same process.
func (p *parties) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.helper == nil {
		return nil, errors.New("the helper is away")
	}
	w := httptest.NewRecorder()
	p.helper.Handler().ServeHTTP(w, r)
	return w.Result(), nil
}

func (p *parties) run(ctx context.Context) {
	p.ended = make(chan struct{})
	defer close(p.ended)
	if p.leader != nil {
		p.leader.Run(ctx)
	} else {
		p.helper.Run(ctx)
	}
}

func (p *parties) close() (err error) {
	if p.ended != nil {
		<-p.ended
	}
	if p.leader != nil {
		err = p.leader.Close()
	}
	if p.helper != nil {
		err = errors.Join(err, p.helper.Close())
	}
	return err
}

// traffic uploads reports and waits until all are verified.
func (p *parties) traffic(ctx context.Context, n int, f *Figures) error {
	count, err := prio3.NewCount(2)
	if err != nil {
		return err
	}
	f.Touching = min(*touch, n)
	const each = 500 // reports an upload
	now := dap.Time(time.Now().Unix() / 3600)
	var uploads []*http.Request
	for f.Reports = 0; f.Reports < *reports; f.Reports += each {
		k, err := newKit(f.Reports / each % f.Touching)
		if err != nil {
			return err
		}
		var list []dap.Report
		for range each {
			r, err := k.Report(now, func(ctx []byte, nonce *[16]byte) (*vdaf.Shares, error) { return count.Shard(ctx, true, nonce) }, aggregatortest.Spoil{})
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		body, err := dap.AppendUploadRequest(nil, list)
		if err != nil {
			return err
		}
		req := httptest.NewRequest("POST", leaderURL+"tasks/"+k.ID.Base64()+"/reports", strings.NewReader(string(body)))
		req.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
		uploads = append(uploads, req)
	}
	go p.run(ctx)
	before, begin := processor(), time.Now()
	for _, r := range uploads {
		w := httptest.NewRecorder()
		if p.leader.Handler().ServeHTTP(w, r); w.Code/100 != 2 {
			return fmt.Errorf("an upload: %d %s", w.Code, w.Body)
		}
	}
	for p.leader.Levels().Backlog > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(begin)
	f.CPU, f.PerSec = (processor()-before)/time.Duration(f.Reports), float64(f.Reports)/took.Seconds()
	return nil
}
