package contribute

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// Options configure a [Contributor].
type Options struct {
	// Client says which recipe is answered, what the device agrees to, and how it sends; its
	// Credentials are those of the issuers beside hop 1 and hop 2, in the places of leader's
	// and helper's, and its Admission is not for recipes of these paths. Where it has Via,
	// that is of a source of this package's [Manifests]. Required.
	Client client.Options
	// Lists asks parties for key lists that Client.Via does not have; it goes with Via. nil is
	// a client with a timeout of 30 s that follows no redirects.
	Lists client.Doer
}

// Validate says whether a contributor can be made: what the recipe itself says is for [New].
func (o *Options) Validate() error {
	if o.Lists != nil && o.Client.Via == nil {
		return errors.New("contribute: Lists goes with Client.Via")
	}
	return o.Client.Validate()
}

const (
	defaultAttempts   = 5
	defaultMaxRequest = 1 << 20
	firstWait         = 500 * time.Millisecond
	longestWait       = time.Minute
	requestTimeout    = 30 * time.Second
	// clockSkew is by how much a device's clock may differ from a party's.
	clockSkew = time.Minute
)

// A KeyLog is a transparency log that holds the key lists of hops and analyzers, one key of a
// party for a round; client/logbook has one.
type KeyLog interface {
	client.Log
	// ShuffleKeys is the signed list of one round, of a role, by its owner's root key.
	ShuffleKeys(recipe [32]byte, role onion.Role, round uint64, root signed.PublicKey) ([]byte, error)
}

// A party is one that a contribution reaches.
type party struct {
	role onion.Role
	url  *url.URL // its base
	root signed.PublicKey
}

// A Contributor answers one recipe. Its methods may be called concurrently.
type Contributor struct {
	o         client.Options
	checked   *recipe.Checked
	recipe    *recipe.Recipe // that was checked
	shuffle   *onion.Shuffle
	messenger *recipe.Messenger
	parties   []party // in the order in which a contribution reaches them
	lists     client.Doer
	log       KeyLog // has the lists where the recipe names a log, and is nil where it names none
	retry     exchange.Retry

	mu    sync.Mutex // held over a fetch, so that many callers fetch once
	keyMu sync.RWMutex
	held  []*onion.KeyList                   // one of each party; nil before the first; replaced, never changed
	seen  map[roleRound][signed.KeySize]byte // guarded by mu: keys of rounds that are not over

	showMu sync.Mutex
	shows  map[uint64]bool // guarded by showMu: rounds of which a contribution is made that shows credentials
}

type roleRound struct {
	role  onion.Role
	round uint64
}

