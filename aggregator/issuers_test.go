//go:build postgres

package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// issuing is a pair whose helper is two processes on one database, each with the same
// issuer beside it.
type issuing struct {
	*counted
	both    [2]*replica
	issuers [2]*issuer.Issuer
	keys    [2]*disktest.Mem
	signer  *signed.Signer
	epoch   uint32
	orders  []*visit.Order
	ahead   [2]time.Duration // the clocks of the processes, of the pair's, which is the database's
}

// timed is a register whose database has the clock of the test.
type timed struct {
	issuer.Register
	clock *clock
}

func (x timed) Now(ctx context.Context) (time.Time, error) {
	_, err := x.Register.Now(ctx)
	return x.clock.Now(), err
}

// at has the leader come to a replica.
func (x *issuing) at(i int) {
	h := x.both[i].Handler()
	x.helperHandler.Store(&h)
}

// order is one of a device, which keeps the rest.
func (x *issuing) order() (*visit.Order, *arc.Pending) {
	x.t.Helper()
	p := arc.NewPending(x.counted.issuers[dap.RoleHelper].context(x.credentials.Deployment, uint64(x.epoch)))
	o := &visit.Order{Role: signed.Helper, Deployment: x.credentials.Deployment, Epoch: x.epoch, Request: [arc.RequestSize]byte(p.Request().Append(nil))}
	must(0, o.Sign(x.signer, x.clock.Now()))
	return o, p
}

// refused demands that an order is refused, in that word.
func (x *issuing) refused(i int, o *visit.Order, want string) {
	x.t.Helper()
	w := x.post(i, o)
	if w.status == http.StatusOK || !strings.Contains(w.body, want) {
		x.t.Errorf("status %d, %q, want %q", w.status, w.body, want)
	}
}

type posted struct {
	status int
	body   string
}

// post brings an order to the issuer at a replica.
func (x *issuing) post(i int, o *visit.Order) posted {
	x.t.Helper()
	b, _, err := x.issuers[i].Issue(context.Background(), o)
	if err != nil {
		return posted{http.StatusForbidden, err.Error()}
	}
	return posted{http.StatusOK, string(b)}
}

// device has a credential of either issuer, the helper's from a replica.
func (x *issuing) device(i int) holder {
	x.t.Helper()
	o, p := x.order()
	w := x.post(i, o)
	if w.status != http.StatusOK {
		x.t.Fatal(w.body)
	}
	x.orders = append(x.orders, o)
	r := must(arc.ReadCredentialResponse([]byte(w.body)))
	k := x.counted.issuers[dap.RoleHelper].key(uint64(x.epoch))
	return holder{dap.RoleLeader: x.issue(dap.RoleLeader, uint64(x.epoch)), dap.RoleHelper: must(p.Finalize(k.PublicKey(), r))}
}

func newIssuing(t *testing.T, most uint64) *issuing {
	t.Helper()
	schema, dir := pgtest.NewServer(t).Schema(t), t.TempDir() // which end after the pair
	x := &issuing{counted: newCounted(t, setup{})}
	now := x.clock.Now()
	x.epoch = uint32(now.Unix()/day) + 1
	begin := time.Unix(int64(x.epoch)*day, 0)
	x.clock.advance(begin.Add(-time.Hour).Sub(now))
	root := signed.Generate()
	x.signer = signedtest.Signer(t, root, now.AddDate(0, 0, -1), 30*24*time.Hour)
	x.keys = [2]*disktest.Mem{disktest.NewMem(41), disktest.NewMem(42)}
	deployment := x.credentials.Deployment
	public := must(issuer.MakeKey(x.keys[0], signed.Helper, deployment, x.epoch))
	files := disktest.FilesOf(t, x.keys[0])
	files.Put(t, x.keys[1])
	for _, b := range files {
		x.counted.issuers[dap.RoleHelper].keys[uint64(x.epoch)] = must(arc.ReadPrivateKey(b[len(b)-arc.PrivateKeySize:]))
	}
	x.both = x.replicas(schema, dir, func(i int, o *helper.Options) {
		register := must(database.OpenIssued(t.Context(), aggregator.Database{
			File: filepath.Join(dir, "service"), Schema: schema.Name, WrappingKeys: filepath.Join(dir, "wrapping")}, deployment))
		x.issuers[i] = must(issuer.New(issuer.Options{Role: signed.Helper, Deployment: deployment, Epoch: day * time.Second, Keys: x.keys[i], Shared: timed{register, x.clock},
			Now: func() time.Time { return x.clock.Now().Add(x.ahead[i]) },
			Terms: func(epoch uint32) (issuer.Terms, bool) {
				return issuer.Terms{Key: [arc.PublicKeySize]byte(public.Append(nil)), Attester: root.Public(), Cap: most, Begin: time.Unix(int64(epoch)*day, 0)}, epoch == x.epoch
			}}))
		t.Cleanup(func() { _ = x.issuers[i].Close() })
		o.Issuer = served{x.issuers[i]}
	})
	x.fetchKeys()
	return x
}

