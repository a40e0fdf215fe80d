package witness

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
)

// Options make a witness.
type Options struct {
	// Keys sign, each with one signature; one or two, of one name. Required.
	Keys []*tlog.Secret
	// Logs are the keys of the logs that are followed. Required.
	Logs []*tlog.Key
	// FS has what was signed. Required, and used by one process at a time.
	FS disk.FS
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log is told of logs that misbehave; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

// Bounds of what strangers can have a witness hold.
const (
	maxLogs      = 1024
	bodies       = 8 << 20 // bytes at one time
	bodyTime     = 15 * time.Second
	maxEvidence  = 64 // files
	recordSuffix = ".checkpoint"
	forkSuffix   = ".fork"
)

// Failpoints of a witness: before and after what it signs is durable.
const (
	failBeforeSave = "witness.before-save"
	failBeforeSign = "witness.after-save-before-sign"
)

// Failpoints lists the failpoints of a witness.
func Failpoints() []string { return []string{failBeforeSave, failBeforeSign} }

// ErrState: what was signed cannot be read or written. Nothing is signed for that log.
var ErrState = errors.New("witness: what was signed cannot be used")

// A Witness signs checkpoints. It is an [http.Handler] and safe for concurrent use.
type Witness struct {
	o      Options
	budget *body.Budget
	logs   map[string]*followed // by origin; fixed after New

	mu     sync.Mutex
	counts map[string]uint64 // by outcome
}

// followed is a log that the witness follows.
type followed struct {
	keys []*tlog.Key
	file string

	mu     sync.Mutex
	last   tlog.Checkpoint // guarded by mu, as all below
	note   []byte          // with the witness's own signatures; nil: none was signed
	broken error           // a write whose outcome is not known
}

// New makes a witness and reads what it has signed. It fails with [ErrState] where that is
// damaged or cannot be read.
func New(o Options) (*Witness, error) {
	if o.FS == nil || len(o.Keys) == 0 || len(o.Logs) == 0 || len(o.Logs) > maxLogs {
		return nil, fmt.Errorf("witness: no directory, no key, or not 1 to %d logs", maxLogs)
	}
	for _, k := range o.Keys {
		if k.Key().Scheme() == tlog.Ed25519 {
			return nil, fmt.Errorf("witness: %w: %s is a log's key; starling log key --witness makes a witness's", tlog.ErrKey, k.Key().Name())
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Witness{o: o, budget: body.NewBudget(bodies), logs: make(map[string]*followed), counts: make(map[string]uint64)}
	for _, k := range o.Logs {
		l := w.logs[k.Name()]
		if l == nil {
			l = &followed{file: originHash(k.Name()) + recordSuffix}
			w.logs[k.Name()] = l
		}
		l.keys = append(l.keys, k)
	}
	for origin, l := range w.logs {
		if err := w.load(l); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrState, origin, err)
		}
	}
	return w, nil
}

// originHash is how tlog-witness names a log in a path.
func originHash(origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return hex.EncodeToString(sum[:])
}

// ownKeys are the public halves of the witness's keys.
func (w *Witness) ownKeys() []*tlog.Key {
	var keys []*tlog.Key
	for _, s := range w.o.Keys {
		keys = append(keys, s.Key())
	}
	return keys
}

// load reads the last checkpoint that was signed of a log, and holds it to the witness's
// own signature: a file that others wrote, or of another witness, is refused.
func (w *Witness) load(l *followed) error {
	b, err := disk.ReadFile(w.o.FS, l.file, tlog.MaxNote+64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	c, ours, _, err := tlog.OpenCosigned(b, l.keys, w.ownKeys())
	if err != nil {
		return err
	}
	if ours == 0 {
		return errors.New("the checkpoint there does not bear this witness's signature: it was written by another key, or changed")
	}
	l.last, l.note = *c, b
	return nil
}

// Outcomes of a submission, for counting; a closed set.
const (
	signed       = "signed"
	malformed    = "malformed"
	unknown      = "unknown-log"
	forbidden    = "bad-signature"
	conflict     = "other-size"
	inconsistent = "inconsistent"
	failed       = "failed"
)

// Outcomes lists what becomes of submissions.
func Outcomes() []string {
	return []string{signed, malformed, unknown, forbidden, conflict, inconsistent, failed}
}

// Outcome counts the submissions that ended so since the start.
func (w *Witness) Outcome(word string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[word]
}

func (w *Witness) count(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[word]++
}

// ServeHTTP answers POST add-checkpoint, and GET of the last checkpoint of a log.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "add-checkpoint" && r.Method == http.MethodPost:
		w.add(rw, r)
	case name == "add-checkpoint":
		http.Error(rw, "want POST", http.StatusMethodNotAllowed)
	case strings.HasSuffix(name, "/checkpoint") && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.show(rw, strings.TrimSuffix(name, "/checkpoint"))
	default:
		http.NotFound(rw, r)
	}
}