// New makes a contributor. It fails with *[client.RefusedError] if the device should not take
// part, and where the recipe is of a path on which devices send shares.
func New(o Options) (*Contributor, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	checked, err := o.Client.Open()
	if err != nil {
		return nil, err
	}
	c := &Contributor{o: o.Client, checked: checked, recipe: checked.Recipe(), lists: o.Lists, seen: make(map[roleRound][signed.KeySize]byte), shows: make(map[uint64]bool)}
	if c.shuffle, err = c.recipe.Shuffle(); err == nil {
		c.messenger, err = c.recipe.Messenger()
	}
	if err != nil {
		return nil, &client.RefusedError{Reason: client.ReasonInvalid, Err: err}
	}
	if c.recipe.Tokens != nil && c.o.Credentials == nil {
		return nil, &client.RefusedError{Reason: client.ReasonCredentials, Err: errors.New("its contributions show credentials: set Client.Credentials")}
	}
	roles := []onion.Role{onion.First, onion.Second, onion.Analyzer}
	if c.shuffle.Direct() {
		roles = []onion.Role{onion.Direct}
	}
	for i, p := range c.recipe.Parties() {
		base, err := dap.BaseURL([]byte(p.URL))
		if err != nil {
			return nil, &client.RefusedError{Reason: client.ReasonInvalid, Err: err}
		}
		c.parties = append(c.parties, party{roles[i], base, p.Key})
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
	if c.o.HTTP == nil {
		c.o.HTTP = exchange.DefaultDoer(requestTimeout)
	}
	if c.o.Via == nil {
		c.lists = c.o.HTTP
	} else if m, ok := c.o.Via.Source().(*Manifests); !ok || m.gateway != c.recipe.GatewayKey() {
		return nil, errors.New("contribute: the source of Via is no Manifests of the recipe's gateway")
	} else if c.lists == nil {
		c.lists = c.o.HTTP
	}
	if c.recipe.Log != nil {
		var ok bool
		if c.log, ok = c.o.Log.(KeyLog); !ok {
			return nil, errors.New("contribute: the recipe names a log, and Client.Log is none that holds key lists")
		}
		if c.o.Via != nil && c.o.Via.Source().(*Manifests).o.Source != ohttp.Source(c.o.Log) {
			return nil, errors.New("contribute: the recipe names a log, and the manifests of Via do not come from it")
		}
	}
	c.retry = exchange.Retry{Attempts: c.o.Attempts, First: firstWait, Longest: longestWait}
	return c, nil
}

// Checked is the recipe that is answered, with what was proved of it.
func (c *Contributor) Checked() *recipe.Checked { return c.checked }

// Recipe is the recipe that is answered; not to be changed.
func (c *Contributor) Recipe() *recipe.Recipe { return c.recipe }

// RecipeID names it.
func (c *Contributor) RecipeID() recipe.ID { return c.checked.ID() }

// Guarantee is what was proved of it.
func (c *Contributor) Guarantee() *recipe.Guarantee { return c.checked.Guarantee() }

// Shuffle is what the recipe's parties agree on; not to be changed.
func (c *Contributor) Shuffle() *onion.Shuffle { return c.shuffle }

// Source is where the manifests come from that lead through the relay; nil without one.
func (c *Contributor) Source() ohttp.Source {
	if c.o.Via == nil {
		return nil
	}
	return c.o.Via.Source()
}

// Lasts is as that of client.Client.
func (c *Contributor) Lasts(m *ohttp.Manifest) error { return c.o.Lasts(m) }

// Kind says on which coins a value's reporting depends, though these paths have none. It
// fails with *[client.ValueError] where v is no answer.
func (c *Contributor) Kind(v client.Value) (recipe.Answer, error) { return client.Kind(c.recipe, v) }

// Counted is as that of client.Client.
func (c *Contributor) Counted() error { return c.o.Counted(c.recipe) }

// URL is where contributions are posted: at the first hop, or at the analyzer of the direct
// path.
func (c *Contributor) URL() *url.URL {
	return dap.ResourceURL(c.parties[0].url, onion.ContributionsPath(c.shuffle.Recipe))
}

// size is that of an envelope of the recipe, in bytes.
func (c *Contributor) size() int { return c.shuffle.Shape(0).Record(c.parties[0].role) }

// Prepare makes the envelope of an answer given at time t, of which it tells the round and no
// more, or where a round is collected in independent batches the one of them that it draws.
// Then it needs the keys of all. It uses no network and needs keys: [client.ErrNoKeys] where those that
// [Contributor.Refresh] fetched last are not for that round. Every call makes a new
// contribution, with fresh randomness; but where contributions show credentials, a round has
// one ([ErrOnce]). It fails with *[client.ValueError], with [client.ErrWindow] if the recipe
// takes nothing of that time, or no longer, and as client.Credentials.
func (c *Contributor) Prepare(v client.Value, t time.Time) ([]byte, error) {
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return nil, fmt.Errorf("contribute: time of the answer: %w", err)
	}
	unit = c.recipe.ReportTime(unit)
	from, end := c.recipe.PartRounds(c.recipe.Round(unit))
	if w, ok := c.recipe.Window.(recipe.Between); ok && (unit < w.Start || unit >= w.End) || !c.o.Now().Before(c.shuffle.Flush(from)) {
		return nil, client.ErrWindow
	}
	c.keyMu.RLock()
	held := c.held
	c.keyMu.RUnlock()
	// The draw must not depend on which keys there are.
	round, err := drawn(from, end)
	if err != nil {
		return nil, err
	}
	var to []*sealed.PublicKey
	for n := from; n < end; n++ {
		keys, err := sealTo(held, n)
		if err != nil {
			return nil, err
		}
		if n == round {
			to = keys
		}
	}
	messages, err := client.Messages(c.recipe, c.messenger, v)
	if err != nil {
		return nil, err
	}
	present, err := c.show(round)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, m := range messages {
			clear(m)
		}
	}()
	shape := c.shuffle.Shape(round)
	if len(to) == 1 {
		return shape.SealDirect(to[0], messages, nil)
	}
	return shape.Seal(onion.Keys{First: to[0], Second: to[1], Analyzer: to[2]}, messages, present)
}

// drawn is a number from one on up to another, each as likely.
func drawn(from, end uint64) (uint64, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).SetUint64(end-from))
	if err != nil {
		return 0, fmt.Errorf("contribute: %w", err)
	}
	return from + n.Uint64(), nil
}

// media is that of envelopes.
const media = dap.Media(onion.ContributionsMedia)
