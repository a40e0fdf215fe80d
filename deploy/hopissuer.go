package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/showing"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A HopIssuer gives devices their credentials, beside a hop.
type HopIssuer struct {
	// Keys is the directory of its keys, one an epoch, as starling key issuer makes them.
	// Required where a recipe is of the mode tokens.
	Keys service.Path `toml:"keys"`
	// Manifests is a directory of the epochs' manifests, NAME.manifest, which say whom it
	// answers and how often; it is looked at all the time. Required together with it.
	Manifests service.Path `toml:"manifests"`
}

func (i HopIssuer) used() bool { return i != (HopIssuer{}) }

// issues is what the issuer beside a hop goes by.
type issues struct {
	*recipe.Recipe // the first that shows credentials; of all, deployment and attester are its
	// grace is the longest of all recipes that show credentials: until then presentations
	// of an epoch are verified.
	grace time.Duration
}

// keep is for how long after its epoch a key is kept.
func (i *issues) keep(hold time.Duration) time.Duration {
	if hold == 0 {
		hold = hop.DefaultHold
	}
	return i.grace + hold + lateReports
}

// issues says what the issuer beside a hop goes by; nil where no recipe shows credentials.
func (c *Hop) issues(recipes []*recipe.Recipe) (found *issues, err error) {
	for _, r := range recipes {
		if r.Tokens == nil {
			continue
		}
		if found == nil {
			found = &issues{r, r.Grace()}
			continue
		}
		found.grace = max(found.grace, r.Grace())
		of, err := found.Deployment()
		other, err2 := r.Deployment()
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		if of != other || found.Tokens.Key != r.Tokens.Key {
			return nil, errors.New("issuer: recipes count devices of two deployments or attesters, and an issuer is of one")
		}
	}
	switch {
	case found != nil && !c.Issuer.used():
		return nil, errors.New("issuer.keys: required, for a recipe shows credentials to this hop; starling key issuer makes them")
	case found == nil && c.Issuer.used():
		return nil, errors.New("issuer: no recipe shows credentials to this hop")
	}
	return found, nil
}

// role is the hop's, as issuers and orders name it.
func (c *Hop) role() signed.Role { return [...]signed.Role{signed.Hop1, signed.Hop2}[c.Number-1] }

// A hopIssuer has the directory of its keys open.
type hopIssuer struct {
	*issuer.Issuer
	keys   *disk.OSFS
	length uint64 // of an epoch, in seconds
	root   signed.PublicKey
}

func (x *hopIssuer) Close() error { return errors.Join(x.Issuer.Close(), x.keys.Close()) }

// openIssuer opens the issuer beside a hop, whose register is in the hop's data.
func (c *Hop) openIssuer(by *issues, root signed.PublicKey, data disk.FS, log *slog.Logger) (*hopIssuer, error) {
	r := by.Recipe
	manifests, err := manifestsOf(c.Issuer.Manifests, r, log)
	if err != nil {
		return nil, err
	}
	keys, err := disk.OS(string(c.Issuer.Keys))
	if err != nil {
		return nil, fmt.Errorf("issuer.keys: %w", err)
	}
	if err := disk.MakeDirs(data, registerDir); err != nil {
		return nil, errors.Join(fmt.Errorf("issuer: %w", err), keys.Close())
	}
	length := time.Duration(r.EpochLength()) * time.Second
	x, err := issuer.New(issuer.Options{
		Role: c.role(), Deployment: manifests.deployment, Epoch: length, Keys: keys, Register: disk.Sub(data, registerDir), Log: log, Keep: by.keep(time.Duration(c.Hold)),
		Terms: func(epoch uint32) (t issuer.Terms, ok bool) {
			m, begin := manifests.of(epoch)
			if m == nil || m.Issuers.Attester != r.Tokens.Key {
				return t, false
			}
			key := m.Issuers.Leader
			if c.Number == 2 {
				key = m.Issuers.Helper
			}
			return issuer.Terms{Key: key, Attester: m.Issuers.Attester, Cap: m.Issuers.Cap, Begin: begin}, true
		},
	})
	if err != nil {
		return nil, errors.Join(err, keys.Close())
	}
	return &hopIssuer{x, keys, uint64(r.EpochLength()), root}, nil
}

// tokens is what a hop knows what is shown by, of a recipe.
func (x *hopIssuer) tokens(role onion.Role, s *onion.Shuffle) hop.Tokens {
	return showing.NewVerifier(role, s.Recipe, s.Messages, func(ctx context.Context, round uint64) (*arc.Verifier, arc.KeyID, error) {
		epoch, err := arc.EpochOf(round, uint64(s.Length/time.Second), x.length)
		if err != nil || epoch > math.MaxUint32 {
			return nil, arc.KeyID{}, fmt.Errorf("%w: round %d is of no epoch", showing.ErrNoKey, round)
		}
		v, key, err := x.Verifier(ctx, x.Deployment(), epoch)
		if errors.Is(err, issuer.ErrNoKey) {
			err = fmt.Errorf("%w: %w", showing.ErrNoKey, err)
		}
		return v, key, err
	})
}

// An issuingHop is a hop with its issuer.
type issuingHop struct {
	*hop.Hop
	issuer *hopIssuer
	log    *slog.Logger
}

// ServeHTTP answers orders of the attester, and all else as the hop does.
func (h *issuingHop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isOrder(r, "") {
		h.issuer.ServeHTTP(w, r)
		return
	}
	h.Hop.ServeHTTP(w, r)
}

// Run implements mixer.
func (h *issuingHop) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	retired := make(chan struct{})
	go func() { retires(ctx, h.issuer, h.log); close(retired) }()
	err := h.Hop.Run(ctx)
	cancel()
	<-retired
	return err
}

// Close implements mixer.
func (h *issuingHop) Close() error { return errors.Join(h.Hop.Close(), h.issuer.Close()) }

// hopCohort answers at the hop's local listener how many devices its issuer has answered.
func (c *Hop) hopCohort(running *atomic.Pointer[issuingHop]) http.Handler {
	return status.Operated("", func(w http.ResponseWriter, r *http.Request) error {
		h := running.Load()
		if r.URL.Path != CohortPath || h == nil {
			return &status.BadRequest{Err: errors.New("nothing of that name, not started, or a hop without an issuer")}
		}
		return answerCohort(w, r, c.role().String(), h.issuer.Deployment(), h.issuer.root, h.issuer.Count)
	})
}
