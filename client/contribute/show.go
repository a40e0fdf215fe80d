package contribute

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/internal/showing"
	"github.com/starling-agg/starling/shuffle/onion"
)

// ErrOnce: a contribution of the round is made. Another would show the same tags: the hops
// would know that the two are one device's, and count one of them.
var ErrOnce = errors.New("contribute: a contribution of that round is made, and its credentials count once")

// Creditable says whether the device has credentials of the round in which t lies; nil where
// the recipe has none. It is asked before anything is paid for: a device without them sits
// the round out. It fails as client.Credentials.
func (c *Contributor) Creditable(t time.Time) error {
	unit, err := c.recipe.TimePrecision.At(t)
	if err != nil {
		return fmt.Errorf("contribute: time of the round: %w", err)
	}
	_, err = c.credentials(c.recipe.Round(c.recipe.ReportTime(unit)))
	return err
}

// credentials are those of a round; nil where the recipe has none.
func (c *Contributor) credentials(round uint64) (*client.Held, error) {
	if c.recipe.Tokens == nil {
		return nil, nil
	}
	epoch, err := arc.EpochOf(round, uint64(c.shuffle.Length/time.Second), uint64(c.recipe.EpochLength()))
	if err == nil && epoch > math.MaxUint32 {
		err = arc.ErrEpoch
	}
	if err != nil {
		return nil, fmt.Errorf("contribute: %w", err)
	}
	return c.o.Credentials.Held(epoch)
}

// show is what a contribution to a round shows, which is the only one of it; nil where the
// recipe has no credentials. Every contribution that is made shows them, sent or not, so that
// the time tells nothing.
func (c *Contributor) show(round uint64) (onion.Present, error) {
	held, err := c.credentials(round)
	if held == nil || err != nil {
		return nil, err
	}
	c.showMu.Lock()
	defer c.showMu.Unlock()
	if c.shows[round] {
		return nil, fmt.Errorf("%w: round %d", ErrOnce, round)
	}
	now := c.shuffle.Round(c.o.Now())
	for n := range c.shows {
		if !c.o.Now().Before(c.shuffle.Flush(n)) && n < now {
			delete(c.shows, n)
		}
	}
	c.shows[round] = true
	return showing.NewDevice(c.shuffle.Recipe, round, c.shuffle.Messages,
		showing.Held{First: held.Leader, Second: held.Helper, FirstKey: held.LeaderKey, SecondKey: held.HelperKey}).Present, nil
}
