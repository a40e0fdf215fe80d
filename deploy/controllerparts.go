package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// askPublished is how long a relay may take to say which announcement it hands out.
const askPublished = 20 * time.Second

// A running controller, as its listeners see it.
type runningController struct {
	*round.Controller
	id    recipe.ID
	terms *session.Terms
	log   *slog.Logger
	wrong atomic.Pointer[error] // what ended it
}

// Parts returns the controller as components for [service.Run], in order: the controller
// with its directories, then the local listener, the public one, and the control socket.
func (c *Controller) Parts(log *slog.Logger, open Listeners) []service.Part {
	log = log.With(slog.String("role", "controller"))
	metrics := service.NewMetrics()
	var running atomic.Pointer[runningController]
	status := func() (*round.Status, error) {
		r := running.Load()
		if r == nil {
			return nil, errNotStarted
		}
		return r.Status()
	}
	ready := func() service.Readiness {
		r := running.Load()
		if r == nil {
			return service.Unready(service.ReasonStopping, errNotStarted)
		}
		now := service.Ready(false)
		if err := r.wrong.Load(); err != nil {
			now.Release.Because(service.ReasonHeld, *err)
		}
		return now
	}
	read := func(value func(s *round.Status) int) func() float64 {
		return func() float64 {
			if s, err := status(); err == nil {
				return float64(value(s))
			}
			return 0
		}
	}
	metrics.Gauge("starling_training_rounds", "Rounds of the training at most.", read(func(s *round.Status) int { return int(s.Of) }))
	metrics.Gauge("starling_training_announced_rounds", "Rounds whose model was announced.", read(func(s *round.Status) int { return s.Begun }))
	metrics.Gauge("starling_training_stepped_rounds", "Rounds with which the model was stepped.", read(func(s *round.Status) int { return s.Stepped }))
	metrics.Gauge("starling_training_skipped_rounds", "Rounds of which nothing was released, so that the model stayed.", read(func(s *round.Status) int { return s.Skipped }))
	parts := publicParty("controller", c.Public, c.Local, log, open, metrics, ready,
		func(ctx context.Context, ready func()) error { return c.work(ctx, log, ready, &running) },
		func() http.Handler {
			if r := running.Load(); r != nil {
				return http.HandlerFunc(r.files)
			}
			return nil
		},
		func() any {
			if s, err := status(); err == nil {
				return s
			}
			return nil
		})
	if c.Control != "" {
		parts = append(parts, service.Local{
			Name: "controller control socket", Address: service.Address("unix:" + string(c.Control)), Log: log, Metrics: metrics,
			Health: service.Health{Ready: ready}, Extra: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if r := running.Load(); r != nil {
					r.control(w, req)
					return
				}
				http.Error(w, "not started", http.StatusServiceUnavailable)
			}),
		}.Part())
	}
	return parts
}

// work runs the controller. After an error that ends it for good the listeners stay, which
// say so and go on handing out what was announced: a restart would meet the same. Where
// another process has taken its journal the whole process ends.
func (c *Controller) work(ctx context.Context, log *slog.Logger, ready func(), running *atomic.Pointer[runningController]) error {
	t, err := c.Read()
	if err != nil {
		return err
	}
	f, err := openFiles(c.Data, c.Record)
	if err != nil {
		return err
	}
	own := *t.collector // whose state goes with the journal, and is not that of starling collect
	own.State = service.Path(filepath.Join(string(c.Data), "collector.state"))
	source, err := newRoundSource(&own, cmp.Or(time.Duration(c.Poll), time.Second))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o := c.options(t)
	o.Record, o.Log, o.Source = f.record, log, source
	for _, u := range c.Published {
		o.Published = append(o.Published, publishedAt(u, t.Session.Recipe))
	}
	if o.Store, err = c.store(ctx, f, log, false); err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := round.Open(ctx, o)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	x := &runningController{Controller: r, id: t.Session.Recipe, terms: &t.Session.Terms, log: log}
	running.Store(x)
	ready()
	err = r.Run(ctx)
	if errors.Is(err, round.ErrLost) { // what it would hand out is another process's by now
		return errors.Join(err, r.Close(), f.Close())
	}
	if ctx.Err() == nil {
		if err == nil {
			log.Info("the training is over; its models are still handed out")
		} else {
			log.Error("the training stops", "error", err)
			x.wrong.Store(&err)
		}
		<-ctx.Done()
	}
	return errors.Join(r.Close(), f.Close())
}

// publishedAt asks a relay as devices do.
func publishedAt(url string, id recipe.ID) round.Published {
	remote := training.Remote{URL: url, Recipe: id, Client: &http.Client{Timeout: askPublished}}
	return round.Published{Where: url, Ask: func(ctx context.Context) (*session.Announcement, error) {
		b, err := remote.Announcement(ctx)
		if errors.Is(err, training.ErrNotYet) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return session.ReadAnnouncement(b)
	}}
}

