package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/service"
)

// A Server routes the requests of one aggregator. Its fields are set before the first
// request.
type Server struct {
	// Base is the path of the base URL, without a slash at its end.
	Base   string
	Tasks  *task.Table
	Keys   *keyset.Set
	Limits aggregator.Limits
	Budget *body.Budget
	// Quota bounds the requests under way. Optional.
	Quota *room.Quota
	// Turned is told of requests beyond it. Optional, where there is no Quota.
	Turned func(aggregator.Shed)
	// Notary vouches for the keys; nil where no recipe names keys that do.
	Notary *keyset.Notary
	Log    *slog.Logger
	// Closed says that the service no longer takes requests. Optional.
	Closed func() bool
	// Bring takes the task of that id, which the request advertises and which is not there,
	// and returns it; nil where the request brings none, or is a stranger's. Optional; nil
	// ignores what requests advertise.
	Bring func(*http.Request, dap.TaskID, *taskprov.Advertisement) (*task.Task, error)

	// Follow reads what other processes have changed in the registry.
	Follow func(context.Context) error

	mux *http.ServeMux

	mu      sync.Mutex
	refused map[string]uint64 // requests answered with a problem, by label

	quiet quiet
}

// Refused counts the requests answered with a problem since the start, by problem type or
// HTTP status.
func (s *Server) Refused() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.refused)
}

func (s *Server) count(label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = make(map[string]uint64)
	}
	s.refused[label]++
}

// BasePath is the path of a base URL, without a slash at its end, for [Server.Base].
func BasePath(base string) (string, error) {
	u, err := dap.BaseURL([]byte(base))
	if err != nil {
		return "", err
	}
	p := strings.TrimRight((&url.URL{Path: u.Path}).EscapedPath(), "/")
	if p != "" && p != path.Clean(p) {
		return "", fmt.Errorf("edge: the path of %q has empty, \".\" or \"..\" elements, which no request reaches", base)
	}
	return p, nil
}

// A Request is one request to a known task.
type Request struct {
	*http.Request
	W    http.ResponseWriter
	Task *task.Task
	// State is how the task stands, in handlers of [Kept]. It may be a second old.
	State store.TaskState

	srv        *Server
	chosen     string
	advertised bool // so that a task that has ended is refused in taskprov's words
}

// ChosenID is the id that the peer chose for the resource that it creates; empty where we
// choose.
func (r *Request) ChosenID() string { return r.chosen }

// A Handler serves one request, or returns why not. After it has written a status it
// returns nil.
type Handler func(*Request) error

// Auth picks the token that a request must bear. The zero Token of a task means that
// nobody may.
type Auth func(*task.Task) Token

// Token is [task.Token].
type Token = task.Token

// Peer is the leader at the helper.
func Peer(t *task.Task) Token { return t.Peer }

// Collector is the collector at the leader.
func Collector(t *task.Task) Token { return t.Collector }

// Handle routes method and path, below tasks/{task}/, to h. A nil auth lets anybody in.
func (s *Server) Handle(method, path string, auth Auth, h Handler) {
	name := method + " " + path
	s.handle(method, "/tasks/{task}/"+path, name, func(w http.ResponseWriter, r *http.Request) (*dap.TaskID, error) {
		id, err := dap.ParseTaskID(r.PathValue("task"))
		if err != nil {
			return nil, NotFound(dap.ProblemUnrecognizedTask, "the task id is malformed")
		}
		ad := s.advertised(r)
		t, err := s.Tasks.Find(id)
		if err != nil {
			e := Later("the task cannot be worked on at the moment; come again, nothing is lost", retryStopped)
			e.cause = err
			return &id, e
		}
		if t == nil && ad != nil && ad.TaskID() == id {
			if t, err = s.Bring(r, id, ad); err != nil {
				return &id, err
			}
		}
		if t == nil {
			return &id, NotFound(dap.ProblemUnrecognizedTask, "")
		}
		if auth != nil {
			if !auth(t).Bears(r) {
				return &id, Unauthorized()
			}
			service.Known(r) // strangers, however many, leave place for it
		}
		if ad != nil && ad.TaskID() != id {
			return &id, NotFound(dap.ProblemUnrecognizedTask, "the task that is advertised has another id")
		}
		return &id, h(&Request{Request: r, W: w, Task: t, srv: s, advertised: ad != nil})
	})
}

