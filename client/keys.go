package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/exchange"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

const (
	// maxConfigList bounds an aggregator's list of HPKE configurations, in bytes.
	maxConfigList = 64 << 10
	// defaultAge is how long keys are kept when the server does not say.
	defaultAge = time.Hour
	// maxAge bounds what it may say: a key that leaked should not be used for ever.
	maxAge = 7 * 24 * time.Hour
)

// ErrNoKeys: the aggregators' keys have not been fetched; call [Client.Refresh].
var ErrNoKeys = errors.New("client: the aggregators' keys are not known yet")

// A KeysError: an aggregator's list of HPKE configurations is empty, malformed or has no suite that this client seals to.
// errors.Is tells [dap.ErrMalformed] and [sealed.ErrSuite] apart.
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
	expires time.Time
}

// Refresh fetches the keys of both aggregators unless it has them and they have not expired (Cache-Control, RFC 9111
// section 5.2.2; an hour where the server is silent, a week at most).
func (c *Client) Refresh(ctx context.Context) error {
	for _, a := range []*aggregator{&c.leader, &c.helper} {
		if err := c.refresh(ctx, a); err != nil {
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
	answer, err := exchange.Do(ctx, c.o.HTTP, exchange.Request{
		Method: http.MethodGet, URL: dap.ResourceURL(a.base, dap.HpkeConfigPath), Want: dap.MediaHpkeConfigList, MaxBody: maxConfigList,
	}, c.retry)
	if err != nil {
		return fmt.Errorf("client: fetch the %s's keys: %w", a.role, err)
	}
	list, err := dap.ReadHpkeConfigList(answer.Body)
	if err != nil {
		return &KeysError{a.role, err}
	}
	config, err := c.choose(list)
	if err != nil {
		return &KeysError{a.role, err}
	}
	public, err := config.PublicKey()
	if err != nil {
		return &KeysError{a.role, err}
	}
	a.set(&sealingKey{config.ID, public, c.o.Now().Add(age(answer.Header))})
	return nil
}

// choose returns the configuration to seal to: the first of the KEM that the recipe asks for.
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
