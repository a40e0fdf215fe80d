package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

const (
	followedDir   = "followed" // in Data: what was seen of the log
	followEvery   = 5 * time.Minute
	followTimeout = time.Minute // of all that is asked of the log in one turn
	shownEpochs   = 8
	ownTime       = 3 * time.Second // of the issuer's numbers of all these, which nothing waits for
)

// followed is the log as an aggregator follows it, for what it says of credentials.
type followed struct {
	*logged.Follower
	origin     string
	deployment [32]byte
	own        func(ctx context.Context, epoch uint32) (uint64, error) // of the issuer beside the aggregator
	every      time.Duration
}

// followable reads policy and anchors, and says which log is to be followed, and where.
func (i *Issuer) followable(r *recipe.Recipe) (p *tlog.Policy, anchors *signed.Anchors, log tlog.Party, err error) {
	if p, err = ReadPolicy(string(i.Policy)); err != nil {
		return nil, nil, log, fmt.Errorf("policy: %w", err)
	}
	if anchors, err = ReadAnchors(string(i.Anchors)); err != nil {
		return nil, nil, log, fmt.Errorf("anchors: %w", err)
	}
	logs := p.Logs()
	if r.Log == nil {
		if len(logs) != 1 {
			return nil, nil, log, errors.New("policy: it knows several logs, and the recipe names none")
		}
		log = logs[0]
	}
	for _, l := range logs {
		if r.Log != nil && l.Key.Name() == r.Log.Origin {
			log = l
		}
	}
	switch {
	case log.Key == nil:
		return nil, nil, log, fmt.Errorf("policy: it does not know %s, in which the recipe stands", r.Log.Origin)
	case !p.Witnessed():
		return nil, nil, log, errors.New("policy: it asks no witness, and then the log may show each party another tree")
	case log.URL == "":
		return nil, nil, log, fmt.Errorf("policy: it does not say where %s is", log.Key.Name())
	}
	return p, anchors, log, nil
}

// follow opens what was seen of the log, and asks nobody; nil where none is followed.
func (a *Aggregator) follow(r *recipe.Recipe, manifests *manifestDir, own func(context.Context, uint32) (uint64, error), data disk.FS) (*followed, error) {
	if a.Issuer.Policy == "" {
		return nil, nil
	}
	p, anchors, log, err := a.Issuer.followable(r)
	if err != nil {
		return nil, fmt.Errorf("issuer.%w", err)
	}
	if err := disk.MakeDirs(data, followedDir); err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	remote := logged.Remote{URL: log.URL, Client: &http.Client{Timeout: followTimeout}}
	x := &followed{origin: log.Key.Name(), deployment: manifests.deployment, own: own, every: followEvery}
	x.Follower, err = logged.Follow(logged.FollowOptions{Origin: x.origin, Policy: p, Judge: logged.Judge{Anchors: anchors}, FS: disk.Sub(data, followedDir),
		Fetch: remote.Bundle, Tiles: remote.Files, Manifests: func() []*ohttp.Manifest { return manifests.all() }})
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	return x, nil
}

// start follows the log until ctx ends, while nothing waits for it; stop ends that, and
// returns when it writes no more.
func (x *followed) start(ctx context.Context, cancel func(), log *slog.Logger) (stop func()) {
	if x == nil {
		return cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.run(ctx, log)
	}()
	return func() { cancel(); <-done }
}

func (x *followed) run(ctx context.Context, log *slog.Logger) {
	x.Run(ctx, x.every, followTimeout, func(err error) {
		if err != nil {
			log.Warn("the transparency log is not found good; what it said holds on", "log", x.origin, "error", err)
			return
		}
		log.Info("the transparency log is found good again", "log", x.origin)
	})
}

// Cohort implements [aggregator.Cohorts].
func (x *followed) Cohort(deployment [32]byte, epoch uint64) (c status.Cohort) {
	if deployment != x.deployment || epoch > math.MaxUint32 {
		return c
	}
	return x.cohort(uint32(epoch))
}

func (x *followed) cohort(epoch uint32) status.Cohort {
	said := x.Said(epoch)
	of := func(role signed.Role) *uint64 {
		if n, ok := said[role]; ok {
			return &n
		}
		return nil
	}
	return status.Cohort{Epoch: epoch, Leader: of(signed.Leader), Helper: of(signed.Helper), Attester: of(signed.Attester)}
}

// Published implements [aggregator.Cohorts].
func (x *followed) Published() *status.Published {
	seen, since, why := x.State()
	p := &status.Published{Log: x.origin, Seen: seen}
	if why != nil {
		p.Failing, p.FailingSince = cmp.Or(why.Error(), "it fails"), since
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownTime)
	defer cancel()
	for i, epoch := range x.Epochs() {
		if i == shownEpochs {
			break
		}
		c := x.cohort(epoch)
		if n, err := x.own(ctx, epoch); err == nil {
			c.Issued = &n
		}
		p.Epochs = append(p.Epochs, c)
	}
	return p
}