// advertised is the task that a request advertises; nil where it does not, or where that is
// ignored.
func (s *Server) advertised(r *http.Request) *taskprov.Advertisement {
	values := r.Header.Values(taskprov.Header)
	if s.Bring == nil || len(values) == 0 {
		return nil
	}
	ad, err := taskprov.Parse(values)
	if err != nil {
		return nil // the draft has it ignored
	}
	return ad
}

// HandleCreation routes the creation of resources, below tasks/{task}/, to h, in the way
// of each task's framing: a POST to the collection, or a PUT to the path that the peer
// chose.
func (s *Server) HandleCreation(c dap.Collection, auth Auth, h Handler) {
	s.Handle("POST", string(c), auth, func(r *Request) error {
		if r.Task.Dialect.CreationMethod() != r.Method {
			return NotFound("", "resources of this task are created by PUT, under an id of the creator's choice")
		}
		return h(r)
	})
	s.Handle("PUT", string(c)+"/{id}", auth, func(r *Request) error {
		if r.Task.Dialect.CreationMethod() != r.Method {
			var others []string
			for _, m := range strings.Split(s.allowed(r.Request), ", ") {
				if m != r.Method {
					others = append(others, m)
				}
			}
			r.W.Header().Set("Allow", strings.Join(others, ", "))
			return plain(http.StatusMethodNotAllowed, "")
		}
		if r.chosen = r.PathValue("id"); dap.CheckChosenID(r.chosen) != nil {
			return Refuse(dap.ProblemInvalidMessage, "an id that is chosen has 16 bytes")
		}
		err := h(r)
		if errors.Is(err, store.ErrTaken) {
			return plain(http.StatusConflict, "another request has that id")
		}
		if errors.Is(err, store.ErrDeleted) {
			return NotFound("", "the resource of that id was deleted; ask again under another")
		}
		return err
	})
}

// allowed are the methods that the path of a request has.
func (s *Server) allowed(r *http.Request) string {
	probe, none := &discard{header: make(http.Header)}, r.Clone(r.Context())
	none.Method = "NONE"
	s.mux.ServeHTTP(probe, none)
	return probe.header.Get("Allow")
}

func (s *Server) handle(method, path, name string, f func(http.ResponseWriter, *http.Request) (*dap.TaskID, error)) {
	if s.mux == nil {
		s.mux = http.NewServeMux()
	}
	s.mux.HandleFunc(method+" "+s.Base+path, func(rw http.ResponseWriter, r *http.Request) {
		start := time.Now() // how long it took, for the log alone
		w := &recorder{ResponseWriter: rw}
		var id *dap.TaskID
		err := error(nil)
		if s.Closed != nil && s.Closed() {
			err = Overloaded(http.StatusServiceUnavailable)
		} else {
			id, err = f(w, r)
		}
		attrs := []slog.Attr{slog.String("request", name)}
		level := slog.LevelInfo
		if err != nil {
			e := toError(err)
			if w.status == 0 {
				writeProblem(w, e, id)
			}
			label := problemLabel(&e.Problem)
			s.count(label)
			attrs = append(attrs, slog.String("problem", label))
			if e.down || e.Problem.HTTPStatus() == http.StatusInternalServerError {
				level = slog.LevelError
				attrs = append(attrs, slog.String("error", err.Error()))
			} else if e.Problem.HTTPStatus() < 500 || e.RetryAfter > 0 {
				tell, untold := s.quiet.tell(start)
				if !tell {
					return
				}
				if untold > 0 {
					attrs = append(attrs, slog.Uint64("untold", untold))
				}
			}
		}
		if id != nil {
			attrs = append(attrs, slog.Any("task", *id))
		}
		attrs = append(attrs, slog.Int("status", w.code()), slog.Int64("bytes_out", w.bytes),
			slog.Duration("took", time.Since(start)))
		s.Log.LogAttrs(r.Context(), level, "request", attrs...)
	})
}

