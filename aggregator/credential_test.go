package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/database"
)

const day = 86400

// An issued is the issuer beside an aggregator: a key for each epoch that it is asked for,
// until the test says otherwise.
type issued struct {
	role arc.Role

	mu   sync.Mutex
	keys map[uint64]*arc.PrivateKey
	gone map[uint64]bool // never made, or destroyed
	away error           // no key can be read
	lack map[uint64]bool // the key is not here, and elsewhere
	// how many credentials of an epoch were given out; most, where set, is said instead
	answered map[uint64]uint64
	most     *uint64
	told     error // how many there were is not said
	asked    int   // for keys
	why      map[aggregator.Uncredited]uint64
}

func (x *issued) key(epoch uint64) *arc.PrivateKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.keys[epoch] == nil {
		x.keys[epoch] = arc.GenerateKey()
	}
	return x.keys[epoch]
}

func (x *issued) context(deployment [32]byte, epoch uint64) arc.RequestContext {
	return arc.NewRequestContext(x.role, deployment, epoch, x.key(epoch).PublicKey().ID())
}

// Verifier implements [aggregator.Issuer].
func (x *issued) Verifier(_ context.Context, deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error) {
	x.mu.Lock()
	away, gone := x.away, x.gone[epoch]
	if x.lack[epoch] && away == nil {
		away = fmt.Errorf("the key of epoch %d is not in its directory", epoch)
	}
	x.asked++
	x.mu.Unlock()
	switch {
	case away != nil:
		return nil, arc.KeyID{}, away
	case gone:
		return nil, arc.KeyID{}, fmt.Errorf("%w: %d", aggregator.ErrNoIssuerKey, epoch)
	}
	k := x.key(epoch)
	return k.Verifier(x.context(deployment, epoch)), k.PublicKey().ID(), nil
}

// Issued implements [aggregator.Issuer].
func (x *issued) Issued(_ context.Context, deployment [32]byte, epoch uint64) (uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.told != nil:
		return 0, x.told
	case x.most != nil:
		return *x.most, nil
	}
	return x.answered[epoch], nil
}

// set changes what the issuer says of its keys.
func (x *issued) set(change func(*issued)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change(x)
}

func (x *issued) count(why aggregator.Uncredited, n uint64) {
	x.set(func(x *issued) { x.why[why] += n })
}

// counted is a pair whose reports show credentials, a round an hour and a key epoch a day.
type counted struct {
	*pair
	credentials *aggregator.Credentials
	issuers     map[dap.Role]*issued
}

func newCounted(t testing.TB, s setup) *counted {
	t.Helper()
	c := &counted{credentials: &aggregator.Credentials{Deployment: [32]byte{7}, Units: 1, Epoch: day}, issuers: map[dap.Role]*issued{}}
	for role, as := range map[dap.Role]arc.Role{dap.RoleLeader: arc.Leader, dap.RoleHelper: arc.Helper} {
		c.issuers[role] = &issued{role: as, keys: map[uint64]*arc.PrivateKey{}, gone: map[uint64]bool{}, answered: map[uint64]uint64{}, why: map[aggregator.Uncredited]uint64{}}
	}
	s.credentials = c.credentials
	s.leader = func(o *leader.Options) {
		o.Issuer, o.Observe.Uncredited = c.issuers[dap.RoleLeader], c.issuers[dap.RoleLeader].count
	}
	s.helper = func(o *helper.Options) {
		o.Issuer, o.Observe.Uncredited = c.issuers[dap.RoleHelper], c.issuers[dap.RoleHelper].count
	}
	c.pair = newPair(t, s)
	return c
}

// A holder has a credential of each issuer.
type holder map[dap.Role]*arc.Credential

// holder has both issuers issue, for the key epoch of now.
func (c *counted) holder() holder {
	c.t.Helper()
	_, epoch, err := c.credentials.Round(c.now(), precision)
	if err != nil {
		c.t.Fatal(err)
	}
	return holder{dap.RoleLeader: c.issue(dap.RoleLeader, epoch), dap.RoleHelper: c.issue(dap.RoleHelper, epoch)}
}

