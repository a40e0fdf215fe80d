package attester

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// transport is both issuers, as far as the attester believes them anything.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func answering(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {visit.ResponseMedia}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(make([]byte, arc.ResponseSize)))}, nil
}

// oneCode makes attesters on one disk that know one code, and begin the epoch at a time.
func oneCode(t *testing.T, at *time.Time, begin time.Time, through transport, change func(*Options)) (code string, open func() *Attester) {
	t.Helper()
	codes, file, err := MakeCodes(1)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ReadCodes(file)
	if err != nil {
		t.Fatal(err)
	}
	fsys, root := disktest.NewMem(1), signed.Generate()
	return codes[0], func() *Attester {
		t.Helper()
		o := Options{Deployment: deployment, Signer: signedtest.Signer(t, root, now, time.Hour), Attestation: list, FS: fsys, Transport: through,
			Leader: "https://leader.example/issue", Helper: "https://helper.example/issue", Now: func() time.Time { return *at },
			Terms: func(uint32) (Terms, bool) { return Terms{Begin: begin, Cap: 10}, true }}
		if change != nil {
			change(&o)
		}
		a, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		return a
	}
}

// TestVisitOfOneWhoLeaves: a device that goes before its visit is on the disk has made
// none; what it is answered next is on the disk, so that after a start too it has made
// that one and no other. The same of an enrolment.
func TestVisitOfOneWhoLeaves(t *testing.T) {
	at := now
	code, open := oneCode(t, &at, now.Add(time.Hour), answering, nil)
	a := open()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	secret := [visit.SecretSize]byte{1}
	e := &visit.Enrolment{Secret: secret, Proof: []byte(code)}
	if err := a.Enrol(gone, e, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := a.Devices(); n != 0 {
		t.Errorf("%d devices are known of one that was not written down", n)
	}
	if err := a.Enrol(t.Context(), e, nil); err != nil {
		t.Fatal(err)
	}
	first, second := &visit.Visit{Deployment: deployment, Epoch: 7}, &visit.Visit{Deployment: deployment, Epoch: 7}
	first.Leader[0], second.Leader[0] = 'A', 'B'
	if _, _, err := a.Visit(gone, secret, first); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, repeated, err := a.Visit(t.Context(), secret, first); repeated || err != nil {
		t.Fatalf("repeated %v, %v", repeated, err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a = open()
		var refusal *Refusal
		if _, _, err := a.Visit(t.Context(), secret, second); !errors.As(err, &refusal) || refusal.Outcome != "second-visit" {
			t.Errorf("another visit after a start: %v", err)
		}
		if _, repeated, err := a.Visit(t.Context(), secret, first); !repeated || err != nil {
			t.Errorf("the visit that it made: repeated %v, %v", repeated, err)
		}
	}
}

// TestCountOutlivesVisits: how many were let ask is known when who they were is forgotten.
func TestCountOutlivesVisits(t *testing.T) {
	at := now
	code, open := oneCode(t, &at, now.Add(time.Minute), answering, nil)
	a := open()
	secret := [visit.SecretSize]byte{1}
	if err := a.Enrol(t.Context(), &visit.Enrolment{Secret: secret, Proof: []byte(code)}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Visit(t.Context(), secret, &visit.Visit{Deployment: deployment, Epoch: 7}); err != nil {
		t.Fatal(err)
	}
	at = now.Add(time.Hour)
	for range 2 {
		if err := a.Forget(7); err != nil {
			t.Fatal(err)
		}
		if n, err := a.Count(7); n != 1 || err != nil {
			t.Errorf("%d devices, %v", n, err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		a = open()
	}
}

// TestSlowGatewayStopsNoVisit: strangers who ask for keys while the gateway says nothing
// keep no visit out, and have it asked by one of them at a time.
func TestSlowGatewayStopsNoVisit(t *testing.T) {
	at := now
	asked, hold := make(chan struct{}, 100), make(chan struct{})
	code, open := oneCode(t, &at, now.Add(time.Hour), func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return answering(r)
		}
		asked <- struct{}{}
		<-hold
		return nil, errors.New("no answer")
	}, func(o *Options) {
		o.Gateway, o.Requests = "https://gateway.example/issue", 4
		o.Terms = func(epoch uint32) (Terms, bool) {
			return Terms{Begin: now.Add(time.Hour), Cap: 10, Tokens: epoch == 8}, true
		}
	})
	a := open()
	secret := [visit.SecretSize]byte{1}
	if err := a.Enrol(t.Context(), &visit.Enrolment{Secret: secret, Proof: []byte(code)}, nil); err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(left, http.MethodGet, "/keys?epoch=8", nil))
		})
	}
	<-asked
	for len(a.places["keys"])+len(a.places["visit"]) < 4 { // until all are in
		runtime.Gosched()
	}
	r := httptest.NewRequest(http.MethodPost, "/visit", bytes.NewReader((&visit.Visit{Deployment: deployment, Epoch: 7}).Append(nil)))
	r.Header.Set("Content-Type", visit.VisitMedia)
	r.Header.Set("Authorization", "Bearer "+base64.RawURLEncoding.EncodeToString(secret[:]))
	w := httptest.NewRecorder()
	if a.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("a visit meanwhile: %d %s", w.Code, w.Body)
	}
	leave() // and the gateway is asked for none of those who have left
	close(hold)
	all.Wait()
	if n := len(asked); n != 0 {
		t.Errorf("the gateway was asked %d times more", n)
	}
}