// problemLabel is from a closed set.
func problemLabel(p *dap.Problem) string {
	if p.Type == "" {
		return strconv.Itoa(p.HTTPStatus())
	}
	return string(p.Type)
}

// Kept is h for tasks that are not retired; for the others it answers as if they had
// never been. lately may answer what was so a moment ago, s does not.
func Kept(lately, s TaskStates, h Handler) Handler {
	return func(r *Request) error {
		gone := NotFound(dap.ProblemUnrecognizedTask, "the task ended, and what was kept of it is erased")
		if r.advertised {
			gone = Refuse(dap.ProblemInvalidTask, gone.Problem.Detail)
		}
		state, err := lately.TaskState(r.Context(), r.Task.ID)
		if err != nil {
			return err
		}
		if state.Retired {
			return gone
		}
		r.State = state
		err = h(r)
		if errors.Is(err, store.ErrNotFound) { // meanwhile?
			if state, failed := s.TaskState(r.Context(), r.Task.ID); failed == nil && state.Retired {
				return gone
			}
		}
		return err
	}
}

// TaskStates tell how a task stands; see [store.Tasks].
type TaskStates interface {
	TaskState(ctx context.Context, task dap.TaskID) (store.TaskState, error)
}

// HandleHpkeConfig serves the keys that clients seal to (section 4.4.1), and says how
// long they may: the draft wants the order of days.
func (s *Server) HandleHpkeConfig() {
	s.handle("GET", "/"+dap.HpkeConfigPath, "GET "+dap.HpkeConfigPath, func(w http.ResponseWriter, r *http.Request) (*dap.TaskID, error) {
		list, maxAge := s.Keys.List()
		w.Header().Set("Cache-Control", "max-age="+strconv.Itoa(int(maxAge/time.Second)))
		w.Header().Set("Content-Type", dap.ContentType(dap.MediaHpkeConfigList))
		w.Write(list)
		return nil, nil
	})
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	if s.Quota != nil {
		if !s.Quota.Enter() {
			s.Turned(aggregator.ShedRequests)
			s.refuse(w, r, Overloaded(http.StatusServiceUnavailable), start)
			return
		}
		defer s.Quota.Leave()
	}
	status := http.StatusNotFound
	if refuse, pattern := s.mux.Handler(r); pattern == "" {
		// Unknown paths and methods get a problem document too; the mux knows which of
		// the two it is.
		probe := &discard{header: make(http.Header)}
		refuse.ServeHTTP(probe, r)
		if allow := probe.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		if probe.status >= 400 {
			status = probe.status
		}
	} else if p := r.URL.EscapedPath(); p == path.Clean(p) {
		s.mux.ServeHTTP(w, r)
		return
	} // else the mux would redirect to the clean path; no client of ours asks for such a one
	s.refuse(w, r, plain(status, ""), start)
}

// refuse answers a request that has no handler, or is not to have one.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, e *Error, start time.Time) {
	writeProblem(w, e, nil)
	label := problemLabel(&e.Problem)
	s.count(label)
	if tell, untold := s.quiet.tell(start); tell {
		attrs := []slog.Attr{slog.String("request", "other"), slog.String("problem", label), slog.Int("status", e.Problem.HTTPStatus()),
			slog.Duration("took", time.Since(start))}
		if untold > 0 {
			attrs = append(attrs, slog.Uint64("untold", untold))
		}
		s.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
	}
}

