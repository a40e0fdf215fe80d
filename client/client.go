package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A Doer sends one HTTP request; *http.Client is one. It must be safe for concurrent use,
// and should follow no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// A Way leads requests through a relay and a gateway; *ohttp.Transport is one. It must be
// safe for concurrent use.
type Way interface {
	Doer
	// Source is where the manifests come from by which requests find their way.
	Source() ohttp.Source
	// Pace is how often at most, and at which distance, a device tries to send.
	Pace(context.Context) (tries int, every time.Duration, err error)
}

// Options configure a [Client].
type Options struct {
	// Checked is the recipe, which nobody checks again; required, or Recipe.
	Checked *recipe.Checked
	// Recipe is a recipe file, the recipe with its certificate, which [New] opens where
	// there is no Checked: a recipe that its certificate does not prove is refused. With
	// a Prover it is the recipe alone.
	Recipe []byte
	// Prover says what the recipe guarantees in place of a certificate. This package has
	// none, so that a device links an accountant only if it asks one.
	Prover recipe.Prover
	// MaxEpsilon is the largest epsilon, over the recipe's whole life, that the device
	// agrees to. Zero agrees to any that is finite; +Inf also agrees to a recipe without
	// differential privacy.
	MaxEpsilon float64
	// MinBatch is the smallest minimum batch size that the device agrees to; zero agrees
	// to any that a recipe may have.
	MinBatch uint64
	// Anchors are the root keys that came with the software; required for a recipe that
	// names signing keys, which must be among them.
	Anchors *signed.Anchors
	// AnyKeys agrees to a recipe that claims a guarantee and names no signing keys:
	// whoever answers for its servers' addresses, or made the manifest, is then trusted
	// with every answer. Without it such a recipe is refused, unless all its servers are
	// on this machine.
	AnyKeys bool
	// HTTP sends requests; nil is a client with a timeout of 30 s that follows no
	// redirects.
	HTTP Doer
	// Via, if not nil, sends every request through a relay, so that the leader does not
	// learn who uploads, and takes the aggregators' keys from its manifest; where the
	// recipe names signing keys, its source must be [*Manifests] of the recipe's
	// deployment. Each report then goes alone, for reports that come together are one
	// device's. It stands in place of HTTP.
	Via Way
	// Log is the transparency log as the device has seen it: a recipe that it does not hold
	// is refused, and the manifests of [Options.Via] come from it where the recipe names it.
	// Required for such a recipe; nil asks nobody about others.
	Log Log
	// Credentials are the device's, which it shows with every report of a recipe that
	// counts devices; required there, and for no other.
	Credentials Credentials
	// Admission gives the device's token for a round of the recipe, the same one each time
	// that it is asked, which every request shows to the gateway, covers too. It fails
	// with an error that wraps [ErrNoCredentials] where the device has none, and sits the
	// round out. Required for a recipe that asks for tokens (recipe.Tokens.Admission); it
	// must be safe for concurrent use.
	Admission func(round uint64) (voprf.Token, error)
	// Shares says that the caller is a site that holds each unit to its share, for a recipe of
	// which that is asked (recipe.SharedSum): who does not would send what the guarantee does
	// not count on, so that such a recipe is refused without it.
	Shares bool
	// Now is the device's clock; nil is time.Now.
	Now func() time.Time
	// Attempts bounds how often one request is sent while failures look temporary; zero
	// is 5. It is not for what goes through a relay.
	Attempts int
	// Tries is how what goes through a relay is sent, where that is not what the manifest
	// says.
	Tries Tries
	// MaxRequest bounds the reports in one upload request, in bytes; zero is 1 MiB. A
	// report above it goes alone.
	MaxRequest int
}

const (
	defaultAttempts   = 5
	defaultMaxRequest = 1 << 20
	firstWait         = 500 * time.Millisecond
	longestWait       = time.Minute
	requestTimeout    = 30 * time.Second
)

// A Log is a transparency log as a device has seen it; client/logbook has one.
type Log interface {
	ohttp.Source
	// Holds says whether the log holds a recipe now.
	Holds(recipe.ID) error
	// Counted says whether the log shows that the devices which a targeted recipe asks are as
	// many as it says; of any other recipe nil.
	Counted(*recipe.Recipe) error
}