// TestReplicasIssue: a device may ask either of two processes, which answer as one, no more
// than the manifest says; either verifies what the other gave out and compares batches with
// how many both have; one that is down is missed by nobody, and whether an epoch has begun
// goes by the database's clock, whatever that of a process says.
func TestReplicasIssue(t *testing.T) {
	const devices = 12
	x := newIssuing(t, devices)
	var crowd []holder
	x.ahead = [2]time.Duration{3 * time.Hour, -3 * time.Hour} // one is in the epoch already
	for n := range devices {
		crowd = append(crowd, x.device(n%2))
	}
	late, _ := x.order()
	for i, issuer := range x.issuers {
		x.refused(i, late, "are answered")
		for _, o := range x.orders[:2] {
			if _, repeated, err := issuer.Issue(t.Context(), o); err != nil || !repeated {
				t.Errorf("a request again, at replica %d: %v, %v", i, repeated, err)
			}
		}
		if _, err := issuer.Count(t.Context(), x.epoch); err == nil {
			t.Errorf("replica %d has counted an epoch that has not begun", i)
		}
	}
	round := func(i int, list ...holder) {
		t.Helper()
		x.at(i)
		var reports []dap.Report
		for _, h := range list {
			reports = append(reports, x.from(h))
		}
		x.accept(reports...)
	}
	x.clock.advance(2 * time.Hour)
	round(0, crowd...)
	x.settled(devices, nil)
	round(1, crowd[0], crowd[1]) // at the other replica they count no second time
	x.settled(devices, map[string]uint64{"report_replayed": 2})
	must(0, x.issuers[0].Close()) // it is down
	if resp, sum := x.collect(dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: x.now(), Duration: 1}}}); resp.ReportCount != devices || sum[1] != devices {
		t.Errorf("%d reports, %v", resp.ReportCount, sum)
	}
	x.refused(1, late, "began at")
	x.clock.advance(-2 * time.Hour) // the database's, which another server took over
	x.refused(1, late, "are counted")
	x.clock.advance(3 * time.Hour)

	// One credential that neither gave out, of the key itself, and the batch is held.
	round(1, append(crowd, x.holder())...)
	x.settled(2*devices+1, map[string]uint64{"report_replayed": 2})
	x.ask(dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: x.now(), Duration: 1}}})
	x.step()
	s := must(x.helper.Status(t.Context()))
	if held := s.Tasks[0].Held; len(held) != 1 || held[0].Verdict != status.Forged || held[0].Devices == nil || *held[0].Devices != devices {
		t.Errorf("the helper holds %+v", held)
	}
}

