package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fixture is a counting task and both aggregators' keys.
type fixture struct {
	tasks   [2]*task.Task // leader, helper
	keys    [2]*sealed.KeyPair
	reports []dap.Report
}

// newFixture makes n reports of measurement 1; every k-th of them is bad.
func newFixture(n, k int) *fixture {
	cfg := must(dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("x"), Leader: []byte("https://l.example/"), Helper: []byte("https://h.example/"),
		TimePrecision: 3600, MinBatchSize: 1, BatchMode: dap.TimeInterval, VDAFType: dap.TypePrio3Count,
	}))
	f := &fixture{keys: [2]*sealed.KeyPair{must(sealed.Generate(1, sealed.SuiteX25519)), must(sealed.Generate(2, sealed.SuiteX25519))}}
	opt := aggregator.Task{
		Config: cfg.Bytes(), VerifyKeys: map[uint8][32]byte{3: {1}}, PeerToken: "0123456789abcdef", CollectorToken: "0123456789abcdef",
		CollectorHPKE: dap.NewHpkeConfig(f.keys[0]), Noise: noise.Zero{},
	}
	f.tasks = [2]*task.Task{must(task.New(&opt, dap.RoleLeader)), must(task.New(&opt, dap.RoleHelper))}
	count := must(prio3.NewCount(2))
	for i := range n {
		var r dap.Report
		rand.Read(r.Metadata.ID[:])
		r.Metadata.Time = must(cfg.TimePrecision.At(time.Now()))
		nonce := [16]byte(r.Metadata.ID)
		s := must(count.Shard(cfg.Version.VDAFContext(cfg.TaskID()), true, &nonce))
		if k > 0 && i%k == 0 {
			s.Inputs[0][0] ^= 1
		}
		r.PublicShare = s.Public
		aad := dap.InputShareAAD(cfg.TaskID(), cfg.Bytes(), &r.Metadata, s.Public)
		cts := [2]*dap.HpkeCiphertext{&r.Leader, &r.Helper}
		for j, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			plain := must(dap.PlaintextInputShare{Payload: s.Inputs[j]}.Append(nil))
			*cts[j] = must(dap.Seal(dap.NewHpkeConfig(f.keys[j]), cfg.Version.InputShareInfo(role), aad, plain))
		}
		f.reports = append(f.reports, r)
	}
	return f
}

func (f *fixture) begin(p *Pool, role dap.Role, in []Report) (*Batch, error) {
	i := int(role - dap.RoleLeader)
	return p.Begin(context.Background(), Params{
		Task: f.tasks[i], Role: role, KeyID: 3, Keys: must(sealed.NewKeyring(f.keys[i])), Now: time.Now(), Skew: time.Minute,
	}, in)
}

// TestBatch takes several blocks through both sides, on one worker and on many: bad
// reports are refused, their neighbours counted, and Fold obeys its mask and its buckets.
func TestBatch(t *testing.T) {
	const n, k = 3*64 + 17, 7
	f := newFixture(n, k)
	for _, c := range []struct{ workers, held int }{{1, 1000}, {4, 1000}, {1, 1}, {4, 2}} {
		p := NewPool(c.workers, nil)
		f.tasks[0].Held, f.tasks[1].Held = c.held, c.held
		in := make([]Report, n)
		for i := range in {
			in[i].Share = f.reports[i].LeaderShare()
		}
		lb := must(f.begin(p, dap.RoleLeader, in))
		in = make([]Report, n)
		for i := range in {
			in[i] = Report{f.reports[i].HelperShare(), vdaf.AppendPingPongInitialize(nil, lb.Share(i))}
		}
		hb := must(f.begin(p, dap.RoleHelper, in))
		messages := make([][]byte, n)
		for i := range n {
			if bad := i%k == 0; bad != (hb.Errs[i] == dap.VDAFVerifyError) || !bad && hb.Errs[i] != 0 {
				t.Fatalf("report %d: %v", i, hb.Errs[i])
			}
			if hb.Errs[i] == 0 {
				messages[i] = append([]byte{}, hb.Message(i)...)
			}
		}
		if err := lb.Check(messages); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lb.Errs, hb.Errs) {
			t.Fatal("the two sides disagree")
		}
		for _, b := range []*Batch{lb, hb} {
			held := 0
			for i := range b.blocks {
				if b.blocks[i].state != nil {
					held++
				}
			}
			if held != min(c.held, len(b.blocks)) {
				t.Errorf("%d blocks of %d are held, want at most %d", held, len(b.blocks), c.held)
			}
		}
		keep, bucket := make([]bool, n), make([]int32, n)
		var want [3]int64
		for i := range n {
			keep[i], bucket[i] = i%2 == 0, int32(i%2+i%3/2) // bucket 2 needs an odd report: nothing is kept there
			if keep[i] && i%k != 0 {
				want[bucket[i]]++
			}
		}
		la, ha := must(lb.Fold(keep, bucket, 3)), must(hb.Fold(keep, bucket, 3))
		for b, w := range want {
			if w == 0 {
				if la[b] != nil || ha[b] != nil {
					t.Errorf("bucket %d: a share of nothing", b)
				}
				continue
			}
			got := must(f.tasks[0].VDAF.Unshard([]*vdaf.AggShare{la[b], ha[b]}))
			if got[0] != w {
				t.Errorf("bucket %d: %d, want %d", b, got[0], w)
			}
		}
		if want[2] != 0 || want[0] == 0 || want[1] == 0 {
			t.Fatalf("the test counts %v: it needs a bucket of nothing", want)
		}
		if got := lb.Rejected(); got[dap.VDAFVerifyError] != (n+k-1)/k || len(got) != 1 {
			t.Errorf("rejected %v", got)
		}
		lb.Close()
		hb.Close()
		hb.Close()
	}
}