// Validate says whether a client can be made: what the recipe itself says is for [New].
func (o *Options) Validate() error {
	switch {
	case (len(o.Recipe) == 0) == (o.Checked == nil):
		return errors.New("client: no recipe, or one twice: set Checked or Recipe")
	case o.Prover != nil && len(o.Recipe) == 0:
		return errors.New("client: Prover goes with Recipe")
	case !(o.MaxEpsilon >= 0):
		return fmt.Errorf("client: MaxEpsilon is %v, want 0 or more", o.MaxEpsilon)
	case o.HTTP != nil && o.Via != nil:
		return errors.New("client: HTTP and Via exclude each other")
	case o.Attempts < 0 || o.MaxRequest < 0:
		return errors.New("client: Attempts and MaxRequest must not be negative")
	}
	return o.Tries.Validate()
}

// The ways in which a request fails, beside *[dap.Problem]. Which reports a leader has
// after the last two is not known; to upload the same ones again is safe.
type (
	// StatusError is an error status without a problem document, for instance of a proxy.
	StatusError = exchange.StatusError
	// UnavailableError: every attempt failed in a way that may pass.
	UnavailableError = exchange.UnavailableError
)

// ErrAnswer: a server's answer makes no sense.
var ErrAnswer = exchange.ErrAnswer

// RefusedError: the device does not take part in this recipe.
type RefusedError struct {
	// Reason is one of the Reason constants.
	Reason Reason
	// Err has the detail.
	Err error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("client: recipe refused (%s): %v", e.Reason, e.Err)
}
func (e *RefusedError) Unwrap() error { return e.Err }

// Reason is why a recipe is refused; a closed set, fit for a metrics label.
type Reason string

const (
	ReasonMalformed   Reason = "malformed"   // the bytes are no recipe
	ReasonUnknown     Reason = "unknown"     // a choice of a later version: errors.As finds *recipe.UnknownError
	ReasonInvalid     Reason = "invalid"     // out of bounds: errors.As finds *recipe.InvalidError
	ReasonClaim       Reason = "claim"       // promises more than it gives: errors.As finds *recipe.ClaimError
	ReasonEpsilon     Reason = "epsilon"     // weaker than MaxEpsilon
	ReasonBatch       Reason = "batch"       // smaller batches than MinBatch
	ReasonCertificate Reason = "certificate" // its certificate is missing, or proves something else or nothing: *recipe.CertificateError
	ReasonKeys        Reason = "keys"        // its signing keys are missing, or not the anchors': recipe.ErrNoServerKeys, *recipe.AnchorError
	ReasonCredentials Reason = "credentials" // it counts devices by credentials, and this one was given none
	ReasonNotLogged   Reason = "not-logged"  // not in the transparency log, or the device follows none and the recipe names one
)

// A Client answers one recipe. Its methods may be called concurrently.
type Client struct {
	o       Options
	checked *recipe.Checked
	recipe  *recipe.Recipe // that was checked
	task    *dap.TaskConfiguration
	taskID  dap.TaskID
	context []byte // of the VDAF
	shard   sharder
	project func(Value) Value          // nil where vectors are sent whole
	blur    func(Value) (Value, error) // nil where values are shared as they are
	retry   exchange.Retry

	shows      atomic.Pointer[shown]          // in the last round that it was asked about
	deployment [32]byte                       // where the recipe names signing keys
	under      atomic.Pointer[ohttp.Manifest] // that the keys were taken from, where they were

	leader, helper aggregator
	pool           sync.Pool // of *scratch
}

// aggregator is one of the two, as the client sees it.
type aggregator struct {
	role dap.Role
	base *url.URL
	url  string           // as the recipe has it
	root signed.PublicKey // that vouches for its keys; zero where the recipe names none
	info []byte           // HPKE info of input shares

	mu    sync.Mutex // held over a fetch, so that many callers fetch once
	keyMu sync.RWMutex
	key   *sealingKey // nil until fetched; replaced, never changed
}

