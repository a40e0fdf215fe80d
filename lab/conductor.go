package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A conductor is the controller of a lab's training: its files, its part among the servers,
// and what a training process asks it.
type conductor struct {
	listeners deploy.Listeners
	key       *signed.PrivateKey
	terms     *session.Terms
	steps     optimizer.Config
	start     []float32
	status    string // where its operator looks
	process   *http.Client
}

const (
	controllerDir  = "controller"
	controlSocket  = "control.sock"
	announcedEvery = 100 * time.Millisecond
	// patience is how long a lab waits for a controller that does nothing.
	patience = 2 * time.Minute
)

func newConductor(terms *session.Terms, steps optimizer.Config, start []float32) (c *conductor, err error) {
	c = &conductor{key: signed.Generate(), terms: terms, steps: steps, start: start}
	c.listeners, err = deploy.LoopbackParty()
	return c, err
}

// names is what a recipe says of the training.
func (c *conductor) names() (*recipe.Training, error) {
	hash, err := c.terms.Hash()
	return &recipe.Training{Controller: c.key.Public(), Terms: hash}, err
}

// create adds the controller to the files of a deployment, and has the relay hand out what
// it publishes.
func (c *conductor) create(dir string, r *recipe.Recipe) error {
	// The rest of a round whose model is announced late is for devices.
	late := max(0, min(settling, time.Duration(r.TimePrecision)*time.Second-time.Second))
	id, err := r.ID()
	if err != nil {
		return err
	}
	initial := session.AppendFloats(nil, c.start)
	var terms, config strings.Builder
	fmt.Fprintf(&terms, "algorithm = %q\nclip = %s\nrounds = %d\n", c.terms.Algorithm.String(), float(c.terms.Clipping.Norm), c.terms.Rounds)
	if c.terms.Algorithm == session.FedAvg {
		fmt.Fprintf(&terms, "local_steps = %d\nlocal_rate = %s\n", c.terms.LocalSteps, float(c.terms.LocalRate))
	}
	if a := c.terms.Clipping.Adaptive; a != nil {
		fmt.Fprintf(&terms, "[adaptive]\nquantile = %s\nrate = %s\nweight = %s\n", float(a.Quantile), float(a.Rate), float(a.Weight))
	}
	for _, x := range c.terms.Layout {
		fmt.Fprintf(&terms, "[[tensor]]\nname = %q\nshape = %s\n", x.Name, strings.ReplaceAll(fmt.Sprint(x.Shape), " ", ", "))
	}
	fmt.Fprintf(&config, `role = "controller"
data = %q
control = %q
key = "secrets/controller.key"
collector = %q
terms = %q
initial = "initial.f32"
poll = "100ms"
manual = true
late = %q

[public]
address = %q
[local]
address = %q
[optimizer]
kind = %q
rate = %s
momentum = %s
`, controllerDir, controlSocket, deploy.CollectorFile, deploy.TermsFile, late, c.listeners.Public.Addr(), c.listeners.Local.Addr(), c.steps.Kind, float(c.steps.Rate),
		float(c.steps.Momentum))
	for name, b := range map[string][]byte{
		deploy.TermsFile: []byte(terms.String()), deploy.ControllerFile: []byte(config.String()), "initial.f32": initial, "secrets/controller.key": c.key.Marshal(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	relay, err := os.OpenFile(filepath.Join(dir, deploy.RelayFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	_, err = fmt.Fprintf(relay, "\n[[trainings]]\ncontroller = %q\nrecipe = %q\nevery = %q\n", c.listeners.URL(), id, announcedEvery)
	return errors.Join(err, relay.Close())
}

// float is a number as TOML has it.
func float(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// parts is the controller as it starts from its files.
func (c *conductor) parts(dir string, log *slog.Logger) ([]service.Part, error) {
	config, err := deploy.LoadController(filepath.Join(dir, deploy.ControllerFile))
	if err != nil {
		return nil, err
	}
	c.status = c.listeners.Local.Addr().String()
	socket := string(config.Control)
	c.process = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	return config.Parts(log, c.listeners), nil
}

// ask is what a training process of the controller's machine asks of it.
func (c *conductor) ask(ctx context.Context, method, path string) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://controller/v1/"+path, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := c.process.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the controller: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(4*c.terms.Dimension())+1))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(b))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("ask the controller for %s: %w", path, err)
	}
	return b, resp.Header, nil
}

// begin has the controller announce the next round.
func (c *conductor) begin(ctx context.Context) error {
	_, _, err := c.ask(ctx, http.MethodPost, "rounds")
	return err
}

// model is the newest.
func (c *conductor) model(ctx context.Context) (*train.Model, error) {
	b, header, err := c.ask(ctx, http.MethodGet, "model")
	if err != nil {
		return nil, err
	}
	m := new(train.Model)
	m.Parameters, err = session.ReadFloats(b)
	if err == nil {
		m.Clip, err = strconv.ParseFloat(header.Get("Starling-Clip"), 64)
	}
	if err != nil {
		return nil, fmt.Errorf("the controller's model: %w", err)
	}
	return m, nil
}

// announced waits until the relay hands out the announcement of a round, by its index.
func announced(ctx context.Context, by *training.Follower, index uint32) (*session.Announcement, error) {
	var a *session.Announcement
	return a, until(ctx, func() (ok bool, err error) {
		if a, err = by.Newest(ctx); errors.Is(err, training.ErrNotYet) {
			return false, nil
		}
		return err == nil && a.Index >= index, err
	})
}

// conducted is what a lab reads of a [round.Round].
type conducted struct {
	State   string `json:"state"`
	Reports uint64 `json:"reports"`
	Stepped bool   `json:"stepped"`
}

// ended waits until the controller is done with a round.
func (c *conductor) ended(ctx context.Context, f *frame, index uint32) (r conducted, err error) {
	return r, until(ctx, func() (bool, error) {
		var s struct {
			Rounds []conducted `json:"rounds"`
		}
		if err := f.readStatus(ctx, c.status, &s); err != nil || int(index) >= len(s.Rounds) {
			return false, err
		}
		r = s.Rounds[index]
		return r.Stepped || r.State == round.Skipped.String(), nil
	})
}

// until asks again and again, for as long as a lab is patient.
func until(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the controller does nothing: lab.log in --keep DIR says why"))
	defer cancel()
	t := time.NewTicker(announcedEvery)
	defer t.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
