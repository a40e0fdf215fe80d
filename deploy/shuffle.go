package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// This file has what hops and analyzer have in common.

// ShuffleLimits are those of a hop or an analyzer, as a file has them.
type ShuffleLimits struct {
	// RequestBytes is the largest request. Default 8 MiB.
	RequestBytes int64 `toml:"request_bytes"`
	// InFlightBytes bounds the bytes of all request bodies held at one time. Default 64 MiB.
	InFlightBytes int64 `toml:"in_flight_bytes"`
	// Requests are worked on at one time. Default 256.
	Requests int `toml:"requests"`
	// Contributions is how many a round takes, and never more than a batch may have messages.
	// Default 1,048,576.
	Contributions int `toml:"contributions"`
	// MinFree is how many bytes are to be left free on the disk; below it nobody brings
	// anything. Default 256 MiB; negative: no bound.
	MinFree int64 `toml:"min_free"`
	// BodyTimeout is how long a sender may take over a request's body. Default 30s.
	BodyTimeout service.Duration `toml:"body_timeout"`
	// AnswerTimeout is how long the next party may take over one request. Default 1m.
	AnswerTimeout service.Duration `toml:"answer_timeout"`
	// Workers open messages at one time. Default as many as there are processors.
	Workers int `toml:"workers"`
}

func (l ShuffleLimits) limits() hop.Limits {
	return hop.Limits{Body: l.RequestBytes, InFlight: l.InFlightBytes, Requests: l.Requests, Contributions: l.Contributions, MinFree: l.MinFree,
		BodyTimeout: time.Duration(l.BodyTimeout), AnswerTimeout: time.Duration(l.AnswerTimeout), Workers: l.Workers}
}

// A mixing is what the files of a hop and of an analyzer both say.
type mixing struct {
	public     service.Listen
	local      Local
	data       service.Path
	key        service.Secret
	delegation service.Path
	ahead      int
	hold       service.Duration
	limits     ShuffleLimits
}

// validate says what is wrong with it by itself.
func (c mixing) validate(f *Faults) {
	f.Add("public: ", c.public.Validate())
	f.Add("local.address: ", service.Local{Address: c.local.Address}.Validate())
	f.If(c.data == "", "data: the directory of rounds is required")
	f.If(c.key == "" || c.delegation == "", "key, delegation: required; starling key online makes both")
	f.If(c.ahead < 0, "ahead: negative")
	f.If(c.hold < 0, "hold: negative")
	if low := negatives(c.limits, "min_free"); low != nil {
		f.Add("limits.", low)
	} else {
		f.Add("limits: ", c.limits.limits().Validate())
	}
}

// readTokens reads files of tokens.
func readTokens(files []service.Secret, what string) (tokens []string, err error) {
	var f Faults
	for i, file := range files {
		token, err := file.Text()
		if err != nil {
			f.Add(fmt.Sprintf("%s[%d]: ", what, i), err)
			continue
		}
		f.If(slices.Contains(tokens, token), "%s[%d]: %s stands twice", what, i, file)
		tokens = append(tokens, token)
	}
	return tokens, f.All()
}

// A mixed recipe is what a hop or an analyzer has of one.
type mixed struct {
	*onion.Shuffle
	recipe    *recipe.Recipe
	parties   []recipe.Party // that its messages pass, the analyzer last
	messenger *recipe.Messenger
}

