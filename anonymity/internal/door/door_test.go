package door

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReasons: every reason has a problem type of its own, one document size, an error
// status, and can be read back.
func TestReasons(t *testing.T) {
	types := map[string]bool{}
	for _, r := range All {
		w := httptest.NewRecorder()
		Refuse(w, r)
		if w.Body.Len() != ProblemSize || w.Code != r.Status() || w.Code < 400 || types[r.Type()] {
			t.Errorf("%s: %d bytes, status %d, type %s", r, w.Body.Len(), w.Code, r.Type())
		}
		types[r.Type()] = true
		if got, ok := Read(w.Body); !ok || got != r {
			t.Errorf("%s read back as %q", r, got)
		}
		if !errors.Is(&Error{r}, &Error{r}) || errors.Is(&Error{r}, &Error{"other"}) {
			t.Errorf("%s: errors.Is", r)
		}
	}
	if Key.Type() != "https://iana.org/assignments/http-problem-types#ohttp-key" {
		t.Errorf("the key's problem type is %s", Key.Type())
	}
	for _, body := range []string{"", "{}", `{"type":7}`, `{"type":"about:blank"}`, strings.Repeat(" ", 2000) + `{"type":"urn:starling:ohttp:key"}`} {
		if got, ok := Read(strings.NewReader(body)); ok {
			t.Errorf("%q read as %q", body, got)
		}
	}
}

// TestBudget: bytes and places are given back, whatever became of a request.
func TestBudget(t *testing.T) {
	d := New(1, 40_000, 30_000, time.Second)
	leave, err := d.Enter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enter(); !errors.Is(err, &Error{Busy}) {
		t.Errorf("a second: %v", err)
	}
	leave()
	read := func(n int, declared int64) ([]byte, func(), error) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n)))
		r.ContentLength = declared
		return d.ReadBody(httptest.NewRecorder(), r)
	}
	for _, c := range []struct {
		n        int
		declared int64
		want     error
	}{
		{0, 0, nil}, {1, 1, nil}, {30_000, 30_000, nil}, {30_000, -1, nil}, {30_001, -1, &Error{Oversized}}, {1, 30_001, &Error{Oversized}},
	} {
		body, release, err := read(c.n, c.declared)
		if !errors.Is(err, c.want) || err == nil && len(body) != c.n {
			t.Errorf("%d bytes, %d declared: %d bytes, %v", c.n, c.declared, len(body), err)
		}
		release()
		if d.bytes.Free() != 40_000 {
			t.Fatalf("%d bytes, %d declared: %d are left of the budget", c.n, c.declared, d.bytes.Free())
		}
	}
	_, first, err := read(30_000, 30_000)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := read(30_000, 30_000)
	if !errors.Is(err, &Error{Busy}) {
		t.Errorf("above the budget: %v", err)
	}
	first()
	second()
	if d.bytes.Free() != 40_000 {
		t.Errorf("%d bytes are left of the budget", d.bytes.Free())
	}
}