// show gives the last checkpoint of a log to a monitor.
func (w *Witness) show(rw http.ResponseWriter, hash string) {
	for origin, l := range w.logs {
		if originHash(origin) != hash {
			continue
		}
		l.mu.Lock()
		note := l.note
		l.mu.Unlock()
		if note == nil {
			break
		}
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Header().Set("Cache-Control", "no-cache")
		rw.Write(note)
		return
	}
	http.Error(rw, "no checkpoint of this log was signed here", http.StatusNotFound)
}

// A refusal is an answer that is no signature.
type refusal struct {
	status  int
	outcome string
	text    string
	size    *int64 // of a conflict
}

// add takes a checkpoint, and answers as tlog-witness has it.
func (w *Witness) add(rw http.ResponseWriter, r *http.Request) {
	b, release, err := w.budget.Read(rw, r, tlog.MaxSubmission, bodyTime)
	defer release()
	if err != nil {
		status := http.StatusBadRequest
		switch {
		case errors.Is(err, body.ErrLarge):
			status = http.StatusRequestEntityTooLarge
		case errors.Is(err, body.ErrSlow):
			status = http.StatusRequestTimeout
		case errors.Is(err, body.ErrFull):
			status = http.StatusServiceUnavailable
		}
		w.count(malformed)
		http.Error(rw, "the request could not be read", status)
		return
	}
	lines, no := w.sign(b)
	if no == nil {
		w.count(signed)
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Write(lines)
		return
	}
	w.count(no.outcome)
	if no.size != nil {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(no.status)
		fmt.Fprintf(rw, "%d\n", *no.size)
		return
	}
	http.Error(rw, no.text, no.status)
}

// sign returns the signature lines for a submission, or why there are none.
func (w *Witness) sign(b []byte) ([]byte, *refusal) {
	s, err := tlog.ReadSubmission(b)
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest, outcome: malformed, text: "malformed request"}
	}
	text, err := tlog.TextOf(s.Note)
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest, outcome: malformed, text: "malformed checkpoint"}
	}
	l := w.logs[text.Origin]
	if l == nil {
		return nil, &refusal{status: http.StatusNotFound, outcome: unknown, text: "this log is not followed here"}
	}
	c, _, note, err := tlog.OpenCosigned(s.Note, l.keys, nil)
	switch {
	case errors.Is(err, tlog.ErrUnsigned):
		return nil, &refusal{status: http.StatusForbidden, outcome: forbidden, text: "not signed by the log"}
	case err != nil:
		return nil, &refusal{status: http.StatusBadRequest, outcome: malformed, text: "malformed checkpoint"}
	case s.Old > c.Size:
		return nil, &refusal{status: http.StatusBadRequest, outcome: malformed, text: "the old size is above the checkpoint's"}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		// The disk decides. A signature goes out only after a write that succeeded, so
		// this may be newer than what others have seen, and never older.
		if err := w.load(l); err != nil {
			return nil, &refusal{status: http.StatusInternalServerError, outcome: failed, text: "the disk failed"}
		}
		l.broken = nil
	}
	if s.Old != l.last.Size {
		size := l.last.Size
		return nil, &refusal{status: http.StatusConflict, outcome: conflict, size: &size}
	}
	if err := tlog.Continues(l.last.Size, l.last.Root, c.Size, c.Root, s.Proof); err != nil {
		w.suspect(l, c, s.Note)
		return nil, &refusal{status: http.StatusUnprocessableEntity, outcome: inconsistent, text: "the checkpoint does not continue the last one"}
	}
	lines, err := tlog.Cosign(c.Text(), w.o.Now(), w.o.Keys...)
	if err != nil {
		w.o.Log.Error("a checkpoint could not be signed", slog.Any("error", err))
		return nil, &refusal{status: http.StatusInternalServerError, outcome: failed, text: "could not sign"}
	}
	note = slices.Concat(note, lines)
	if err := w.save(l, note); err != nil {
		l.broken = err
		w.o.Log.Error("what would be signed could not be kept, and was not signed", slog.Any("error", err))
		return nil, &refusal{status: http.StatusInternalServerError, outcome: failed, text: "the disk failed"}
	}
	l.last, l.note = *c, note
	return lines, nil
}