// open reads and checks the recipe of the options, unless that is done.
func (o *Options) open() (*recipe.Checked, error) {
	if o.Checked != nil {
		return o.Checked, nil
	}
	var c *recipe.Checked
	var err error
	if o.Prover != nil {
		c, err = recipe.Open(o.Recipe, o.Prover)
	} else {
		c, err = recipe.OpenFile(o.Recipe)
	}
	reason := ReasonMalformed
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, new(*recipe.UnknownError)):
		reason = ReasonUnknown
	case errors.As(err, new(*recipe.ClaimError)):
		reason = ReasonClaim
	case errors.As(err, new(*recipe.CertificateError)), errors.Is(err, recipe.ErrNoCertificate):
		reason = ReasonCertificate
	case !errors.Is(err, recipe.ErrMalformed):
		reason = ReasonInvalid
	}
	return nil, &RefusedError{reason, err}
}

// Open reads and checks the recipe, and says whether the device takes part in it: whether
// the guarantee is proved and agreed to, the anchors bear out who vouches for its servers'
// keys, and the log holds it. It fails with *[RefusedError], and as Validate. [New] does the
// same.
func (o *Options) Open() (*recipe.Checked, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	checked, err := o.open()
	if err != nil {
		return nil, err
	}
	return checked, o.accept(checked)
}

// accept says whether the device takes part in a recipe that was checked.
func (o *Options) accept(checked *recipe.Checked) error {
	r := checked.Recipe()
	if err := agree(o, r, checked.Guarantee()); err != nil {
		return err
	}
	err := r.CheckAnchors(o.Anchors)
	if errors.Is(err, recipe.ErrNoServerKeys) {
		if _, none := r.Claim.(recipe.NoClaim); none || o.AnyKeys || r.OnLoopback() {
			err = nil
		}
	}
	if err != nil {
		return &RefusedError{ReasonKeys, err}
	}
	if o.Log == nil && r.Log != nil {
		return &RefusedError{ReasonNotLogged, fmt.Errorf("it stands in the log %s, which the device does not follow: set Options.Log", r.Log.Origin)}
	}
	return o.Held(checked)
}

// now is the time by the device's clock.
func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// New makes a client for a recipe. It fails with *[RefusedError] if the device should not
// take part.
func New(o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	checked, err := o.open()
	if err != nil {
		return nil, err
	}
	r := checked.Recipe()
	if _, err := r.Task(); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	if err := o.accept(checked); err != nil {
		return nil, err
	}
	if r.Shares() > 0 && !o.Shares {
		return nil, &RefusedError{ReasonInvalid, ErrShares}
	}
	if r.Tokens != nil && o.Credentials == nil {
		return nil, &RefusedError{ReasonCredentials, errors.New("its reports show credentials: set Options.Credentials")}
	}
	if r.Tokens != nil && r.Tokens.Admission && o.Admission == nil {
		return nil, &RefusedError{ReasonCredentials, errors.New("its requests show tokens to the gateway: set Options.Admission")}
	}
	c := &Client{o: o, checked: checked, recipe: r}
	if err := c.vouched(); err != nil {
		return nil, err
	}
	if err := c.logged(); err != nil {
		return nil, err
	}
	if c.o.Via != nil {
		c.o.HTTP = c.o.Via
	}
	if c.o.HTTP == nil {
		c.o.HTTP = exchange.DefaultDoer(requestTimeout)
	}
	if c.o.Now == nil {
		c.o.Now = time.Now
	}
	if c.o.Attempts == 0 {
		c.o.Attempts = defaultAttempts
	}
	if c.o.MaxRequest == 0 {
		c.o.MaxRequest = defaultMaxRequest
	}
	c.retry = exchange.Retry{Attempts: c.o.Attempts, First: firstWait, Longest: longestWait}
	c.taskID, c.task = checked.Task()
	c.context = c.task.Version.VDAFContext(c.taskID)
	if c.shard, err = newSharder(r); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	if c.project, err = newProject(r); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	if c.blur, err = newBlur(r); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	if err := c.leader.init(c.task.Version, dap.RoleLeader, c.task.Leader, r.ServerKeys); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	if err := c.helper.init(c.task.Version, dap.RoleHelper, c.task.Helper, r.ServerKeys); err != nil {
		return nil, &RefusedError{ReasonInvalid, err}
	}
	c.pool.New = func() any { return new(scratch) }
	return c, nil
}

