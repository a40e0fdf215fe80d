package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/shuffle/hop"
)

// addTimeout is how long a log may take over one entry.
const addTimeout = 30 * time.Second

// publishers are the logs in which recipes stand, by their ids.
type publishers map[[32]byte]logged.Remote

// add finds the log in which a recipe stands, by the policy that devices have; a recipe that
// names none needs no policy.
func (p publishers) add(policy service.Path, id [32]byte, r *recipe.Recipe) error {
	if r.Log == nil {
		return nil
	}
	if policy == "" {
		return fmt.Errorf("it stands in the log %s: policy is required, the file that devices have", r.Log.Origin)
	}
	known, err := ReadPolicy(string(policy))
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	for _, l := range known.Logs() {
		if l.Key.Name() != r.Log.Origin {
			continue
		}
		if l.URL == "" {
			return fmt.Errorf("policy: it does not say where %s is", r.Log.Origin)
		}
		p[id] = logged.Remote{URL: l.URL, Client: &http.Client{Timeout: addTimeout}}
		return nil
	}
	return fmt.Errorf("policy: it does not know %s, in which the recipe stands", r.Log.Origin)
}

// publish puts a publication into the log of its recipe; nil where no recipe names one.
func (p publishers) publish() func(context.Context, *hop.Publication) error {
	if len(p) == 0 {
		return nil
	}
	return func(ctx context.Context, x *hop.Publication) error {
		remote, ok := p[x.Recipe]
		if !ok {
			return errors.New("deploy: internal error: a publication of another recipe")
		}
		e := tlog.Entry{Kind: tlog.KindShuffleKeys, Body: x.KeyList}
		if x.KeyList == nil {
			e = tlog.Entry{Kind: tlog.KindBatch, Body: x.Manifest}
		}
		b, err := e.Append(nil)
		if err != nil {
			return err
		}
		_, _, err = remote.Add(ctx, logserver.EntryMedia, b)
		return err
	}
}
