package aggregator_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/daptest"
	"github.com/starling-agg/starling/vdaf"
)

// speaks is the dialect of this pass: what leader and helper of a test talk unless the
// test says otherwise.
var speaks dap.Dialect

// plan has the tests of this package run in the drafts of DAP, and framed as Janus frames.
var plan = daptest.Plan{
	Dialects: []dap.Dialect{{}, {Version: dap.Draft19}, {Framing: dap.Janus}},
	Only: map[string]int{
		"TestJanusWire":               2,
		"TestJanusBatches":            2,
		"TestJanusHostile":            2,
		"TestFramingMended":           2,
		"TestForeignTaskWithoutInfo":  1,
		"TestLeaderWithoutACommonKey": 1,
		"TestConformanceTable":        0,
		"TestWrongKeyIDHoldsTask":     0,
		// Of files, credentials and visits, whatever the messages are.
		"TestBitFlips":                    0,
		"TestDamageMatrix":                0,
		"TestKilledFirstStart":            0,
		"TestKilledRestore":               0,
		"TestVisitsAreNotLinkedToReports": 0,
		"TestBackupUnderWork":             0,
		"TestCollectionsAheadHideNoOther": 0,
		"TestCrashAtEveryFailpoint":       0,
		"TestCredentialRefused":           0,
		"TestCredentialSurvivesCrashes":   0,
		"TestDamagedDatabaseLog":          0,
		"TestDamagedMarks":                0,
		"TestDamagedRunIsMended":          0,
		"TestDataKeyLost":                 0,
		"TestDiskOverwhelmed":             0,
		"TestFullDisk":                    0,
		"TestGivenUpCrash":                0,
		"TestRestore":                     0,
		"TestRoundsCrash":                 0,
	},
}

func TestMain(m *testing.M) {
	code := daptest.Run(m, plan, func(d dap.Dialect, run func() int) int {
		speaks = d
		return run()
	})
	afterAll()
	os.Exit(code)
}

// TestLeaderWithoutACommonKey: where draft 19 lets the helper say that it holds no such
// verification key, the job is repeated, in sight of the operator, and counts once the
// key is there. (In draft 18 it is any malformed job.)
func TestLeaderWithoutACommonKey(t *testing.T) {
	keys := func(id uint8, o *helper.Options) {
		o.Tasks = slices.Clone(o.Tasks)
		o.Tasks[0].VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{id: o.Tasks[0].VerifyKeys[7]}
	}
	d := dap.Dialect{Version: dap.Draft19}
	var key [vdaf.VerifyKeySize]byte
	p := newPair(t, setup{dialect: &d, helper: func(o *helper.Options) {
		key = o.Tasks[0].VerifyKeys[7]
		keys(9, o)
	}})
	p.accept(p.reports(4)...)
	p.step()
	if c := p.counts(); c.Waiting != 4 || len(c.Rejected) != 0 {
		t.Errorf("counts %+v", c)
	}
	if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "verification key 7 (at the leader: ") {
		t.Errorf("why: %+v", why)
	}
	p.leader.Close()
	p.between(strangers) // who do not compare themselves
	p.startLeader()
	p.step()
	s := p.leaderTask()
	if len(s.Stuck) != 1 || s.Stuck[0].Quarantined || !strings.Contains(s.Stuck[0].Why, "verification key 7") {
		t.Errorf("stuck: %+v", s.Stuck)
	}
	if blocked := status.Why(s); len(blocked) == 0 || !strings.Contains(blocked[0].Blocks, "verification key 7") {
		t.Errorf("why: %+v", blocked)
	}
	p.between(nil)
	p.helper.Close()
	p.helperOpt.Tasks[0].VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{7: key}
	p.startHelper()
	p.clock.advance(time.Hour)
	p.settled(4, nil)
}

// TestForeignTaskWithoutInfo: a task that is nobody's recipe may leave task_info empty
// where its draft allows it, and works.
func TestForeignTaskWithoutInfo(t *testing.T) {
	d := dap.Dialect{Version: dap.Draft19}
	p := newPair(t, setup{dialect: &d, foreign: true})
	if len(p.cfg.TaskInfo) != 0 {
		t.Fatalf("task_info is %q", p.cfg.TaskInfo)
	}
	p.accept(p.reports(10)...)
	p.step()
	if resp, sum := p.collect(p.query()); resp.ReportCount != 10 || sum[0] != 2 {
		t.Errorf("%d reports, %v", resp.ReportCount, sum)
	}
	old := p.task
	old.Version = dap.Draft18
	if err := old.Validate(dap.RoleLeader); !errors.Is(err, dap.ErrMalformed) {
		t.Errorf("the same configuration in draft 18: %v", err)
	}
	framed := p.task
	framed.Framing = dap.Janus
	if err := framed.Validate(dap.RoleLeader); err == nil {
		t.Error("a framing that draft 19 does not have")
	}
}

// TestDraftsDoNotMix: a report that was made in one draft counts in no task of another,
// and the other side's draft is not guessed.
func TestDraftsDoNotMix(t *testing.T) {
	other := dap.Draft18
	if speaks.Version == other {
		other = dap.Draft19
	}
	p := newPair(t, setup{dialect: &dap.Dialect{Version: speaks.Version}})
	good, context := p.report(0, spoil{}), p.report(2, spoil{Context: other.VDAFContext(p.id)})
	p.kit.Dialect.Version = other
	sealed := p.report(1, spoil{})
	p.kit.Dialect.Version = speaks.Version
	// two good ones: were the drafts mistaken, one would count
	p.accept(good, p.report(3, spoil{}), context, sealed)
	p.settled(2, map[string]uint64{"hpke_decrypt_error": 1, "vdaf_verify_error": 1})

	// Leader and helper that take the task for one of two drafts find out before a report
	// is lost, and would agree on none if they did not.
	q := newPair(t, setup{dialect: &dap.Dialect{Version: speaks.Version}, helper: func(o *helper.Options) {
		o.Tasks = slices.Clone(o.Tasks)
		o.Tasks[0].Version = other
	}})
	q.accept(q.reports(3)...)
	q.step()
	if c := q.counts(); c.Waiting != 3 {
		t.Errorf("counts %+v", c)
	}
	q.leader.Close()
	q.between(strangers)
	q.startLeader()
	q.settled(0, map[string]uint64{"hpke_decrypt_error": 3})
}