// save makes a checkpoint durable, before anybody sees its signature.
func (w *Witness) save(l *followed, note []byte) error {
	if err := w.o.Failpoints.Hit(failBeforeSave); err != nil {
		return err
	}
	if err := disk.WriteFile(w.o.FS, l.file, note); err != nil {
		return err
	}
	return w.o.Failpoints.Hit(failBeforeSign)
}

// suspect keeps a checkpoint that the log has signed and that does not continue what was
// signed before. Of one size with another root it proves that the log shows two trees;
// otherwise it may be a wrong proof.
func (w *Witness) suspect(l *followed, c *tlog.Checkpoint, note []byte) {
	if c.Size != l.last.Size || c.Root == l.last.Root {
		return
	}
	w.o.Log.Error("a log has signed two trees of one size: both checkpoints are kept", slog.String("log", c.Origin), slog.Int64("size", c.Size))
	entries, err := w.o.FS.ReadDir(".")
	n := 0
	for _, e := range entries {
		if path.Ext(e.Name) == forkSuffix {
			n++
		}
	}
	if err != nil || n >= maxEvidence {
		return // enough is proved
	}
	sum := sha256.Sum256([]byte(c.Text()))
	name := strings.TrimSuffix(l.file, recordSuffix)[:16] + "-" + hex.EncodeToString(sum[:8]) + forkSuffix
	if err := disk.WriteFile(w.o.FS, name, l.note, []byte("\n"), note); err != nil {
		w.o.Log.Error("evidence could not be kept", slog.Any("error", err))
	}
}

// Status is what the operator may know.
type Status struct {
	// Keys are the witness's, as a policy names them.
	Keys []string    `json:"keys"`
	Logs []LogStatus `json:"logs"`
	// Outcomes count submissions since the start.
	Outcomes map[string]uint64 `json:"outcomes"`
	// Forks are files that prove that a log shows two trees.
	Forks []string `json:"forks"`
}

// A LogStatus is of one log that is followed.
type LogStatus struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
	Broken bool   `json:"broken,omitempty"`
}

// Status says what the witness has signed.
func (w *Witness) Status() *Status {
	s := &Status{Outcomes: make(map[string]uint64), Forks: []string{}}
	for _, k := range w.ownKeys() {
		s.Keys = append(s.Keys, k.String())
	}
	for _, origin := range slices.Sorted(maps.Keys(w.logs)) {
		l := w.logs[origin]
		l.mu.Lock()
		s.Logs = append(s.Logs, LogStatus{origin, l.last.Size, l.broken != nil})
		l.mu.Unlock()
	}
	for _, word := range Outcomes() {
		if n := w.Outcome(word); n > 0 {
			s.Outcomes[word] = n
		}
	}
	entries, _ := w.o.FS.ReadDir(".") // a directory that cannot be read shows elsewhere
	for _, e := range entries {
		if path.Ext(e.Name) == forkSuffix {
			s.Forks = append(s.Forks, e.Name)
		}
	}
	return s
}

// Trouble is why the witness cannot sign for every log, or nil.
func (w *Witness) Trouble() error {
	for origin, l := range w.logs {
		l.mu.Lock()
		broken := l.broken
		l.mu.Unlock()
		if broken != nil {
			return fmt.Errorf("%w: %s", ErrState, origin)
		}
	}
	return nil
}
