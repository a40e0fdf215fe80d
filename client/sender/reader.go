package sender

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A Reader shows what is in a purse that another process keeps up to date, as starling visit
// does: credentials, tokens of admission, and the log. It reads the directory anew when what
// it has is some minutes old, and fetches nothing, so that no time of its tells of a round.
// It is safe for concurrent use.
type Reader struct {
	purse   Purse
	id      recipe.ID
	policy  *tlog.Policy // nil where the recipe names no log
	anchors *signed.Anchors

	mu   sync.Mutex
	at   time.Time
	seen *purseSeen // nil until it was read
}

// purseSeen is what a purse held when it was read.
type purseSeen struct {
	held  client.Credentials
	admit func(uint64) (voprf.Token, error)
	book  *logbook.Logbook
}

// rereadAfter is how old what was read of a purse may be.
const rereadAfter = 2 * time.Minute

var errFetches = errors.New("sender: who sends fetches nothing of the log, or its time would tell; starling visit does")

// NewReader reads a purse. policy is for a recipe that names a log. It fails as [Purse.Open]
// and [OpenPurse.Logbook].
func NewReader(p Purse, policy *tlog.Policy, anchors *signed.Anchors) (*Reader, error) {
	id, err := p.Recipe.ID()
	if err != nil {
		return nil, err
	}
	r := &Reader{purse: p, id: id, policy: policy, anchors: anchors}
	_, err = r.now()
	return r, err
}

// now is what the purse holds. Where another process has the directory, it is what was read
// before.
func (r *Reader) now() (*purseSeen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != nil && time.Since(r.at) < rereadAfter {
		return r.seen, nil
	}
	s, err := r.read()
	if busy := new(BusyError); errors.As(err, &busy) && r.seen != nil {
		return r.seen, nil
	}
	if err != nil {
		return nil, err
	}
	r.seen, r.at = s, time.Now()
	return s, nil
}

func (r *Reader) read() (_ *purseSeen, err error) {
	p, err := r.purse.Open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	s := new(purseSeen)
	if t := r.purse.Recipe.Tokens; t != nil {
		s.held = p.Wallet.For(t.MinCohort)
		if t.Admission {
			s.admit = p.Wallet.Admission(r.id)
		}
	}
	if r.purse.Recipe.Log != nil {
		s.book, err = p.Logbook(logbook.Options{Anchors: r.anchors, Policy: r.policy, Fetch: func(context.Context) ([]byte, error) { return nil, errFetches }})
	}
	return s, err
}

// Held implements [client.Credentials].
func (r *Reader) Held(epoch uint64) (*client.Held, error) {
	s, err := r.now()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrNoCredentials, err)
	}
	return s.held.Held(epoch)
}

// Admission is for client.Options.
func (r *Reader) Admission(round uint64) (voprf.Token, error) {
	s, err := r.now()
	if err != nil {
		return voprf.Token{}, fmt.Errorf("%w: %w", client.ErrNoCredentials, err)
	}
	return s.admit(round)
}

// Manifest implements [ohttp.Source].
func (r *Reader) Manifest(ctx context.Context) (*ohttp.Manifest, error) {
	s, err := r.now()
	if err != nil {
		return nil, err
	}
	return s.book.Manifest(ctx)
}

// Holds implements [client.Log].
func (r *Reader) Holds(id recipe.ID) error {
	s, err := r.now()
	if err != nil {
		return err
	}
	return s.book.Holds(id)
}

// Counted implements [client.Log].
func (r *Reader) Counted(of *recipe.Recipe) error {
	s, err := r.now()
	if err != nil {
		return err
	}
	return s.book.Counted(of)
}

// Through has a client show what the purse holds, and goes by its log.
func (r *Reader) Through(o *Options) {
	if t := r.purse.Recipe.Tokens; t != nil {
		o.Client.Credentials = r
		if t.Admission {
			o.Client.Admission = r.Admission
		}
	}
	if r.purse.Recipe.Log != nil {
		o.Manifest, o.Client.Log = r, r
	}
}
