package status

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Paths of what an operator has a running aggregator do, on its local listener. Each takes
// a POST of JSON.
const (
	RepairPath = "/repair"      // mend replay protection: no body, answered by a Status
	HoldPath   = "/task/hold"   // a Decision, answered by a Decided
	ResumePath = "/task/resume" // a Decision, answered by a Decided
	DropPath   = "/task/drop"   // a Decision, answered by a Decided
	BackupPath = "/backup"      // no body, answered by the bytes of a backup
)

// A Decision is about tasks.
type Decision struct {
	Tasks  []string `json:"tasks,omitempty"`  // ids as [Task] has them; none: all
	Reason string   `json:"reason,omitempty"` // of a hold
}

// Decided is what became of one.
type Decided struct {
	Tasks   int    `json:"tasks"`   // that are held now, or were
	Reports uint64 `json:"reports"` // that were kept, and go again or are given up
}

// maxDecision bounds a request, in bytes.
const maxDecision = 1 << 20

// A BadRequest is an error that asking again does not mend.
type BadRequest struct{ Err error }

func (e *BadRequest) Error() string { return e.Err.Error() }
func (e *BadRequest) Unwrap() error { return e.Err }

// Operated serves what an operator has done at a path. A page in a browser cannot ask for
// it: the media type is one that it has to ask leave for. Where a token is given, a
// request has to bear it: whoever is on the machine reaches the listener, and only who can
// read the aggregator's files has the token.
func Operated(token string, do func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST", http.StatusMethodNotAllowed)
			return
		case r.Header.Get("Content-Type") != "application/json":
			http.Error(w, "want application/json", http.StatusUnsupportedMediaType)
			return
		case token != "":
			bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			got := sha256.Sum256([]byte(bearer))
			if !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "want the token that lies in the aggregator's directory", http.StatusUnauthorized)
				return
			}
		}
		err := do(w, r)
		if bad := new(BadRequest); errors.As(err, &bad) {
			http.Error(w, err.Error(), http.StatusBadRequest)
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// ReadDecision reads a request about tasks.
func ReadDecision(r *http.Request) (d Decision, err error) {
	err = read(r, maxDecision, &d)
	return d, err
}

// read reads a request of at most limit bytes.
func read(r *http.Request, limit int64, into any) error {
	b, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return &BadRequest{err}
	}
	return nil
}

// Answer writes v as JSON.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // an error means that the operator has gone
}
