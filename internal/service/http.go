package service

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A Server is the public HTTP listener of a service, with the limits of its [Listen].
type Server struct {
	// Name says which listener it is in errors.
	Name string
	// Listen is required and validated before anything is opened.
	Listen Listen
	// Handler is required; wrap it with [Observe] for logs and metrics.
	Handler http.Handler
	// Log is required; it gets what net/http complains about.
	Log *slog.Logger
	// Connections, if not nil, shows how many there are, under Label.
	Connections *Connections
	Label       string
	// Busy answers a request whose sender has too many under way; default a plain 429.
	Busy http.HandlerFunc
	// Open is a listener that is open already, at Listen.Address, and is used instead of
	// opening one. Optional.
	Open net.Listener
	// Opened, if not nil, is called with the listener's address once it is open: where
	// port 0 was asked for, that tells which it became.
	Opened func(net.Addr)
}

// Part returns the server as a component: ready when it listens; on stop it refuses new
// connections and finishes the requests it has.
func (s Server) Part() Part { return Part{s.Name, s.run} }

func (s Server) run(ctx context.Context, ready func()) error {
	if err := s.Listen.Validate(); err != nil {
		return err
	}
	l := s.Listen.withDefaults()
	open := s.Open
	if open == nil {
		var err error
		if open, err = l.Address.listen(ctx); err != nil {
			return fmt.Errorf("service: listen: %w", err)
		}
		if l.SocketMode != 0 {
			if err := l.Address.permit(l.SocketMode); err != nil {
				return errors.Join(fmt.Errorf("service: listen: %w", err), open.Close())
			}
		}
	}
	guarded := newLimiter(open, l)
	if s.Connections != nil {
		guarded.shed = s.Connections.of(s.Label, guarded)
	}
	if s.Listen.noLimitPerAddress() {
		s.Log.Warn("no limit on the connections and requests of one address: any one can take all places; see max_per_address and forwarded_header",
			slog.String("listener", s.Name))
	}
	busy := s.Busy
	if busy == nil {
		busy = func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "too many requests of this address are under way", http.StatusTooManyRequests)
		}
	}
	server := &http.Server{
		Handler:           guarded.handler(s.Handler, time.Duration(l.RequestTimeout), busy),
		ConnState:         guarded.state,
		ConnContext:       guarded.context,
		ReadHeaderTimeout: time.Duration(l.HeaderTimeout),
		ReadTimeout:       time.Duration(l.RequestTimeout),
		WriteTimeout:      2 * time.Duration(l.RequestTimeout), // counted from the end of the request's head
		IdleTimeout:       time.Duration(l.IdleTimeout),
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	secure := l.TLSCertificate != ""
	if secure {
		c := &certificate{cert: l.TLSCertificate, key: l.TLSKey}
		if _, err := c.get(nil); err != nil {
			return errors.Join(err, open.Close())
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.get}
		clients, err := l.clients()
		if err != nil {
			return errors.Join(err, open.Close())
		}
		if clients != nil {
			server.TLSConfig.ClientCAs, server.TLSConfig.ClientAuth = clients, tls.RequireAndVerifyClientCert
		} else if l.AskClients {
			server.TLSConfig.ClientAuth = tls.RequestClientCert
		}
	}
	go guarded.take()
	return serve(ctx, server, guarded, secure, s.Opened, ready)
}

// serve runs server until ctx ends and then drains it.
func serve(ctx context.Context, server *http.Server, listener *limiter, secure bool, opened func(net.Addr), ready func()) error {
	if opened != nil {
		opened(listener.Addr())
	}
	result := make(chan error, 1)
	go func() {
		if secure {
			result <- server.ServeTLS(listener, "", "")
		} else {
			result <- server.Serve(listener)
		}
	}()
	ready()
	select {
	case err := <-result:
		return fmt.Errorf("service: serve: %w", err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultDrain*3/4)
	defer cancel()
	// A client's pool opens more connections than it comes to use, and net/http would wait
	// five seconds for a first request on each.
	unused := time.AfterFunc(unasked, listener.leaveFresh)
	defer unused.Stop()
	if err := server.Shutdown(drain); err != nil {
		server.Close() // requests that outlive the drain are cut; their clients retry
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("service: drain: %w", err)
		}
	}
	if err := <-result; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("service: serve: %w", err)
	}
	return nil
}

// Health is what /livez and /readyz ask.
type Health struct {
	// Ready says what the service can do; the reasons are shown to the operator. It must be
	// quick. Nil means everything.
	Ready func() Readiness
	// Status returns what /statusz shows, as JSON. Nil shows nothing.
	Status func(ctx context.Context) (any, error)
}

// statusTimeout bounds Health.Status.
const statusTimeout = 5 * time.Second

// Local is the operator's listener of a service: /livez, /readyz, /statusz, /metrics,
// /debug/pprof and Extra. It is only ever on loopback or a unix socket, for what it shows
// is not for strangers. With [BareMetrics] there is no /debug/pprof.
type Local struct {
	Name    string
	Address Address // required
	Health  Health
	Metrics *Metrics // required
	// Extra, if not nil, answers every other path.
	Extra  http.Handler
	Log    *slog.Logger
	Open   net.Listener // as in [Server]
	Opened func(net.Addr)
}

// Validate says what is wrong with the listener's address.
func (l Local) Validate() error {
	if err := l.Address.Validate(); err != nil {
		return err
	}
	if !l.Address.StaysHere() {
		return errors.New("the local listener must be on loopback or a unix socket")
	}
	return nil
}

// Part returns the listener as a component.
func (l Local) Part() Part { return Part{l.Name, l.run} }