func (c *counted) issue(role dap.Role, epoch uint64) *arc.Credential {
	x := c.issuers[role]
	k := x.key(epoch)
	x.set(func(x *issued) { x.answered[epoch]++ })
	p := arc.NewPending(x.context(c.credentials.Deployment, epoch))
	return must(p.Finalize(k.PublicKey(), must(k.Respond(p.Request()))))
}

// presentation shows a credential to an aggregator in a round, bound to a share.
func (c *counted) presentation(credential *arc.Credential, role dap.Role, task dap.TaskID, round, epoch uint64, aad, payload []byte) []byte {
	x := c.issuers[role]
	base := arc.NewTagBase(arc.NewPresentationContext(x.role, task, round, x.key(epoch).PublicKey().ID()))
	return credential.Present(base, arc.Bind(x.role, aad, payload)).Append(nil)
}

// with is a private extension.
func with(data []byte) dap.Extensions {
	return must(dap.Extensions{}.With(dap.ExtPresentation, data))
}

// shows has a report show a holder's credentials in the round of its time.
func (c *counted) shows(h holder, at dap.Time) spoil {
	round, epoch, err := c.credentials.Round(at, precision)
	if err != nil {
		c.t.Fatal(err)
	}
	return spoil{Time: &at, Show: func(role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
		s.PrivateExtensions = with(c.presentation(h[role], role, c.id, round, epoch, aad, s.Payload))
	}}
}

// from is a report of a holder, now.
func (c *counted) from(h holder) dap.Report {
	c.t.Helper()
	return c.report(1, c.shows(h, c.now()))
}

// crowd are reports of as many holders of their own.
func (c *counted) crowd(n int) (list []dap.Report) {
	c.t.Helper()
	for range n {
		list = append(list, c.from(c.holder()))
	}
	return list
}

// agree demands that both aggregators have counted so many reports.
func (c *counted) agree(aggregated uint64) {
	c.t.Helper()
	if theirs := c.helperCounts().Aggregated; theirs != aggregated {
		c.t.Errorf("the helper has counted %d reports, want %d", theirs, aggregated)
	}
	c.audit()
}

// restart stops both aggregators and starts them again.
func (c *counted) restart() {
	c.t.Helper()
	if err := errors.Join(c.leader.Close(), c.helper.Close()); err != nil {
		c.t.Fatal(err)
	}
	c.startHelper()
	c.startLeader()
}

// TestCredentials: reports of devices with credentials are counted, each round anew, and
// collected.
func TestCredentials(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			c := newCounted(t, setup{mode: mode})
			same := c.holder()
			before := c.now() - 1
			c.accept(append(c.crowd(11), c.from(same), c.report(1, c.shows(same, before)))...)
			c.settled(13, nil)
			c.agree(13)
			if mode == dap.TimeInterval {
				if resp, sum := c.collect(c.query()); resp.ReportCount != 13 || sum[1] != 13 {
					t.Errorf("%d reports, %v", resp.ReportCount, sum)
				}
			}
		})
	}
}

// TestCredentialCountsOnce: a device has one report in a round, whichever of its two
// credentials it changes for the second, whether both come together, one after the other,
// in jobs at one time, or after a restart; leader and helper count the same, so that the
// batch is collected.
func TestCredentialCountsOnce(t *testing.T) {
	for name, second := range map[string]func(c *counted, h holder) holder{
		"both again": func(_ *counted, h holder) holder { return h },
		"another of the helper's": func(c *counted, h holder) holder {
			return holder{dap.RoleLeader: h[dap.RoleLeader], dap.RoleHelper: c.holder()[dap.RoleHelper]}
		},
		"another of the leader's": func(c *counted, h holder) holder {
			return holder{dap.RoleLeader: c.holder()[dap.RoleLeader], dap.RoleHelper: h[dap.RoleHelper]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCounted(t, setup{})
			c.accept(c.crowd(10)...)
			h := c.holder()
			c.accept(c.from(h), c.from(second(c, h))) // in one job
			c.settled(11, map[string]uint64{"report_replayed": 1})
			c.accept(c.from(second(c, h)))
			c.settled(11, map[string]uint64{"report_replayed": 2})
			c.restart()
			c.accept(c.from(second(c, h)))
			c.settled(11, map[string]uint64{"report_replayed": 3})
			c.agree(11)
			if got := c.issuers[dap.RoleLeader].why[aggregator.CredentialSpent] + c.issuers[dap.RoleHelper].why[aggregator.CredentialSpent]; got < 3 {
				t.Errorf("%d reports are told as spent, want 3 or more", got)
			}
			if resp, _ := c.collect(c.query()); resp.ReportCount != 11 {
				t.Errorf("%d reports are collected", resp.ReportCount)
			}
		})
	}
}