// Body reads a request's message: its media type is checked, its bytes are paid for until
// release is called. A body that is coded is refused, and so is one that calls itself two
// things: what it would be taken for is not what it says.
func (r *Request) Body(m dap.Media, limit int64) (body []byte, release func(), err error) {
	types := r.Header.Values("Content-Type")
	if err = dap.CheckContentType(strings.Join(types, ", "), m); err == nil && len(types) > 1 {
		err = fmt.Errorf("%w: there are %d", dap.ErrMediaType, len(types))
	}
	for _, coding := range r.Header.Values("Content-Encoding") {
		if err == nil && !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			r.W.Header().Set("Accept-Encoding", "identity") // RFC 9110 section 12.5.3
			err = fmt.Errorf("%w: content codings are not understood", dap.ErrMediaType)
		}
	}
	if err != nil {
		e := Malformed(err)
		e.Problem.Status = http.StatusUnsupportedMediaType
		return nil, func() {}, e
	}
	return r.srv.read(r.W, r.Request, limit)
}

// read reads a body within the server's budget.
func (s *Server) read(w http.ResponseWriter, r *http.Request, limit int64) (b []byte, release func(), err error) {
	b, release, err = s.Budget.Read(w, r, limit, s.Limits.BodyTimeout)
	switch {
	case err == nil:
	case errors.Is(err, body.ErrLarge):
		err = TooLarge()
	case errors.Is(err, body.ErrSlow):
		err = tooSlow()
	case errors.Is(err, body.ErrFull):
		err = Overloaded(http.StatusServiceUnavailable)
	default:
		err = Broken(err)
	}
	return b, release, err
}

// Private reads a body that is ours and not the draft's, of that media type and no longer
// than limit.
func (r *Request) Private(media string, limit int64) (body []byte, release func(), err error) {
	if r.Header.Get("Content-Type") != media {
		return nil, func() {}, plain(http.StatusUnsupportedMediaType, "want "+media)
	}
	return r.srv.read(r.W, r.Request, limit)
}

// ReplyPrivate answers with such a body.
func (r *Request) ReplyPrivate(media string, body []byte) error {
	h := r.W.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	r.W.Write(body) // an error means that the peer has gone: it will ask again
	return nil
}

// Reply answers with a message.
func (r *Request) Reply(status int, m dap.Media, body []byte) error {
	h := r.W.Header()
	h.Set("Content-Type", dap.ContentType(m))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	r.W.WriteHeader(status)
	r.W.Write(body) // an error means that the peer has gone: it will ask again
	return nil
}

// Empty answers with an empty body: deferred where a resource is concerned, and then with
// a Retry-After.
func (r *Request) Empty(status int, retryAfter time.Duration) error {
	r.W.Header().Set("Cache-Control", "no-store")
	r.W.Header().Set("Content-Length", "0")
	if retryAfter > 0 {
		setRetryAfter(r.W, retryAfter)
	}
	r.W.WriteHeader(status)
	return nil
}

// SetLocation says where the resource is: a full path, base included, so that it may be
// resolved against any URL of ours.
func (r *Request) SetLocation(c dap.Collection, id, query string) {
	l := r.srv.Base + "/" + dap.ResourcePath(r.Task.ID, c, id)
	if query != "" {
		l += "?" + query
	}
	r.W.Header().Set("Location", l)
}

// ResourceID is the last element of the path, and false where no server of ours could
// have chosen it.
func (r *Request) ResourceID() (string, bool) {
	id := r.PathValue("id")
	return id, dap.CheckResourceID(id) == nil
}

// recorder remembers what was answered, for the log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

func (w *recorder) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// Unwrap lets [http.ResponseController] through.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// discard keeps only the header and the status.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header         { return w.header }
func (w *discard) Write(b []byte) (int, error) { return len(b), nil }
func (w *discard) WriteHeader(status int)      { w.status = status }
