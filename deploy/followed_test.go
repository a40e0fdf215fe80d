package deploy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
)

// TestFollowedLog: an aggregator reads from the log, by the policy that devices have, what
// the owners of both issuers and the attester say. It starts and serves while the log is
// down, goes on with what was said, after a start too, and says so.
func TestFollowedLog(t *testing.T) {
	w := newCountedWorld(t)
	log, witness := tlogtest.New(t, "log.example"), tlogtest.Secret(t, "witness.example", tlog.CosignEd)
	var served atomic.Pointer[[]byte]
	remote := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if b := served.Load(); b != nil && r.URL.Path == "/bundle" {
			rw.Write(*b)
			return
		}
		http.Error(rw, "down", http.StatusServiceUnavailable)
	}))
	defer remote.Close()
	policy := fmt.Sprintf("log %s %s\nwitness w %s\nquorum w\n", log.Key.Key(), remote.URL, witness.Key())
	w.write("log.policy", policy)
	text, err := os.ReadFile(w.in(LeaderFile))
	if err != nil {
		t.Fatal(err)
	}
	with := func(more string) string {
		return strings.Replace(string(text), "manifests = \"manifests\"\n", "manifests = \"manifests\"\n"+more, 1)
	}
	w.write(LeaderFile, with("policy = \"log.policy\"\nanchors = \"anchors.starling\"\n"))
	open := func() *opened {
		t.Helper()
		c, err := LoadAggregator(w.in(LeaderFile), dap.RoleLeader)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		o, err := c.open(t.Context(), service.NewLogger(new(bytes.Buffer), 99), aggregator.Observer{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	published := func(o *opened) *status.Published {
		t.Helper()
		s, err := o.leader.Standing(t.Context())
		if err != nil || s.Published == nil {
			t.Fatalf("%+v, %v", s, err)
		}
		return s.Published
	}
	o := open()
	x := o.issuer.followed
	if p := published(o); p.Log != "log.example" || !p.Seen.IsZero() || p.Failing != "" || len(p.Epochs) > 0 {
		t.Errorf("before anything: %+v", p)
	}
	if err := x.Refresh(t.Context()); err == nil {
		t.Error("a log that is down was found good")
	}
	if p := published(o); p.Failing == "" || o.Levels().LogFailing != 1 || o.Readiness().Take.Reasons != nil {
		t.Errorf("down: %+v; %+v", p, o.Readiness())
	}
	now := time.Now()
	var places []int64
	for role, n := range map[signed.Role]uint64{signed.Leader: 7, signed.Helper: 8, signed.Attester: 5} {
		name := role.String()
		s, err := ReadSigner(service.Secret(w.in("secrets/"+name+".online")), w.in("secrets/"+name+".online.delegation"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := (&tlog.Cohort{Role: role, Epoch: w.next.Epoch, Devices: n}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := tlog.State(tlog.KindCohort, w.next.Deployment, b, s, now)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, log.Add(t, e))
	}
	active := log.Hold(t, now, now.Add(time.Hour), places...)
	b, err := log.Bundle(t, log.Sign(t, now, witness), active).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	served.Store(&b)
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	says := func(o *opened) {
		t.Helper()
		p := published(o)
		if len(p.Epochs) != 1 || p.Epochs[0].Epoch != w.next.Epoch || *p.Epochs[0].Leader != 7 || *p.Epochs[0].Helper != 8 || *p.Epochs[0].Attester != 5 || p.Seen.IsZero() {
			t.Fatalf("published %+v", p)
		}
		c := o.issuer.followed.Cohort(w.next.Deployment, uint64(w.next.Epoch))
		if n, whose, _ := c.Devices(); n != 5 || whose != "attester" || o.Levels().CohortAlarms != 1 {
			t.Errorf("%d of %s; levels %+v", n, whose, o.Levels())
		}
		for name, c := range map[string]status.Cohort{"another epoch": o.issuer.followed.Cohort(w.next.Deployment, uint64(w.next.Epoch)+1<<32),
			"another deployment": o.issuer.followed.Cohort([32]byte{}, uint64(w.next.Epoch))} {
			if _, _, ok := c.Devices(); ok {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	says(o)
	if p := published(o); p.Failing != "" || o.Levels().LogFailing != 0 {
		t.Errorf("up: %+v", p)
	}
	served.Store(nil)
	if err := x.Refresh(t.Context()); err == nil {
		t.Error("a log that is down was found good")
	}
	says(o)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	o = open()
	says(o)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}

	// As it runs: its own turn asks the log, and the end waits for it.
	served.Store(&b)
	c, err := LoadAggregator(w.in(LeaderFile), dap.RoleLeader)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1)
	hold := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done() // it never answers
	}))
	defer hold.Close()
	w.write("log.policy", strings.Replace(policy, remote.URL, hold.URL, 1))
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- service.Run(ctx, 0, func() { close(started) }, c.Parts(service.NewLogger(new(bytes.Buffer), 99), Listeners{Public: w.servers.Leader, Local: w.servers.LeaderLocal})...)
	}()
	<-started
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("nobody asks the log")
	}
	lines := strings.Split(string(get(t, "http://"+w.servers.LeaderLocal.Addr().String()+"/metrics")), "\n") // while the log is slow
	if got := value(lines, "starling_cohort_alarms"); got != "1" {
		t.Errorf("%q alarms", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	for text, want := range map[string]string{
		with("policy = \"log.policy\"\n"):                                       "issuer.policy, anchors: both are required, or none",
		with("policy = \"anchors.starling\"\nanchors = \"anchors.starling\"\n"): "issuer.policy: ",
		with("policy = \"bare.policy\"\nanchors = \"anchors.starling\"\n"):      "issuer.policy: it asks no witness",
		with("policy = \"lost.policy\"\nanchors = \"anchors.starling\"\n"):      "issuer.policy: it does not say where log.example is",
	} {
		w.write("bare.policy", fmt.Sprintf("log %s %s\nquorum none\n", log.Key.Key(), remote.URL))
		w.write("lost.policy", fmt.Sprintf("log %s\nwitness w %s\nquorum w\n", log.Key.Key(), witness.Key()))
		w.write("mixed.toml", text)
		wantFaults(t, CheckFile(w.in("mixed.toml"), time.Now()), want)
	}
}