// TestCredentialInRacingJobs: a leader sends a device's reports in jobs at one time, and its
// helper counts one.
func TestCredentialInRacingJobs(t *testing.T) {
	c := newCounted(t, setup{})
	h := c.holder()
	bodies := make([][]byte, 4)
	for i := range bodies {
		bodies[i] = c.initReq(c.kit.Inits(c.from(c.holder()), c.from(h)), nil)
	}
	answers := make([]answer, len(bodies))
	var wg sync.WaitGroup
	for i, body := range bodies {
		wg.Go(func() { answers[i] = c.postInit(body) })
	}
	wg.Wait()
	kept := 0
	for _, a := range answers {
		switch resp := c.resps(a)[1]; {
		case resp.Type == dap.Continue:
			kept++
		case resp.Error != dap.ReportReplayed:
			t.Errorf("%v %v", resp.Type, resp.Error)
		}
	}
	if kept != 1 {
		t.Errorf("%d of the device's reports are counted", kept)
	}
	c.agree(5)
}

// TestCredentialSurvivesCrashes: a report whose mark is spent when an aggregator crashes is
// counted after it, once, and the mark is still its own.
func TestCredentialSurvivesCrashes(t *testing.T) {
	for _, at := range []string{leader.FailBeforeSend, leader.FailAfterSend, leader.FailBeforeCommit, leader.FailAfterCommit,
		helper.FailBeforeCommit, helper.FailAfterCommit} {
		t.Run(at, func(t *testing.T) {
			c := newCounted(t, setup{})
			fp := new(aggregator.Failpoints)
			c.leaderOpt.Failpoints, c.helperOpt.Failpoints = fp, fp
			c.restart()
			h := c.holder()
			c.accept(append(c.crowd(9), c.from(h))...)
			struck := false
			fp.Arm(at, 0, func() error { struck = true; return errors.New("crash") })
			for range 20 {
				_, _ = c.leader.Step(context.Background()) // it fails, and what waits is repeated
				_, _ = c.helper.Step(context.Background())
			}
			fp.Disarm(at)
			if !struck {
				t.Fatal("nothing failed")
			}
			c.restart()
			c.clock.advance(2 * time.Minute) // what failed is tried again
			c.settled(10, nil)
			c.accept(c.from(h))
			c.settled(10, map[string]uint64{"report_replayed": 1})
			c.agree(10)
		})
	}
}

