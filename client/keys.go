package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

const (
	// maxConfigList bounds an aggregator's list of HPKE configurations, in bytes.
	maxConfigList = 64 << 10
	// defaultAge is how long keys are kept when the server does not say.
	defaultAge = time.Hour
	// maxAge bounds what it may say: a key that leaked should not be used for ever.
	maxAge = 7 * 24 * time.Hour
)

// ErrNoKeys: the aggregators' keys have not been fetched, or their owners vouch for them
// no longer; call [Client.Refresh].
var ErrNoKeys = errors.New("client: the aggregators' keys are not known yet")

// A KeysError: an aggregator's list of HPKE configurations is empty, malformed, has no
// suite that this client seals to, or is not signed as the recipe wants. errors.Is tells
// [dap.ErrMalformed], [sealed.ErrSuite], [signed.ErrList], [signed.ErrSignature] and
// [signed.ErrWindow] apart.
type KeysError struct {
	Aggregator dap.Role
	Err        error
}

func (e *KeysError) Error() string {
	return fmt.Sprintf("client: the %s's HPKE configurations cannot be used: %v", e.Aggregator, e.Err)
}
func (e *KeysError) Unwrap() error { return e.Err }

// sealingKey is one aggregator's chosen key; immutable.
type sealingKey struct {
	id      uint8
	public  *sealed.PublicKey
	expires time.Time          // then it is fetched anew
	until   time.Time          // its owner vouches for it no longer; zero where none does
	all     dap.HpkeConfigList // the list that it was chosen from
}

// Refresh fetches the keys of both aggregators unless it has them and they have not
// expired (Cache-Control, RFC 9111 section 5.2.2; an hour where the server is silent, a
// week at most). Through a relay it fails with *[ohttp.SendingError] for a manifest by
// which reports would come too late to be counted. Where the recipe names signing keys,
// it takes signed lists alone, from the aggregators or from the manifest that now holds,
// and of another manifest it takes them again.
func (c *Client) Refresh(ctx context.Context) error {
	if err := c.o.Held(c.checked); err != nil { // it may have been withdrawn
		return err
	}
	if c.o.Via != nil {
		m, err := c.o.Via.Source().Manifest(ctx)
		if err == nil {
			err = m.CheckSending(c.recipe.MaxSending())
		}
		if err != nil {
			return fmt.Errorf("client: manifest: %w", err)
		}
		if c.recipe.ServerKeys != nil && !m.Live(c.RecipeID()) {
			return fmt.Errorf("%w: the recipe is not live", ohttp.ErrManifest)
		}
		if c.recipe.ServerKeys != nil && c.under.Swap(m) != m {
			c.leader.set(nil)
			c.helper.set(nil)
		}
	}
	for _, a := range []*aggregator{&c.leader, &c.helper} {
		if err := c.refresh(ctx, a); err != nil {
			return err
		}
	}
	if l, h := c.leader.current(), c.helper.current(); l != nil && h != nil && c.recipe.ServerKeys != nil {
		if err := apart(l.all, h.all); err != nil {
			c.leader.forget(l)
			c.helper.forget(h)
			return err
		}
	}
	return nil
}

func (c *Client) refresh(ctx context.Context, a *aggregator) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k := a.current(); k != nil && c.o.Now().Before(k.expires) {
		return nil
	}
	k, err := c.fetch(ctx, a)
	if err != nil {
		return err
	}
	a.set(k)
	return nil
}

// fetch asks an aggregator, or the manifest, for its keys: for the signed list where the
// recipe says who vouches for it.
func (c *Client) fetch(ctx context.Context, a *aggregator) (*sealingKey, error) {
	vouched := !a.root.IsZero()
	from, want := dap.HpkeConfigPath, dap.MediaHpkeConfigList
	if vouched {
		from, want = signed.ListPath(c.deployment), signed.ListMessage
	}
	answer, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodGet, URL: dap.ResourceURL(a.base, from), Want: want, MaxBody: maxConfigList,
	}, c.retry)
	if err != nil {
		return nil, fmt.Errorf("client: fetch the %s's keys: %w", a.role, err)
	}
	k := &sealingKey{expires: c.o.Now().Add(age(answer.Header))}
	if vouched {
		l, err := signed.OpenList(answer.Body, a.root, c.deployment, signed.Role(a.role), a.url)
		if err == nil {
			err = c.holdsNow(l)
		}
		if err != nil {
			return nil, &KeysError{a.role, err}
		}
		if k.until = l.NotAfter; k.until.Before(k.expires) {
			k.expires = k.until
		}
		k.all, err = readConfigs(l.Body)
		if err != nil {
			return nil, &KeysError{a.role, err}
		}
	} else if k.all, err = dap.ReadHpkeConfigList(answer.Body); err != nil {
		return nil, &KeysError{a.role, err}
	}
	config, err := c.choose(k.all)
	if err == nil {
		k.id = config.ID
		k.public, err = config.PublicKey()
	}
	if err != nil {
		return nil, &KeysError{a.role, err}
	}
	return k, nil
}

// holdsNow says whether a signed list is of this time, and of the one epoch that it names.
func (c *Client) holdsNow(l *signed.List) error {
	length := c.recipe.ServerKeys.Epoch()
	if l.NotAfter.Sub(l.NotBefore) > length || l.Epoch != ohttp.EpochAt(l.NotBefore, length) {
		return fmt.Errorf("%w: of no epoch", signed.ErrList)
	}
	return l.ValidAt(c.o.Now())
}

// choose returns the configuration to seal to: the first of the KEM that the recipe asks
// for.
func (c *Client) choose(list dap.HpkeConfigList) (dap.HpkeConfig, error) {
	if c.recipe.KEM == recipe.X25519 {
		return list.Choose() // what a server offers first is at least as strong
	}
	var fit dap.HpkeConfigList
	for _, config := range list {
		if config.KEM == uint16(c.recipe.KEM) {
			fit = append(fit, config)
		}
	}
	return fit.Choose()
}

func (a *aggregator) current() *sealingKey {
	a.keyMu.RLock()
	defer a.keyMu.RUnlock()
	return a.key
}

// usable is the key to seal to now, or nil.
func (a *aggregator) usable(now time.Time) *sealingKey {
	k := a.current()
	if k != nil && !k.until.IsZero() && !now.Before(k.until) {
		return nil
	}
	return k
}

func (a *aggregator) set(k *sealingKey) {
	a.keyMu.Lock()
	defer a.keyMu.Unlock()
	a.key = k
}

// forget drops the key if it still is the one that the server refused.
func (a *aggregator) forget(k *sealingKey) {
	a.keyMu.Lock()
	defer a.keyMu.Unlock()
	if a.key == k {
		a.key = nil
	}
}

// age is how long an answer stays fresh.
func age(h http.Header) time.Duration {
	if h.Get("Cache-Control") == "" {
		return defaultAge
	}
	fresh := defaultAge
	for _, directive := range strings.Split(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(strings.ToLower(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			n, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31)
			if err != nil {
				return 0 // stale, as RFC 9111 section 4.2.1 advises
			}
			fresh = min(time.Duration(n)*time.Second, maxAge)
		}
	}
	if elapsed, err := strconv.ParseUint(h.Get("Age"), 10, 31); err == nil {
		fresh = max(0, fresh-time.Duration(elapsed)*time.Second)
	}
	return fresh
}