// TestReplicasLackAnIssuersKey: a process that has not got the key of an epoch, or made
// another, refuses no report of it for good, while another has given credentials out; of
// an epoch of which none were given out, or whose key another has destroyed, it knows
// that nothing can hold.
func TestReplicasLackAnIssuersKey(t *testing.T) {
	x := newIssuing(t, 10)
	x.device(0)
	const next = 1
	must(issuer.MakeKey(x.keys[1], signed.Helper, x.credentials.Deployment, x.epoch+next))
	must(0, x.keys[1].Remove(fmt.Sprint(x.epoch, ".issuer")))
	other := served{x.issuers[1]}
	lacks := func(epoch uint32, gone bool) {
		t.Helper()
		if _, _, err := other.Verifier(t.Context(), x.credentials.Deployment, uint64(epoch)); err == nil || errors.Is(err, aggregator.ErrNoIssuerKey) != gone {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	lacks(x.epoch, false)
	lacks(x.epoch-1, true)
	must(issuer.MakeKey(x.keys[1], signed.Helper, x.credentials.Deployment, x.epoch)) // and it makes one of its own
	lacks(x.epoch, false)
	order, _ := x.order()
	if _, _, err := x.issuers[1].Issue(t.Context(), order); !errors.Is(err, issuer.ErrKey) {
		t.Errorf("with a key that the manifest does not name: %v", err)
	}
	must(0, x.keys[1].Remove(fmt.Sprint(x.epoch, ".issuer")))
	x.clock.advance(5 * day * time.Second)
	if last, any, err := x.issuers[0].Retire(t.Context()); err != nil || !any || last != x.epoch {
		t.Fatal(last, any, err)
	}
	lacks(x.epoch, true)
	if n, err := x.issuers[1].Count(t.Context(), x.epoch); err != nil || n != 1 {
		t.Errorf("%d devices, %v", n, err)
	}
}

// TestReplicasLeaveKeyless: jobs of an epoch whose issuer's key one leader lacks are left to
// the other, at once and whatever waits of them, and the one goes on with other epochs; it
// says which key it lacks, and has it as soon as it is there. A helper without it has its
// leader come again, and jobs of other epochs do not wait.
func TestReplicasLeaveKeyless(t *testing.T) {
	schema, dir := pgtest.NewServer(t).Schema(t), t.TempDir()
	c := newCounted(t, setup{})
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		must(0, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	d := aggregator.Database{File: write("owner", schema.Owner), Schema: schema.Name, Service: schema.Role}
	if _, _, err := database.Migrate(t.Context(), database.MigrateOptions{Database: d}); err != nil {
		t.Fatal(err)
	}
	must(database.AddWrappingKey(filepath.Join(dir, "wrapping"), time.Now()))
	must(0, c.leader.Close())
	lacks := &issued{role: arc.Leader, keys: c.issuers[dap.RoleLeader].keys, gone: map[uint64]bool{}, lack: map[uint64]bool{}, answered: map[uint64]uint64{}, why: map[aggregator.Uncredited]uint64{}}
	var both [2]*leader.Leader
	for i := range both {
		mem := disktest.NewMem(uint64(60 + i))
		o := c.leaderOpt
		o.FS, o.Record, o.Keys, o.KeySchedule = mem, recordOn(mem), nil, &keyset.Schedule{}
		o.Database = &aggregator.Database{File: write("service", schema.Service), Schema: schema.Name, Service: schema.Role, WrappingKeys: filepath.Join(dir, "wrapping"), Connections: 6}
		if i == 0 {
			o.Issuer = lacks
		}
		both[i] = must(leader.New(c.ctx, o))
	}
	t.Cleanup(func() { both[1].Close() })
	c.leader = both[0]
	h := both[0].Handler()
	c.leaderHandler.Store(&h)
	c.fetchKeys()
	steps := func(i, n int) {
		t.Helper()
		for range n {
			if _, err := both[i].Step(c.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	// hourly has devices report, as many an hour.
	hourly := func(hours, devices int) {
		for range hours {
			c.accept(c.crowd(devices)...)
			c.clock.advance(time.Hour)
		}
	}
	aggregated := func(want uint64) {
		t.Helper()
		if n := c.counts(); n.Aggregated != want || len(n.Rejected) != 0 {
			t.Errorf("%+v, want %d aggregated", n, want)
		}
	}
	_, epoch, err := c.credentials.Round(c.now(), precision)
	if err != nil {
		t.Fatal(err)
	}
	lacks.set(func(x *issued) { x.lack[epoch] = true })
	const hours = 3 // each a job of its own
	hourly(hours, 2)
	steps(0, 2*hours)
	if lacks.asked > hours {
		t.Errorf("the key was asked for %d times", lacks.asked)
	}
	aggregated(0)
	running, stop := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- both[0].Run(running) }()
	var words string
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		s := must(both[0].Status(c.ctx))
		if words = fmt.Sprint(s.Reasons()); strings.Contains(words, fmt.Sprintf("issuer's key of epoch %d", epoch)) {
			break
		}
	}
	if !strings.Contains(words, fmt.Sprintf("copy %d.issuer", epoch)) {
		t.Errorf("status says %s", words)
	}
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	steps(1, 3)
	aggregated(2 * hours)

	// Of the next epoch, at the one that lacks the key, while some of the first wait.
	late := c.crowd(3)
	c.accept(late...)
	steps(0, 1)
	c.clock.advance(day * time.Second)
	c.accept(c.crowd(4)...)
	steps(0, 3)
	aggregated(2*hours + 4)
	lacks.set(func(x *issued) { delete(x.lack, epoch) })
	c.clock.advance(11 * time.Second)
	steps(0, 1)
	aggregated(2*hours + 7)

	// The helper has not got the key of the epoch of now, and that of the next.
	_, epoch, err = c.credentials.Round(c.now(), precision)
	if err != nil {
		t.Fatal(err)
	}
	theirs := c.issuers[dap.RoleHelper]
	theirs.set(func(x *issued) { x.lack = map[uint64]bool{epoch: true} })
	hourly(6, 1)
	steps(0, 6)
	c.clock.advance(day * time.Second)
	c.accept(c.crowd(2)...)
	steps(0, 8)
	aggregated(2*hours + 9)
	theirs.set(func(x *issued) { x.lack = nil })
	c.clock.advance(time.Hour)
	steps(0, 8)
	aggregated(2*hours + 15)
}