// TestCredentialRefused: what is no credential of the device, the round, the task, the
// aggregator or the report is refused by the aggregator that it is for, and never counted;
// and a stranger's flood leaves the others' batch as it is.
func TestCredentialRefused(t *testing.T) {
	type change func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare)
	both := func(make func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte) change {
		return func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
			s.PrivateExtensions = with(make(c, role, aad, s))
		}
	}
	now := func(c *counted) (round, epoch uint64) {
		round, epoch, err := c.credentials.Round(c.now(), precision)
		if err != nil {
			c.t.Fatal(err)
		}
		return round, epoch
	}
	other := map[dap.Role]dap.Role{dap.RoleLeader: dap.RoleHelper, dap.RoleHelper: dap.RoleLeader}
	for name, x := range map[string]struct {
		spoil change
		why   aggregator.Uncredited
		code  string
	}{
		"none": {func(_ *counted, _ dap.Role, _ []byte, s *dap.PlaintextInputShare) {
			s.PrivateExtensions = dap.Extensions{}
		},
			aggregator.CredentialAbsent, "invalid_message"},
		"empty": {both(func(*counted, dap.Role, []byte, *dap.PlaintextInputShare) []byte { return nil }), aggregator.CredentialMalformed, "invalid_message"},
		"zeros": {both(func(*counted, dap.Role, []byte, *dap.PlaintextInputShare) []byte {
			return make([]byte, arc.PresentationSize)
		}),
			aggregator.CredentialMalformed, "invalid_message"},
		"another beside it": {func(_ *counted, _ dap.Role, _ []byte, s *dap.PlaintextInputShare) {
			s.PrivateExtensions = must(s.PrivateExtensions.With(dap.ExtPresentation+1, nil))
		}, "", "unsupported_extension"},
		"a bit": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			data, _ := s.PrivateExtensions.Get(dap.ExtPresentation)
			data[len(data)-1] ^= 1
			return data
		}), aggregator.CredentialProof, "invalid_message"},
		"of the round before": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			return c.presentation(c.holder()[role], role, c.id, round-1, epoch, aad, s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
		"of another epoch": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			return c.presentation(c.issue(role, epoch-1), role, c.id, round, epoch-1, aad, s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
		"of another task": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			return c.presentation(c.holder()[role], role, dap.TaskID{1}, round, epoch, aad, s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
		"for the other aggregator": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			role = other[role]
			return c.presentation(c.holder()[role], role, c.id, round, epoch, aad, s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
		"bound to another share": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			return c.presentation(c.holder()[role], role, c.id, round, epoch, aad, append([]byte{1}, s.Payload...))
		}), aggregator.CredentialProof, "invalid_message"},
		"bound to another report": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			return c.presentation(c.holder()[role], role, c.id, round, epoch, append([]byte{1}, aad...), s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
		"of a stranger's key": {both(func(c *counted, role dap.Role, aad []byte, s *dap.PlaintextInputShare) []byte {
			round, epoch := now(c)
			k, issuer := arc.GenerateKey(), c.issuers[role]
			p := arc.NewPending(issuer.context(c.credentials.Deployment, epoch))
			credential := must(p.Finalize(k.PublicKey(), must(k.Respond(p.Request()))))
			return c.presentation(credential, role, c.id, round, epoch, aad, s.Payload)
		}), aggregator.CredentialProof, "invalid_message"},
	} {
		// The other aggregator is shown a good one.
		for _, at := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			t.Run(fmt.Sprintf("%s/%v", name, at), func(t *testing.T) {
				c := newCounted(t, setup{})
				var bad []dap.Report
				for range 3 {
					good := c.shows(c.holder(), c.now())
					bad = append(bad, c.report(1, spoil{Time: good.Time, Show: func(role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
						if good.Show(role, aad, s); role == at {
							x.spoil(c, role, aad, s)
						}
					}}))
				}
				code := x.code
				if code == "unsupported_extension" {
					code = c.dialect.Said(dap.UnsupportedExtension).String()
				}
				c.accept(append(c.crowd(10), bad...)...)
				c.settled(10, map[string]uint64{code: 3})
				c.agree(10)
				want := map[aggregator.Uncredited]uint64{}
				if x.why != "" {
					want[x.why] = 3
				}
				if got := c.issuers[at].why; !maps.Equal(got, want) {
					t.Errorf("told as %v, want %v", got, want)
				}
				if resp, _ := c.collect(c.query()); resp.ReportCount != 10 {
					t.Errorf("%d reports are collected", resp.ReportCount)
				}
			})
		}
	}
}

