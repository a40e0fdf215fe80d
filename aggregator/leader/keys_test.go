package leader

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// ahead is the machine's clock, put forward.
type ahead struct{ by atomic.Int64 }

func (c *ahead) Now() time.Time                      { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *ahead) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

// TestReportsInTheLogKeepTheirKey: what was acknowledged and never sorted keeps its key,
// also in the life after a loss of power; and so does an upload under way, whose reports
// are nowhere yet.
func TestReportsInTheLogKeepTheirKey(t *testing.T) {
	collector, err := sealed.Generate(9, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("x"), Leader: []byte("https://leader.example/"), Helper: []byte("https://helper.example/"),
		TimePrecision: 3600, MinBatchSize: 1, BatchMode: dap.TimeInterval, VDAFType: dap.TypePrio3Count,
	})
	if err != nil {
		t.Fatal(err)
	}
	clock, mem := new(ahead), disktest.NewMem(1)
	o := Options{Options: aggregator.Options{
		Base: "https://leader.example/", FS: mem, Record: disktest.NewMem(2), Clock: clock, KeySchedule: &keyset.Schedule{Period: time.Hour, MaxAge: time.Hour},
		Tasks: []aggregator.Task{{
			Config: cfg.Bytes(), VerifyKeys: map[uint8][32]byte{0: {}}, PeerToken: "the leader at the helper",
			CollectorToken: "the collector at the leader", CollectorHPKE: dap.NewHpkeConfig(collector), Noise: noise.Zero{},
		}},
	}}
	begin := func() *Leader {
		t.Helper()
		l, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := begin()
	defer func() { l.Close() }()
	id := l.keys.Keyring().Keys()[0].ID()
	keys := func() status.Key {
		t.Helper()
		if _, err := l.stepKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, k := range l.keys.Status() {
			if k.ID == id {
				return k
			}
		}
		return status.Key{}
	}
	// An upload opens nothing, so that these bytes are as good as any.
	at, err := cfg.TimePrecision.At(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ct := dap.HpkeCiphertext{ConfigID: id, Enc: []byte{1}, Payload: []byte{2}}
	body, err := dap.AppendUploadRequest(nil, []dap.Report{
		{Metadata: dap.ReportMetadata{Time: at}, Leader: ct, Helper: ct},
	})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest("POST", "/"+dap.CreationPath(cfg.TaskID(), dap.ReportsResource), bytes.NewReader(body))
	req.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	w := httptest.NewRecorder()
	l.Handler().ServeHTTP(w, req)
	if w.Code != http.StatusOK || w.Body.Len() > 0 {
		t.Fatalf("upload: status %d %q", w.Code, w.Body)
	}
	upload := l.keys.Accepting() // of another, which takes its time
	clock.by.Store(int64(time.Hour))
	keys()
	clock.by.Store(int64(4 * time.Hour))
	if k := keys(); k.State != status.KeyRetiring || !strings.Contains(k.Why, "under way") {
		t.Errorf("beside an upload: %+v", k)
	}
	mem.Cut()
	l.Close()
	mem = mem.Crash()
	o.FS = mem
	upload.Release()
	l = begin()
	if s := l.intake.unnamed(); s.ClosedLogs != 1 {
		t.Fatalf("the report is not in a log: %+v", s)
	}
	if k := keys(); k.State != status.KeyRetiring || k.Why != "1 acknowledged reports are not folded yet" {
		t.Errorf("%+v", k)
	}
	// Once the job is set aside, as one that nobody can read is, nothing needs the key.
	for _, name := range must(t)(l.store.LiveFiles(t.Context())) {
		mem.Remove(name)
	}
	if _, err := l.stepJob(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k := keys(); k.State != status.KeyDestroyed {
		t.Errorf("%+v", k)
	}
}

func must(t *testing.T) func([]string, error) []string {
	return func(v []string, err error) []string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