// files answers devices and relays: with the same bytes whoever asks, and whatever a
// request says of what its sender has.
func (r *runningController) files(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet || req.URL.RawQuery != "" {
		http.Error(w, "want a plain GET", http.StatusMethodNotAllowed)
		return
	}
	var b []byte
	switch path := req.URL.Path; {
	case path == "/"+session.SessionPath(r.id):
		b = r.Session()
	case path == "/"+session.AnnouncementPath(r.id):
		b = r.Announcement()
	default:
		h, err := session.ParseHash(filepath.Base(path))
		if err == nil && path == "/"+session.ModelPath(r.id, h) {
			if b, err = r.Model(h); err != nil && !errors.Is(err, round.ErrNone) {
				r.log.Error("a model cannot be read", "error", err)
				http.Error(w, "it cannot be read", http.StatusInternalServerError)
				return
			}
		}
	}
	if b == nil {
		http.Error(w, "nothing is there", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

// A TrainingSession is what the control socket says of the training.
type TrainingSession struct {
	Recipe     recipe.ID        `json:"recipe"`
	Session    session.Hash     `json:"session"`
	Controller string           `json:"controller"`
	Tensors    []sessionTensor  `json:"tensors"`
	Dimension  int              `json:"dimension"`
	Algorithm  string           `json:"algorithm"`
	LocalSteps uint32           `json:"local_steps"`
	LocalRate  float64          `json:"local_rate"`
	Clip       float64          `json:"clip"`
	Adaptive   *sessionAdaptive `json:"adaptive"`
	Rounds     uint32           `json:"rounds"`
	FirstRound uint64           `json:"first_round"`
}

type sessionTensor struct {
	Name  string   `json:"name"`
	Shape []uint32 `json:"shape"`
}

type sessionAdaptive struct {
	Quantile float64 `json:"quantile"`
	Rate     float64 `json:"rate"`
	Weight   float64 `json:"weight"`
}

func (r *runningController) session() (*TrainingSession, error) {
	s, err := session.Read(r.Session())
	if err != nil {
		return nil, err
	}
	hash, err := s.Hash()
	if err != nil {
		return nil, err
	}
	t := s.Terms
	out := &TrainingSession{Recipe: s.Recipe, Session: hash, Controller: s.Controller.String(), Dimension: t.Dimension(), Algorithm: t.Algorithm.String(),
		LocalSteps: t.LocalSteps, LocalRate: t.LocalRate, Clip: t.Clipping.Norm, Rounds: t.Rounds, FirstRound: t.FirstRound}
	for _, x := range t.Layout {
		shape := x.Shape
		if shape == nil {
			shape = []uint32{}
		}
		out.Tensors = append(out.Tensors, sessionTensor{x.Name, shape})
	}
	if a := t.Clipping.Adaptive; a != nil {
		out.Adaptive = &sessionAdaptive{a.Quantile, a.Rate, a.Weight}
	}
	return out, nil
}

// control answers a training process of this machine:
//
//	GET  /v1/session                 the session, JSON
//	GET  /v1/status                  how far the training is, JSON
//	GET  /v1/model                   parameters of the newest model, binary32, little-endian
//	GET  /v1/average                 the mean of the last models, the same
//	POST /v1/rounds                  begin a round: with the parameters in the body, or with the optimizer's if it is empty
//	GET  /v1/rounds/{index}          how far a round is, JSON
//	GET  /v1/rounds/{index}/aggregate  its mean update, binary32, little-endian
func (r *runningController) control(w http.ResponseWriter, req *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/session", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK)(r.session()) })
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK)(r.Status()) })
	mux.HandleFunc("GET /v1/model", func(w http.ResponseWriter, _ *http.Request) {
		list, clip, err := r.Parameters()
		w.Header().Set("Starling-Clip", strconv.FormatFloat(clip, 'g', -1, 64))
		floats(w, list, err)
	})
	mux.HandleFunc("GET /v1/average", func(w http.ResponseWriter, _ *http.Request) {
		list, err := r.Average()
		floats(w, list, err)
	})
	mux.HandleFunc("POST /v1/rounds", func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(http.MaxBytesReader(w, req.Body, int64(4*r.terms.Dimension())))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, fmt.Errorf("a model has %d numbers of four bytes", r.terms.Dimension()))
			return
		}
		var list []float32
		if len(b) > 0 {
			if list, err = session.ReadFloats(b); err != nil {
				refuse(w, http.StatusBadRequest, err)
				return
			}
		}
		index, err := r.Begin(req.Context(), list)
		if err != nil {
			answer(w, http.StatusCreated)(nil, err)
			return
		}
		answer(w, http.StatusCreated)(r.Round(index))
	})
	mux.HandleFunc("GET /v1/rounds/{index}", func(w http.ResponseWriter, req *http.Request) {
		answer(w, http.StatusOK)(r.Round(indexOf(req)))
	})
	mux.HandleFunc("GET /v1/rounds/{index}/aggregate", func(w http.ResponseWriter, req *http.Request) {
		list, err := r.Mean(indexOf(req))
		floats(w, list, err)
	})
	mux.ServeHTTP(w, req)
}

// indexOf is the index in a request's path; one that no round has for what is none.
func indexOf(req *http.Request) uint32 {
	n, err := strconv.ParseUint(req.PathValue("index"), 10, 32)
	if err != nil {
		return session.MaxRounds
	}
	return uint32(n)
}

// answer writes a value as JSON, or says what went wrong.
func answer(w http.ResponseWriter, status int) func(value any, err error) {
	return func(value any, err error) {
		if err != nil {
			refuse(w, statusOf(err), err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(value)
	}
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, round.ErrNone):
		return http.StatusNotFound
	case errors.Is(err, round.ErrBusy), errors.Is(err, round.ErrManual):
		return http.StatusConflict
	case errors.Is(err, round.ErrEnded):
		return http.StatusGone
	case errors.Is(err, session.ErrModel):
		return http.StatusBadRequest
	case errors.Is(err, round.ErrUnasked), errors.Is(err, round.ErrAway), errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

func floats(w http.ResponseWriter, list []float32, err error) {
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(4*len(list)))
	w.Write(session.AppendFloats(nil, list))
}