// TestCredentialForged: a leader that mints for its own side, and takes a device's share for
// the helper, gets no report past the helper: not under another id or time, not beside
// another share, and no second one.
func TestCredentialForged(t *testing.T) {
	c := newCounted(t, setup{})
	honest, another := c.from(c.holder()), c.from(c.holder())
	swapped := honest
	swapped.Helper = another.Helper
	renamed := honest
	renamed.Metadata.ID[0] ^= 1
	moved := honest
	moved.Metadata.Time--
	alone := c.report(1, spoil{Show: func(role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
		if role == dap.RoleLeader { // it mints its own, and has none of the helper's
			c.shows(c.holder(), c.now()).Show(role, aad, s)
		}
	}})
	for name, x := range map[string]struct {
		report dap.Report
		code   dap.ReportError
	}{
		"another's share":        {swapped, dap.HpkeDecryptError},
		"under another id":       {renamed, dap.HpkeDecryptError},
		"under another time":     {moved, dap.HpkeDecryptError},
		"made by a leader alone": {alone, dap.InvalidMessage},
	} {
		init := c.kit.Inits(x.report)
		if resp := c.resps(c.postInit(c.initReq(init, nil)))[0]; resp.Type != dap.Reject || resp.Error != x.code {
			t.Errorf("%s: %v %v, want %v", name, resp.Type, resp.Error, x.code)
		}
	}
	c.agree(0)
	// A bad first step at the leader burns nothing: the device's report still counts.
	spoiled := c.kit.Inits(honest)
	spoiled[0].Payload[len(spoiled[0].Payload)-1] ^= 1
	if resp := c.resps(c.postInit(c.initReq(spoiled, nil)))[0]; resp.Error != dap.VDAFVerifyError {
		t.Errorf("a spoiled proof: %v %v", resp.Type, resp.Error)
	}
	c.anew()
	if resp := c.resps(c.postInit(c.initReq(c.kit.Inits(honest), nil)))[0]; resp.Type != dap.Continue {
		t.Errorf("the honest report: %v %v", resp.Type, resp.Error)
	}
	c.agree(1)
}

// TestCredentialForgedByHelper: a helper that mints for its own side, and uploads as a device
// does, gets no report past the leader.
func TestCredentialForgedByHelper(t *testing.T) {
	c := newCounted(t, setup{})
	forged := c.report(1, spoil{Show: func(role dap.Role, aad []byte, s *dap.PlaintextInputShare) {
		if role == dap.RoleHelper {
			c.shows(c.holder(), c.now()).Show(role, aad, s)
		}
	}})
	c.accept(forged, c.from(c.holder()))
	c.settled(1, map[string]uint64{"invalid_message": 1})
	c.agree(1)
}

// TestCredentialKeys: where an issuer's keys cannot be read reports wait, and none is
// refused for it; where there is none of their epoch they are refused; and a task whose
// reports show credentials is not taken without an issuer.
func TestCredentialKeys(t *testing.T) {
	for _, at := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(at.String(), func(t *testing.T) {
			c := newCounted(t, setup{})
			x := c.issuers[at]
			x.set(func(x *issued) { x.away = errors.New("the disk is slow") })
			c.accept(c.crowd(10)...)
			for range 3 {
				_, _ = c.leader.Step(context.Background()) // which fails
			}
			if n := c.counts(); n.Aggregated != 0 || len(n.Rejected) != 0 || n.Waiting != 10 {
				t.Errorf("%+v", n)
			}
			x.set(func(x *issued) { x.away = nil })
			c.clock.advance(2 * time.Minute)
			c.settled(10, nil)
			_, epoch, err := c.credentials.Round(c.now(), precision)
			if err != nil {
				t.Fatal(err)
			}
			late := c.from(c.holder())
			x.set(func(x *issued) { x.gone[epoch] = true })
			c.accept(late)
			c.settled(10, map[string]uint64{"invalid_message": 1})
			if x.why[aggregator.CredentialEpoch] != 1 {
				t.Errorf("told as %v", x.why)
			}
			c.agree(10)

			o := c.leaderOpt
			o.Issuer = nil
			if l, err := leader.New(context.Background(), o); err == nil {
				l.Close()
				t.Error("a leader without an issuer takes a task whose reports show credentials")
			}
		})
	}
}