// mix reads a recipe without proofs. The owner must be that of the party in whose place who
// asks stands: 0 for hop 1, 1 for hop 2, or -1 for the analyzer.
func mix(path service.Path, place int, owner signed.PublicKey) (*mixed, error) {
	checked, err := OpenRecipe(string(path))
	if err != nil {
		return nil, err
	}
	r := checked.Recipe()
	m := &mixed{recipe: r, parties: r.Parties()}
	if m.Shuffle, err = r.Shuffle(); err == nil {
		m.messenger, err = r.Messenger()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	analyzer := len(m.parties) - 1
	if place >= analyzer {
		return nil, fmt.Errorf("%s: its path is direct, and has no hops", path)
	}
	if place < 0 {
		place = analyzer
	}
	if root := m.parties[place].Key; root != owner {
		return nil, fmt.Errorf("%s: it names another root, %s, and delegation is of %s", path, root, owner)
	}
	return m, nil
}

// A mixer is a hop or an analyzer.
type mixer interface {
	http.Handler
	Run(context.Context) error
	Close() error
	Status() *hop.Status
	Err() error
}

// A mixerSeat is the place of one in a process: what is there of it before it is open, and
// after it is closed.
type mixerSeat struct {
	running atomic.Pointer[mixer]
	// requests is held by each request, which does not wait for it, and to close.
	requests sync.RWMutex
}

// ServeHTTP implements [http.Handler].
func (s *mixerSeat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.requests.TryRLock() {
		defer s.requests.RUnlock()
		if m := s.running.Load(); m != nil {
			(*m).ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, errNotStarted.Error(), http.StatusServiceUnavailable)
}

func (s *mixerSeat) status() *hop.Status {
	if s.requests.TryRLock() {
		defer s.requests.RUnlock()
		if m := s.running.Load(); m != nil {
			return (*m).Status()
		}
	}
	return nil
}

// ready says what it can do: take, and get rid of what it has.
func (s *mixerSeat) ready() service.Readiness {
	now := s.status()
	if now == nil {
		return service.Unready(service.ReasonStopping, errNotStarted)
	}
	r := service.Ready(false)
	if now.Trouble != "" {
		r.Take.Because(service.ReasonStore, errors.New(now.Trouble))
		r.Release.Because(service.ReasonStore, errors.New(now.Trouble))
		return r
	}
	for _, x := range now.Shuffles {
		for _, round := range x.Rounds {
			if round.Trouble != "" {
				r.Release.Because(service.ReasonPeer, fmt.Errorf("round %d: %s", round.Round, round.Trouble))
				return r
			}
		}
	}
	return r
}

// live opens a mixer in its directory and runs it until ctx ends or it fails.
func (s *mixerSeat) live(ctx context.Context, data service.Path, ready func(), open func(*files) (mixer, error)) error {
	fsys, err := locked("data", string(data))
	if err != nil {
		return err
	}
	m, err := open(&files{data: fsys})
	if err != nil {
		return errors.Join(err, fsys.Close())
	}
	s.running.Store(&m)
	ready()
	err = m.Run(ctx)
	s.running.Store(nil)
	s.requests.Lock() // those that are under way end before what they use is closed
	defer s.requests.Unlock()
	return errors.Join(err, m.Close(), fsys.Close())
}

// parts are a mixer with its directory, its local listener, then the public one.
func (s *mixerSeat) parts(name string, c mixing, log *slog.Logger, open Listeners, make func(*files) (mixer, error), extra ...http.Handler) []service.Part {
	metrics := service.NewMetrics()
	sum := func(of func(hop.ShuffleStatus) uint64) (n float64) {
		if now := s.status(); now != nil {
			for _, x := range now.Shuffles {
				n += float64(of(x))
			}
		}
		return n
	}
	metrics.Counts("starling_shuffle_arrivals_total", "What came since the start, contributions or pieces of batches, by what became of it.",
		service.Label{Name: "outcome", Values: hop.Words(), Only: true}, func(word string) float64 {
			return sum(func(x hop.ShuffleStatus) uint64 { return x.Requests[word] })
		})
	metrics.Counts("starling_shuffle_rounds_total", "Rounds that have ended, over all starts, by how.",
		service.Label{Name: "outcome", Values: hop.Outcomes(), Only: true}, func(word string) float64 {
			return sum(func(x hop.ShuffleStatus) uint64 { return x.Totals.Rounds[word] })
		})
	return publicParty(name, c.public, c.local, log, open, metrics, s.ready,
		func(ctx context.Context, ready func()) error { return s.live(ctx, c.data, ready, make) },
		func() http.Handler { return s },
		func() any {
			if now := s.status(); now != nil {
				return now
			}
			return nil
		}, extra...)
}
