package logserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/tlog"
)

// EntryMedia is the media type of an entry that is sent to a log.
const EntryMedia = "application/vnd.starling.log-entry"

// Added is what a log answers about an entry that it has taken.
type Added struct {
	// Index is the entry's place, for ever.
	Index int64 `json:"index"`
	// Known says that it was there before.
	Known bool `json:"known"`
}

// A Problem is what a log answers about an entry that it has not taken (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // urn:starling:log: and an outcome
	Detail string `json:"detail"`
}

// The outcomes of entries that are sent, a closed set.
const (
	added     = "added"
	known     = "known"
	malformed = "malformed"
	judged    = "refused"
	duplicate = "duplicate"
	withdrawn = "withdrawal"
	otherTime = "time"
	full      = "full"
	rate      = "rate"
	busy      = "busy"
	broken    = "broken"
)

// Outcomes lists what becomes of entries that are sent.
func Outcomes() []string {
	return []string{added, known, malformed, judged, duplicate, withdrawn, otherTime, full, rate, busy, broken}
}

// Outcome counts the entries that ended so since the start.
func (s *Server) Outcome(word string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[word]
}

func (s *Server) count(word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[word]++
}

// ServeHTTP answers POST add, and GET checkpoint, bundle and tile/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "add" {
		if r.Method != http.MethodPost {
			http.Error(w, "want POST", http.StatusMethodNotAllowed)
			return
		}
		s.serveAdd(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "want GET", http.StatusMethodNotAllowed)
		return
	}
	f := s.shownNow()
	switch {
	case name != "checkpoint" && name != "bundle" && !strings.HasPrefix(name, "tile/"):
		http.NotFound(w, r)
	case f == nil || name == "bundle" && f.bundle == nil:
		http.Error(w, "nothing is signed by enough witnesses yet", http.StatusServiceUnavailable)
	case name == "checkpoint":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		send(w, f.note)
	case name == "bundle":
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "no-cache")
		send(w, f.bundle)
	default:
		s.serveTile(w, r, f, name)
	}
}