// TestDamagedMarks: where a mark is gone from the store of either, no report of the round is
// counted until the key has gone, then none is; and other rounds go on.
func TestDamagedMarks(t *testing.T) {
	for side, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(role.String(), func(t *testing.T) {
			c := newCounted(t, setup{})
			twice := c.holder()
			c.accept(append(c.crowd(9), c.from(twice))...)
			c.settled(10, nil)
			l, h := c.stopped()
			mem := []*disktest.Mem{l, h}[side]
			c.change(mem, "DELETE FROM run WHERE round IS NOT NULL")
			c.onDisks(l, h)
			half := c.holder()
			half[role] = twice[role]
			c.accept(c.from(half)) // which nobody would know
			for range 3 {
				c.clock.advance(time.Minute)
				c.work()
			}
			if n := c.counts(); n.Aggregated != 10 || n.Waiting != 1 || len(n.Rejected) != 0 {
				t.Errorf("%+v, want one report to wait", n)
			}
			if !strings.Contains(c.log.String(), "the marks of a round are not what was written") {
				t.Error("no log says so")
			}
			faults, err := []interface {
				Audit(context.Context) ([]string, error)
			}{c.leader, c.helper}[side].Audit(c.ctx)
			if err != nil || len(faults) != 1 || !strings.Contains(faults[0], "are not what was written: there are 0, and were 10") {
				t.Errorf("the audit says %q, %v", faults, err)
			}
			_, epoch, err := c.credentials.Round(c.now(), precision)
			if err != nil {
				t.Fatal(err)
			}
			c.clock.advance(time.Hour)
			c.accept(c.crowd(4)...)
			for range 3 {
				c.clock.advance(time.Minute)
				c.work()
			}
			if n := c.counts(); n.Aggregated != 14 || n.Waiting != 1 {
				t.Errorf("%+v, want the other round to go on", n)
			}
			c.issuers[role].set(func(x *issued) { x.gone[epoch] = true })
			c.clock.advance(time.Hour)
			c.settled(14, map[string]uint64{"invalid_message": 1})
			c.agree(14)
		})
	}
}

// change runs a statement on a store that is not open.
func (c *counted) change(mem *disktest.Mem, statement string) {
	c.t.Helper()
	db, err := database.Open(database.Options{
		FS: mem, Name: "store.db", Migrations: os.DirFS("internal/store/sqlite/migrations"),
		Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: change\n" + statement)}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	err = db.Update(c.ctx, "change", func(tx *database.Tx) error {
		_, err := tx.Exec("change")
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// spent stops both, counts the marks in runs, at leader and helper, and starts them again.
func (c *counted) spent() (n [2]int) {
	c.t.Helper()
	l, h := c.stopped()
	defer c.onDisks(l, h)
	for side, mem := range []*disktest.Mem{l, h} {
		db, err := database.Open(database.Options{
			FS: diskOf(c.t, content(c.t, mem, ".")), Name: "store.db", Migrations: os.DirFS("internal/store/sqlite/migrations"),
			Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: spent\nSELECT coalesce(sum(ids), 0) FROM run WHERE round IS NOT NULL")}},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		err = db.View(c.ctx, "spent", func(tx *database.Tx) error {
			_, err := tx.One("spent", nil, &n[side])
			return err
		})
		if err = errors.Join(err, db.Close()); err != nil {
			c.t.Fatal(err)
		}
	}
	return n
}

// TestMarksGoWithTheKey: what credentials have shown is kept for as long as the key of their
// epoch, which may be away for a while, and not for longer, while the task goes on.
func TestMarksGoWithTheKey(t *testing.T) {
	c := newCounted(t, setup{})
	c.accept(c.crowd(10)...)
	c.settled(10, nil)
	_, epoch, err := c.credentials.Round(c.now(), precision)
	if err != nil {
		t.Fatal(err)
	}
	c.clock.advance(day * time.Second)
	c.accept(c.crowd(3)...)
	c.settled(13, nil)
	both := func(change func(*issued)) {
		for _, x := range c.issuers {
			x.set(change)
		}
		for range 3 { // minutes
			c.clock.advance(time.Minute)
			c.step()
		}
	}
	both(func(x *issued) { x.away = errors.New("the disk is slow") })
	if n := c.spent(); n != [2]int{13, 13} {
		t.Fatalf("%d marks while no key can be read, want 13 at each", n)
	}
	both(func(x *issued) { x.away = nil })
	if n := c.spent(); n != [2]int{13, 13} {
		t.Fatalf("%d marks while both keys are there, want 13 at each", n)
	}
	both(func(x *issued) { x.gone[epoch] = true })
	if n := c.spent(); n != [2]int{3, 3} {
		t.Errorf("%d marks, want the 3 of the key that is left", n)
	}
	c.restart()
	c.audit()
	c.agree(13)
}
