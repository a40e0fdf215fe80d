package logserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
)

const (
	// askTime bounds one request to a witness, and lateTime is how long the rest may take
	// once there are enough.
	askTime  = 10 * time.Second
	lateTime = time.Second
	// maxLines bounds what a witness answers, in bytes.
	maxLines = 32 << 10
)

// A Refused error is a witness's that will not sign.
type Refused struct {
	Status int
	// Size is what it has signed, where it says so; -1 elsewhere.
	Size int64
}

func (e *Refused) Error() string {
	switch {
	case e.Size >= 0:
		return fmt.Sprintf("it has signed a log of %d entries, which is longer than this one: the log was put back, or another runs under its key", e.Size)
	case e.Status == http.StatusUnprocessableEntity:
		return "it says that the log does not continue what it has signed: the log was put back, or another runs under its key"
	case e.Status == http.StatusNotFound:
		return "it does not follow this log, or has another address"
	case e.Status == http.StatusForbidden:
		return "it knows another key of this log"
	}
	return fmt.Sprintf("it answered with status %d", e.Status)
}

// A witness is one of the policy's that is asked.
type witness struct {
	tlog.Party
	mu   sync.Mutex
	size int64 // that it has signed, as far as is known; guarded by mu
	err  error // of the last time it was asked; guarded by mu
	at   time.Time
}

// cosign asks a witness for its signatures, a second time where it has signed another size
// than was thought.
func (s *Server) cosign(ctx context.Context, w *witness, c *tlog.Checkpoint, note []byte, tree *store) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	w.mu.Lock()
	old := w.size
	w.mu.Unlock()
	for try := 0; ; try++ {
		if old > c.Size {
			return nil, &Refused{http.StatusConflict, old}
		}
		proof, err := tlog.ProveContinued(c.Size, old, tree)
		if err != nil {
			return nil, err
		}
		lines, size, err := s.submit(ctx, w, &tlog.Submission{Old: old, Proof: proof, Note: note})
		if err != nil {
			return nil, err
		}
		if lines != nil {
			w.mu.Lock()
			w.size = c.Size
			w.mu.Unlock()
			return lines, nil
		}
		if old = size; try > 0 && old <= c.Size {
			return nil, fmt.Errorf("it says twice that it has signed another size, now %d", size)
		}
	}
}

// submit sends one request. Without lines the witness has signed another size.
func (s *Server) submit(ctx context.Context, w *witness, x *tlog.Submission) (lines []byte, size int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(w.URL, "/")+"/add-checkpoint", bytes.NewReader(x.Append(nil)))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp, err := s.o.Transport.RoundTrip(r)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxLines+1))
	switch {
	case err != nil:
		return nil, 0, err
	case len(b) > maxLines:
		return nil, 0, errors.New("it answered with too much")
	case resp.StatusCode == http.StatusConflict && resp.Header.Get("Content-Type") == "text/x.tlog.size":
		text, ok := strings.CutSuffix(string(b), "\n")
		size, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || size < 0 {
			return nil, 0, errors.New("it answered with a size that is none")
		}
		return nil, size, nil
	case resp.StatusCode != http.StatusOK:
		return nil, 0, &Refused{resp.StatusCode, -1}
	}
	return b, 0, nil
}

// gather asks all witnesses at once, and returns the note with all signatures that hold
// once a quorum has signed and the others have had a little time; or why there is none.
func (s *Server) gather(ctx context.Context, c *tlog.Checkpoint, note []byte, tree *store) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		lines []byte
		err   error
	}
	answers := make(chan answer, len(s.witnesses))
	for _, w := range s.witnesses {
		go func() {
			lines, err := s.cosign(ctx, w, c, note, tree)
			if err == nil {
				lines, err = s.held(w, note, lines)
			}
			if ctx.Err() == nil || err == nil {
				w.mu.Lock()
				w.err, w.at = err, s.o.Now()
				w.mu.Unlock()
			}
			answers <- answer{lines, err}
		}()
	}
	whole := slices.Clone(note)
	_, lacking := s.o.Policy.Open(whole, s.o.Now())
	var late <-chan time.Time // never, so far
	for range s.witnesses {
		select {
		case a := <-answers:
			if a.err != nil {
				continue
			}
			whole = append(whole, a.lines...)
			if lacking == nil {
				continue
			}
			if _, lacking = s.o.Policy.Open(whole, s.o.Now()); lacking == nil {
				late = time.After(lateTime)
			}
		case <-late:
			return whole, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return whole, lacking
}

// held keeps the signature lines of a witness's own key that hold, and refuses none and
// those that do not.
func (s *Server) held(w *witness, note, lines []byte) ([]byte, error) {
	_, n, opened, err := tlog.OpenCosigned(slices.Concat(note, lines), []*tlog.Key{s.o.Key.Key()}, []*tlog.Key{w.Key})
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("it has signed by another key than the policy has of it")
	}
	return opened[len(note):], nil
}