func (l Local) run(ctx context.Context, ready func()) error {
	if err := l.Validate(); err != nil {
		return err
	}
	handler := l.handler(ctx)
	if !l.Address.IsUnix() { // no browser reaches a socket
		handler = askedHere(handler)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: time.Duration(defaultHeaderTimeout),
		ReadTimeout:       time.Duration(defaultRequestTimeout),
		IdleTimeout:       time.Duration(defaultIdleTimeout),
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(l.Log.Handler(), slog.LevelDebug),
	}
	open := l.Open
	if open == nil {
		var err error
		if open, err = l.Address.listen(ctx); err != nil {
			return fmt.Errorf("service: listen: %w", err)
		}
	}
	guarded := newLimiter(open, Listen{Address: l.Address, MaxConnections: 64}.withDefaults())
	server.ConnState, server.ConnContext = guarded.state, guarded.context
	go guarded.take()
	return serve(ctx, server, guarded, false, l.Opened, ready)
}

// askedHere refuses requests that name another host than this machine: a page in the
// operator's browser, whose own name its owner has made to mean 127.0.0.1, must not read
// what is for the operator (DNS rebinding).
func askedHere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "80")
		}
		if !Address(host).StaysHere() || Address(host).IsUnix() {
			http.Error(w, "this listener is asked by the names of this machine alone", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handler answers for the service until stopping ends; from then on it is alive and not
// ready.
func (l Local) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready := Ready(false)
		if l.Health.Ready != nil {
			ready = l.Health.Ready()
		}
		if stopping.Err() != nil {
			ready = Unready(ReasonStopping, errors.New("it is being stopped"))
		}
		ready.write(w, r)
	})
	mux.HandleFunc("GET /statusz", func(w http.ResponseWriter, r *http.Request) {
		if l.Health.Status == nil {
			http.NotFound(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
		defer cancel()
		v, err := l.Health.Status(ctx)
		if err != nil {
			http.Error(w, scrub(err.Error()), http.StatusInternalServerError)
			return
		}
		writeJSON(w, v)
	})
	mux.Handle("GET /metrics", l.Metrics.Handler())
	if !l.Metrics.bare {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if l.Extra != nil {
		mux.Handle("/", l.Extra)
	}
	return mux
}

// Observe wraps the handler of a service: for every request one log event and one
// observation in the metrics, with route, status class, bytes in and out and duration,
// and nothing else. routes are the patterns of the handler's [http.ServeMux]; others
// count as "other". A panic becomes status 500 and an event that names where it happened.
func Observe(next http.Handler, log *slog.Logger, m *Metrics, routes []string) http.Handler {
	return observe(next, log, true, m, "", routes)
}

// Measure is Observe for handlers that write an event a request themselves: it logs
// panics alone. base stands before the paths of the handler's patterns, and not in routes.
func Measure(next http.Handler, log *slog.Logger, m *Metrics, base string, routes []string) http.Handler {
	return observe(next, log, false, m, base, routes)
}

func observe(next http.Handler, log *slog.Logger, events bool, m *Metrics, base string, routes []string) http.Handler {
	route := Label{Name: "route", Values: routes}
	class := Label{Name: "class", Values: []string{"1xx", "2xx", "3xx", "4xx", "5xx"}, Only: true}
	seconds := m.Histogram("starling_http_request_seconds", "Time to answer a request.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}, route)
	requests := m.Counter("starling_http_requests_total", "Requests answered, by the class of the status.", route, class)
	in := m.Counter("starling_http_request_bytes_total", "Bytes of request bodies read.", route)
	out := m.Counter("starling_http_response_bytes_total", "Bytes of response bodies written.", route)
	known := make(map[string]string, len(routes))
	for _, r := range routes {
		method, path, _ := strings.Cut(r, " ")
		known[method+" "+base+path] = r
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		// A copy: net/http looks at the body of its own request when it answers one that
		// nobody has read.
		body := &countingBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context())
		r.Body = body
		rec := &recorder{ResponseWriter: w}
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				// The value and the arguments on the stack may hold what must not be
				// logged; the lines may not.
				log.Error("internal error: request handler panicked", slog.Any("at", callers()))
				if rec.status == 0 {
					rec.WriteHeader(http.StatusInternalServerError)
				}
			}
			if rec.status == 0 {
				rec.status = http.StatusOK
			}
			name, ok := known[r.Pattern]
			if !ok {
				name = other
			}
			took, status := time.Since(start), strconv.Itoa(rec.status/100)+"xx"
			read := uint64(max(0, body.n.Load()))
			seconds.Observe(took.Seconds(), name)
			requests.Add(1, name, status)
			in.Add(read, name)
			out.Add(rec.n, name)
			if !events {
				return
			}
			log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("route", name), slog.String("class", status),
				slog.Uint64("bytes_in", read), slog.Uint64("bytes_out", rec.n), slog.Duration("took", took))
		}()
		next.ServeHTTP(rec, r)
	})
}

// callers names the functions and lines between the panic and the server.
func callers() []string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var s []string
	for {
		f, more := frames.Next()
		s = append(s, f.Function+":"+strconv.Itoa(f.Line))
		if !more || len(s) == cap(pcs) {
			return s
		}
	}
}

type countingBody struct {
	io.ReadCloser
	n atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// recorder remembers the status and the bytes of a response. Unwrap serves
// http.ResponseController.
type recorder struct {
	http.ResponseWriter
	status int
	n      uint64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.n += uint64(n)
	return n, err
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// writeJSON answers with v, indented for the operator's eyes.
func writeJSON(w http.ResponseWriter, v any) { writeJSONStatus(w, http.StatusOK, v) }

func writeJSONStatus(w http.ResponseWriter, status int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "cannot write the status as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
