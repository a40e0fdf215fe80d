package participate

import (
	"context"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// answers make what carries an answer on a path, and send it. They are safe for concurrent
// use.
type answers interface {
	Checked() *recipe.Checked
	Recipe() *recipe.Recipe
	RecipeID() recipe.ID
	Source() ohttp.Source
	Counted() error
	Kind(client.Value) (recipe.Answer, error)
	Lasts(*ohttp.Manifest) error
	Refresh(context.Context) error

	creditable(t time.Time) error
	make(v client.Value, t time.Time) (carrier, error)
}

// A carrier is what one device sends in a round, once made.
type carrier interface {
	send(context.Context) error
	cover(context.Context) error
}

// reports are those to leader and helper.
type reports struct{ *client.Client }

func (r reports) creditable(t time.Time) error { return r.Creditable(t) }

func (r reports) make(v client.Value, t time.Time) (carrier, error) {
	made, err := r.Prepare(v, t)
	return &sealedReport{r.Client, made}, err
}

type sealedReport struct {
	c      *client.Client
	report dap.Report
}

func (r *sealedReport) cover(ctx context.Context) error { return r.c.Cover(ctx, &r.report) }

func (r *sealedReport) send(ctx context.Context) error {
	refused, err := r.c.Upload(ctx, []dap.Report{r.report})
	if err == nil && len(refused) > 0 {
		err = refused[0].Error
	}
	return err
}

// contributions are those of the shuffled and the direct path.
type contributions struct{ *contribute.Contributor }

func (c contributions) creditable(t time.Time) error { return c.Creditable(t) }

func (c contributions) make(v client.Value, t time.Time) (carrier, error) {
	made, err := c.Prepare(v, t)
	return &envelope{c.Contributor, made}, err
}

type envelope struct {
	c    *contribute.Contributor
	made []byte
}

func (e *envelope) send(ctx context.Context) error  { return e.c.Send(ctx, e.made) }
func (e *envelope) cover(ctx context.Context) error { return e.c.Cover(ctx) }