// A batch that is too large to hold is computed again when it is committed; if that
// cannot be done, nothing is.
func TestKeysGoneBeforeFold(t *testing.T) {
	const n = 130
	f := newFixture(n, 0)
	f.tasks[0].Held = 1
	in := make([]Report, n)
	for i := range in {
		in[i].Share = f.reports[i].LeaderShare()
	}
	b := must(f.begin(NewPool(1, nil), dap.RoleLeader, in))
	defer b.Close()
	b.prm.Keys = must(sealed.NewKeyring(f.keys[1]))
	if aggs, err := b.Fold(slices.Repeat([]bool{true}, n), nil, 1); !errors.Is(err, ErrChanged) || aggs != nil {
		t.Errorf("%v, %v", aggs, err)
	}
	if err := b.Check(make([][]byte, n)); err != nil { // no message: all are refused, and none is computed again
		t.Error(err)
	}
}

func TestRefuseKeepsTheFirstVerdict(t *testing.T) {
	f := newFixture(2, 0)
	b := must(f.begin(NewPool(1, nil), dap.RoleLeader, []Report{{Share: f.reports[0].LeaderShare()}, {Share: f.reports[1].LeaderShare()}}))
	defer b.Close()
	b.Refuse(0, dap.ReportReplayed)
	b.Refuse(0, dap.ReportDropped)
	if b.Errs[0] != dap.ReportReplayed || b.Errs[1] != 0 {
		t.Errorf("%v", b.Errs)
	}
	if aggs := must(b.Fold([]bool{true, false}, nil, 1)); aggs[0] != nil {
		t.Error("a refused report was counted")
	}
}

func TestBeginStopsWithContext(t *testing.T) {
	f := newFixture(1, 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := NewPool(1, nil).Begin(ctx, Params{Task: f.tasks[0], Role: dap.RoleLeader, KeyID: 3, Keys: must(sealed.NewKeyring())},
		[]Report{{Share: f.reports[0].LeaderShare()}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestTurnIsWaitedFor: no block is worked on before it is the service's turn, and a batch is
// verified once it is.
func TestTurnIsWaitedFor(t *testing.T) {
	f := newFixture(70, 0)
	in := make([]Report, len(f.reports))
	for i := range in {
		in[i].Share = f.reports[i].LeaderShare()
	}
	prm := Params{Task: f.tasks[0], Role: dap.RoleLeader, KeyID: 3, Keys: must(sealed.NewKeyring(f.keys[0])), Now: time.Now(), Skew: time.Minute}
	synctest.Test(t, func(t *testing.T) {
		turns := aggregator.NewTurns(1)
		other, own := turns.Join(), turns.Join()
		end, done := make(chan struct{}), make(chan *Batch, 1)
		go other.Do(func() { <-end })
		synctest.Wait()
		p := NewPool(2, own)
		go func() { done <- must(p.Begin(t.Context(), prm, in)) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("it was verified in the turn of another")
		}
		close(end)
		b := <-done
		for i, code := range b.Errs {
			if code != 0 {
				t.Fatalf("report %d: %v", i, code)
			}
		}
		b.Close()
	})
}

// BenchmarkBegin is one report at the leader: HPKE opening, checks and the VDAF's first
// step.
func BenchmarkBegin(b *testing.B) {
	f := newFixture(512, 0)
	in := make([]Report, len(f.reports))
	for i := range in {
		in[i].Share = f.reports[i].LeaderShare()
	}
	p := NewPool(0, nil)
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(in) {
		must(f.begin(p, dap.RoleLeader, in)).Close()
	}
}