func send(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

// serveTile shows a tile of what is signed, and none beyond it.
func (s *Server) serveTile(w http.ResponseWriter, r *http.Request, f *front, name string) {
	t, err := tlog.ParseTile(name)
	if err != nil || !t.Within(f.c.Size) {
		http.NotFound(w, r)
		return
	}
	var b []byte
	if t.Entries {
		for i := range int64(t.Width) {
			var e []byte
			if e, err = f.tree.entry(t.N*256 + i); err != nil {
				break
			}
			b = tlog.AppendTiled(b, e)
		}
	} else {
		b, err = t.Hashes(f.tree)
	}
	if err != nil {
		s.o.Log.Error("a tile could not be read", "error", err)
		http.Error(w, "the disk failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	send(w, b)
}

// serveAdd takes an entry.
func (s *Server) serveAdd(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, word, detail string) {
		s.count(word)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(Problem{"urn:starling:log:" + word, detail})
	}
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != EntryMedia {
		refuse(http.StatusUnsupportedMediaType, malformed, "want an entry as "+EntryMedia)
		return
	}
	leave, err := s.door.Enter()
	if err != nil {
		w.Header().Set("Retry-After", "1")
		refuse(http.StatusServiceUnavailable, busy, "too many entries at one time; send it again")
		return
	}
	defer leave()
	b, release, err := s.door.ReadBody(w, r)
	defer release()
	if err != nil {
		status, word := http.StatusBadRequest, malformed
		if refusal := new(door.Error); errors.As(err, &refusal) {
			if status = refusal.Reason.Status(); refusal.Reason == door.Busy {
				word = busy
			}
		}
		refuse(status, word, "the entry could not be read, or is too long")
		return
	}
	i, old, err := s.add(r.Context(), b)
	if err == nil {
		word := added
		if old {
			word = known
		}
		s.count(word)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(Added{i, old})
		return
	}
	for _, c := range []struct {
		is     error
		status int
		word   string
	}{
		{ErrJudged, http.StatusForbidden, judged}, {tlog.ErrEntry, http.StatusBadRequest, malformed}, {tlog.ErrLater, http.StatusBadRequest, malformed}, {tlog.ErrDuplicate, http.StatusConflict, duplicate},
		{tlog.ErrWithdrawal, http.StatusConflict, withdrawn}, {ErrTime, http.StatusForbidden, otherTime}, {ErrFull, http.StatusInsufficientStorage, full},
		{ErrRate, http.StatusTooManyRequests, rate},
	} {
		if errors.Is(err, c.is) {
			refuse(c.status, c.word, err.Error())
			return
		}
	}
	refuse(http.StatusInternalServerError, broken, ErrBroken.Error())
}

// Status is what the operator may know.
type Status struct {
	Origin string `json:"origin"`
	// Key is the log's, as a policy names it.
	Key string `json:"key"`
	// Entries are durable; Shown are those under the checkpoint that is shown, of that
	// time.
	Entries int64     `json:"entries"`
	Shown   int64     `json:"shown"`
	ShownAt time.Time `json:"shown_at,omitzero"`
	// Holding are the entries in the bundle, Period is when its period began, and
	// BundleBytes how long it is.
	Holding     int       `json:"holding"`
	Period      time.Time `json:"period,omitzero"`
	BundleBytes int       `json:"bundle_bytes"`
	// Unread entries are in the log and understood no more, since the anchors changed.
	Unread    int             `json:"unread"`
	Witnesses []WitnessStatus `json:"witnesses"`
	// Outcomes count entries that were sent since the start.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Trouble is why no new checkpoint can be shown, and Since is when that began.
	Trouble string    `json:"trouble,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// Now is the log's clock.
	Now time.Time `json:"now"`
}

// A WitnessStatus is of one witness that is asked.
type WitnessStatus struct {
	Name  string    `json:"name"`
	Size  int64     `json:"size"` // that it has signed, as far as is known
	At    time.Time `json:"at,omitzero"`
	Error string    `json:"error,omitempty"`
}

// Status says how the log stands.
func (s *Server) Status() *Status {
	x := &Status{Origin: s.o.Key.Key().Name(), Key: s.o.Key.Key().String(), Now: s.o.Now().UTC(), Witnesses: []WitnessStatus{}}
	for _, w := range s.witnesses {
		w.mu.Lock()
		y := WitnessStatus{Name: w.Name, Size: w.size, At: w.at}
		if w.err != nil {
			y.Error = w.err.Error()
		}
		w.mu.Unlock()
		x.Witnesses = append(x.Witnesses, y)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x.Entries, x.Unread, x.Outcomes = s.store.size(), s.store.unread, maps.Clone(s.counts)
	if f := s.now; f != nil {
		x.Shown, x.ShownAt, x.Period, x.BundleBytes, x.Holding = f.c.Size, f.at, f.begin, len(f.bundle), f.holds
	}
	if s.tried != nil {
		x.Trouble, x.Since = s.tried.Error(), s.since
	}
	if s.broken != nil {
		x.Trouble = ErrBroken.Error()
	}
	return x
}

// Trouble is why the log takes nothing, and why it shows nothing new; nil where it does.
func (s *Server) Trouble() (take, show error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		take = ErrBroken
	}
	show = s.tried
	if s.now == nil && show == nil {
		show = errors.New("nothing is signed by enough witnesses yet")
	}
	return take, show
}

// Audit reads all that is on the disk and says what does not hold: each entry is what the
// tree has, the checkpoint that is shown is over the first of them, and a device that has
// seen nothing takes the bundle.
func (s *Server) Audit() error {
	s.mu.Lock()
	view, f := s.store.first(s.store.size()), s.now
	s.mu.Unlock()
	var all []error
	for i := range view.size() {
		if _, err := view.entry(i); err != nil {
			all = append(all, err)
		}
	}
	if f == nil {
		return errors.Join(all...)
	}
	if f.c.Size > view.size() {
		all = append(all, fmt.Errorf("logserver: a checkpoint over %d entries is shown, and there are %d", f.c.Size, view.size()))
	}
	w, err := s.o.Policy.Open(f.note, f.at)
	if err != nil {
		return errors.Join(append(all, err)...)
	}
	b, err := tlog.ReadBundle(f.bundle)
	if err == nil {
		at := f.at
		if w.Time.After(at) {
			at = w.Time
		}
		_, _, err = b.Open(s.o.Policy, tlog.Memory{}, at, nil)
		if errors.Is(err, tlog.ErrStale) {
			err = nil // a log that was stopped for long shows its last until it has a new one
		}
	}
	return errors.Join(append(all, err)...)
}
