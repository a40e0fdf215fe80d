package body

import (
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// read reads a body of n bytes of which a number was declared.
func read(b *Budget, n int, declared, limit int64) (body []byte, release func(), closed bool, err error) {
	r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", n)))
	r.ContentLength = declared
	w := httptest.NewRecorder()
	body, release, err = b.Read(w, r, limit, time.Minute)
	return body, release, w.Header().Get("Connection") == "close", err
}

// TestLimit: a body is read whole up to its limit, whatever was declared of it, and a
// larger one is refused and its connection closed; nothing is left held of either.
func TestLimit(t *testing.T) {
	const limit = 30_000
	b := NewBudget(64 << 10)
	for _, c := range []struct {
		n        int
		declared int64
		want     error
	}{
		{0, 0, nil}, {0, -1, nil}, {1, 1, nil}, {step, -1, nil}, {step + 1, -1, nil}, {limit, limit, nil}, {limit, -1, nil}, {limit, limit - 1, ErrLarge},
		{limit + 1, -1, ErrLarge}, {limit + 1, 7, ErrLarge}, {1, limit + 1, ErrLarge},
	} {
		body, release, closed, err := read(b, c.n, c.declared, limit)
		if !errors.Is(err, c.want) || err == nil && len(body) != c.n || closed != (c.want != nil) {
			t.Errorf("%d bytes, %d declared: %d bytes, closed %v, %v", c.n, c.declared, len(body), closed, err)
		}
		release()
		if b.Free() != 64<<10 {
			t.Fatalf("%d bytes, %d declared: %d are left of the budget", c.n, c.declared, b.Free())
		}
	}
}

// TestBudget: what is held is paid for until it is released, once.
func TestBudget(t *testing.T) {
	b := NewBudget(200 << 10)
	body, release, _, err := read(b, 150<<10, 150<<10, 160<<10)
	if err != nil || len(body) != 150<<10 || b.Free() > 50<<10 || cap(body) > 200<<10-int(b.Free()) {
		t.Fatalf("%d bytes in %d, %v, %d free", len(body), cap(body), err, b.Free())
	}
	_, none, closed, err := read(b, 100<<10, 100<<10, 160<<10)
	if !errors.Is(err, ErrFull) || !closed {
		t.Errorf("above the budget: %v, closed %v", err, closed)
	}
	none()
	release()
	release()
	if b.Free() != 200<<10 {
		t.Errorf("%d bytes are free at the end", b.Free())
	}
}

// TestWholeBudget: a body of the size of the budget fits into it, declared or not.
func TestWholeBudget(t *testing.T) {
	for _, declared := range []int64{256 << 10, -1} {
		b := NewBudget(256 << 10)
		body, release, _, err := read(b, 256<<10, declared, 256<<10)
		if err != nil || len(body) != 256<<10 || b.Free() != 0 {
			t.Errorf("%d declared: %d bytes, %v, %d free", declared, len(body), err, b.Free())
		}
		release()
	}
}

// TestNoTrustInLengths: a declared length reserves nothing by itself, and a body whose
// sender goes away gives everything back.
func TestNoTrustInLengths(t *testing.T) {
	b := NewBudget(1 << 20)
	pr, pw := io.Pipe()
	r := httptest.NewRequest("POST", "/", pr)
	r.ContentLength = 1 << 20
	done := make(chan error, 1)
	go func() {
		_, release, err := b.Read(httptest.NewRecorder(), r, 1<<20, time.Minute)
		pr.Close()
		release()
		done <- err
	}()
	pw.Write([]byte("x")) // returns when it has been read
	if free := b.Free(); free < 1<<20-2*step || free == 1<<20 {
		t.Errorf("one byte reserved %d", 1<<20-free)
	}
	pw.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("broken off: %v", err)
	}
	if b.Free() != 1<<20 {
		t.Errorf("%d bytes are left of the budget", b.Free())
	}
	r = httptest.NewRequest("POST", "/", iotest.ErrReader(os.ErrDeadlineExceeded))
	if _, _, err := b.Read(httptest.NewRecorder(), r, 1<<20, time.Minute); !errors.Is(err, ErrSlow) {
		t.Errorf("not there in time: %v", err)
	}
}
