package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/sealed"
)

const (
	leaderURL = "https://leader.example/v1/"
	viaURL    = "http://127.0.0.1:1/inside/"
)

var uploadMedia = dap.ContentType(dap.MediaUploadReq)

func generate(t testing.TB, id uint8) *sealed.KeyPair {
	t.Helper()
	k, err := sealed.Generate(id, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// report is the encoding of a report whose id is n in its first byte.
func report(t testing.TB, n byte) []byte {
	t.Helper()
	sealedShare := dap.HpkeCiphertext{ConfigID: 1, Enc: []byte{1}, Payload: bytes.Repeat([]byte{n}, 40)}
	r := dap.Report{Metadata: dap.ReportMetadata{ID: dap.ReportID{n}, Time: 7}, Leader: sealedShare, Helper: sealedShare}
	b, err := dap.AppendUploadRequest(nil, []dap.Report{r})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fakeLeader is a target behind the gateway's transport.
type fakeLeader struct {
	answer func(n int, ids []byte, r *http.Request) (int, []byte) // n counts requests from 1

	mu       sync.Mutex // guards the rest
	requests [][]byte   // the first bytes of the ids of each request's reports, none for a probe
	bodies   [][]byte
	times    []time.Time // of the requests
	last     *http.Request
	more     chan struct{} // closed, and made anew, when a request has come
}

func (f *fakeLeader) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var ids []byte
	for report, err := range dap.Reports(body, nil) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, report.Metadata.ID[0])
	}
	f.mu.Lock()
	f.requests, f.bodies, f.times, f.last = append(f.requests, ids), append(f.bodies, body), append(f.times, time.Now()), r
	n := len(f.requests)
	if f.more != nil {
		close(f.more)
		f.more = nil
	}
	f.mu.Unlock()
	w := httptest.NewRecorder()
	status, content := 200, []byte(nil)
	if f.answer != nil {
		status, content = f.answer(n, ids, r)
	}
	if status == 0 {
		return nil, errors.New("no route to host")
	}
	if len(content) > 0 {
		w.Header().Set("Content-Type", "application/test")
	}
	w.Header().Set("Set-Cookie", "who=me")
	w.WriteHeader(status)
	w.Write(content)
	return w.Result(), nil
}

// seen are the requests that held reports.
func (f *fakeLeader) seen() (all [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ids := range f.requests {
		if len(ids) > 0 {
			all = append(all, ids)
		}
	}
	return all
}

// heard is when requests came.
func (f *fakeLeader) heard() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.times)
}

// await waits until so many reports have come, and returns the requests that they came in.
func (f *fakeLeader) await(t testing.TB, reports int) [][]byte {
	t.Helper()
	for {
		f.mu.Lock()
		n := 0
		for _, ids := range f.requests {
			n += len(ids)
		}
		if f.more == nil {
			f.more = make(chan struct{})
		}
		more := f.more
		f.mu.Unlock()
		if n >= reports {
			return f.seen()
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("the leader got %d reports, want %d", n, reports)
		}
	}
}

// bed is a running gateway with a fake leader.
type bed struct {
	*Gateway
	pair   *sealed.KeyPair
	leader *fakeLeader
	stop   func()
}

// start makes a gateway over fsys and runs it. Zero options take what suits a test.
func start(t testing.TB, o Options) *bed {
	t.Helper()
	b := &bed{leader: &fakeLeader{}}
	if o.FS == nil {
		o.FS = disktest.NewMem(1)
	}
	if o.Record == nil {
		o.Record = disk.Sub(o.FS, "record")
	}
	if o.Keys == nil {
		o.Keys = []Key{{Pair: generate(t, 1)}}
	}
	if o.Window == 0 {
		o.Window = time.Millisecond
	}
	if o.Targets == nil {
		o.Targets = []Target{{URL: leaderURL, Via: viaURL, Token: "a token of sixteen"}}
	}
	o.Protocol = uploads.DAP{}
	if o.Transport == nil {
		o.Transport = b.leader
	}
	b.pair = o.Keys[0].Pair
	var err error
	if b.Gateway, err = New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		for _, err := range []error{<-done, b.Close()} {
			if err != nil && !errors.Is(err, disk.ErrStateUnknown) && !errors.Is(err, disk.ErrLogFailed) &&
				!errors.Is(err, disktest.ErrPowerLoss) {
				t.Error(err)
			}
		}
	})
	t.Cleanup(b.stop)
	return b
}

// sealTo makes an encapsulated request of a message.
func sealTo(t testing.TB, k *sealed.KeyPair, m *ohttp.Request) ([]byte, *ohttp.ResponseOpener) {
	t.Helper()
	plain, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, opener, err := ohttp.Encapsulate(k.ID(), k.Public(), ohttp.Pad(plain, ohttp.MinRequest))
	if err != nil {
		t.Fatal(err)
	}
	return b, opener
}

var taskPath = "/v1/" + dap.CreationPath(dap.TaskID{5}, dap.ReportsResource)

// upload is a device's request with a body.
func upload(body []byte) *ohttp.Request {
	return &ohttp.Request{Method: "POST", Scheme: "https", Authority: "leader.example", Path: taskPath,
		Header: []ohttp.Field{{Name: "content-type", Value: uploadMedia}}, Content: body}
}

// cover is a device's request that holds nothing, as long as an upload of a body.
func cover(like []byte) *ohttp.Request {
	m := upload(make([]byte, len(like)))
	m.Method = ohttp.MethodCover
	return m
}

// bring hands an encapsulated request to the gateway, as the relay would.
func (b *bed) bring(request []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", bytes.NewReader(request))
	r.Header.Set("Content-Type", ohttp.RequestMedia)
	b.ServeHTTP(w, r)
	return w
}

// refusedAs says what an answer in the clear refuses with, or "".
func refusedAs(t testing.TB, w *httptest.ResponseRecorder) door.Reason {
	t.Helper()
	if w.Code == http.StatusOK {
		return ""
	}
	if w.Body.Len() != door.ProblemSize {
		t.Errorf("a refusal of %d bytes", w.Body.Len())
	}
	reason, ok := door.Read(w.Body)
	if !ok {
		t.Errorf("status %d without a reason", w.Code)
	}
	return reason
}

// ask brings a message and opens the answer.
func (b *bed) ask(t testing.TB, m *ohttp.Request) *ohttp.Response {
	t.Helper()
	request, opener := sealTo(t, b.pair, m)
	w := b.bring(request)
	if reason := refusedAs(t, w); reason != "" {
		t.Fatalf("refused: %s", reason)
	}
	return openAnswer(t, opener, w)
}

func openAnswer(t testing.TB, opener *ohttp.ResponseOpener, w *httptest.ResponseRecorder) *ohttp.Response {
	t.Helper()
	if want := ohttp.MinResponse + ohttp.ResponseOverhead(sealed.SuiteX25519); w.Body.Len() != want {
		t.Errorf("an answer of %d bytes, want %d", w.Body.Len(), want)
	}
	plain, err := opener.Open(w.Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := ohttp.ReadResponse(plain, ohttp.MessageLimits{})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
