package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/body"
)

// Outcomes of an order, for counting; a closed set.
const (
	Issued    = "issued"
	Again     = "again" // the same one as before
	Malformed = "malformed"
	Forbidden = "not-ordered" // by the attester, or not of this party
	Unknown   = "unknown-epoch"
	Begun     = "begun" // the epoch has
	Full      = "full"  // as many as the manifest says
	Busy      = "busy"
	Failed    = "failed"
)

// Outcomes lists what becomes of orders.
func Outcomes() []string {
	return []string{Issued, Again, Malformed, Forbidden, Unknown, Begun, Full, Busy, Failed}
}

// A Refusal is why an order was not answered.
type Refusal struct {
	Outcome string // of [Outcomes]
	Err     error
}

func (e *Refusal) Error() string { return fmt.Sprintf("order refused: %s: %v", e.Outcome, e.Err) }
func (e *Refusal) Unwrap() error { return e.Err }

// statuses are those of the answers.
var statuses = map[string]int{
	Malformed: http.StatusBadRequest, Forbidden: http.StatusForbidden, Unknown: http.StatusNotFound, Begun: http.StatusGone,
	Full: http.StatusConflict, Busy: http.StatusServiceUnavailable, Failed: http.StatusServiceUnavailable,
}

// bodyTime is within how long an order has come.
const bodyTime = 15 * time.Second

// A Desk takes orders over HTTP, so many at one time. Safe for concurrent use.
type Desk struct {
	log    *slog.Logger
	budget *body.Budget
	places chan struct{}

	mu     sync.Mutex
	counts map[string]uint64 // by outcome
}

// NewDesk is one for a number of requests at one time and of bytes of their bodies. The log
// is told of what failed.
func NewDesk(requests int, bytes int64, log *slog.Logger) *Desk {
	return &Desk{log: log, budget: body.NewBudget(bytes), places: make(chan struct{}, requests), counts: make(map[string]uint64)}
}

// Outcome counts the orders that ended so since the start.
func (d *Desk) Outcome(word string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts[word]
}

// A Kind is one kind of order.
type Kind struct {
	Media  string // of an order
	Answer string // media type
	Most   int    // bytes of an order
	// Do answers an order, and says whether it was answered before. Its errors are *[Refusal]
	// where the order is to blame.
	Do func(ctx context.Context, order []byte) (answer []byte, repeated bool, err error)
}

// Serve answers POST of an order, and counts what became of it.
func (d *Desk) Serve(w http.ResponseWriter, r *http.Request, k Kind) {
	answer, repeated, err := d.take(w, r, &k)
	word := d.Write(w, k.Answer, answer, err)
	if repeated && word == Issued {
		word = Again
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[word]++
}

// Write writes an answer, or the word of an error, and returns what became of the request.
func (d *Desk) Write(w http.ResponseWriter, media string, answer []byte, err error) (word string) {
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		word = Failed
		if refusal := new(Refusal); errors.As(err, &refusal) {
			word = refusal.Outcome
		} else {
			d.log.Error("a request was not answered", "error", err)
		}
		http.Error(w, word, statuses[word])
		return word
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
	return Issued
}

func (d *Desk) take(w http.ResponseWriter, r *http.Request, k *Kind) (answer []byte, repeated bool, err error) {
	refuse := func(word string, err error) ([]byte, bool, error) { return nil, false, &Refusal{word, err} }
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != k.Media {
		return refuse(Malformed, errors.New("no order"))
	}
	select {
	case d.places <- struct{}{}:
		defer func() { <-d.places }()
	default:
		return refuse(Busy, errors.New("as many requests are worked on as may be"))
	}
	b, release, err := d.budget.Read(w, r, int64(k.Most), bodyTime)
	defer release()
	switch {
	case errors.Is(err, body.ErrFull):
		return refuse(Busy, err)
	case err != nil:
		return refuse(Malformed, err)
	}
	return k.Do(r.Context(), b)
}