// vouched says whether the manifests of Via are those of the recipe's deployment.
func (c *Client) vouched() (err error) {
	if c.recipe.ServerKeys == nil {
		return nil
	}
	if c.deployment, err = c.recipe.Deployment(); err != nil {
		return &RefusedError{ReasonKeys, err}
	}
	if c.o.Via != nil {
		if m, ok := c.o.Via.Source().(*Manifests); !ok || m.Deployment() != c.deployment {
			return errors.New("client: the recipe names signing keys, and the source of Via is no Manifests of its deployment")
		}
	}
	return nil
}

// logged says whether the device has the keys that it will seal to from where all devices
// have them.
func (c *Client) logged() error {
	if c.recipe.Log == nil {
		return nil
	}
	if c.o.Via == nil {
		return errors.New("client: the recipe names a log, whose manifest has its keys: set Via")
	}
	if m := c.o.Via.Source().(*Manifests); m.o.Source != ohttp.Source(c.o.Log) { // or it was not vouched for
		return errors.New("client: the recipe names a log, and the manifests of Via do not come from it")
	}
	return nil
}

// Held says whether the log, where the device follows one, holds the recipe now, and what
// its targeting rests on. It fails with *[RefusedError].
func (o *Options) Held(checked *recipe.Checked) error {
	if o.Log == nil {
		return nil
	}
	if err := errors.Join(o.Log.Holds(checked.ID()), o.Log.Counted(checked.Recipe())); err != nil {
		return &RefusedError{ReasonNotLogged, err}
	}
	return nil
}

// Counted says whether a log that the client follows shows that the devices which the recipe
// asks are as many as it says ([Log]).
func (c *Client) Counted() error { return c.o.Counted(c.recipe) }

// Counted says the same of any recipe and the log of these options.
func (o *Options) Counted(r *recipe.Recipe) error {
	if o.Log == nil {
		return errors.New("client: no log shows how many devices the recipe asks")
	}
	return o.Log.Counted(r)
}

// agree holds the recipe to what the device's owner wants.
func agree(o *Options, r *recipe.Recipe, g *recipe.Guarantee) error {
	if !g.Finite() && !math.IsInf(o.MaxEpsilon, 1) {
		return &RefusedError{ReasonEpsilon, errors.New("it gives no differential privacy")}
	}
	if o.MaxEpsilon > 0 && g.Epsilon > o.MaxEpsilon {
		return &RefusedError{ReasonEpsilon, fmt.Errorf("it gives %v, and at most epsilon %v is agreed to", g.Loss, o.MaxEpsilon)}
	}
	if r.MinBatch < o.MinBatch {
		return &RefusedError{ReasonBatch, fmt.Errorf("it releases batches of %d, and at least %d are agreed to", r.MinBatch, o.MinBatch)}
	}
	return nil
}

func (a *aggregator) init(v dap.Version, role dap.Role, endpoint []byte, keys *recipe.ServerKeys) (err error) {
	a.role, a.info, a.url = role, v.InputShareInfo(role), string(endpoint)
	if keys != nil {
		if a.root = keys.Leader; role == dap.RoleHelper {
			a.root = keys.Helper
		}
	}
	a.base, err = dap.BaseURL(endpoint)
	return err
}

// Source is where the manifests come from that the aggregators' keys are taken from; nil
// where the aggregators are asked.
func (c *Client) Source() ohttp.Source {
	if c.o.Via == nil {
		return nil
	}
	return c.o.Via.Source()
}

// Checked is the recipe that is answered, with what was proved of it.
func (c *Client) Checked() *recipe.Checked { return c.checked }

// Recipe is the recipe that is answered; not to be changed.
func (c *Client) Recipe() *recipe.Recipe { return c.recipe }

// RecipeID names it.
func (c *Client) RecipeID() recipe.ID { return c.checked.ID() }

// Guarantee is what was proved of it.
func (c *Client) Guarantee() *recipe.Guarantee { return c.checked.Guarantee() }

// Task is the DAP task that reports are for.
func (c *Client) Task() (dap.TaskID, *dap.TaskConfiguration) { return c.taskID, c.task }
