package deploy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged"
)

// mirrorEvery is how often a relay fetches the bundle of a log if nothing else is said: a
// device takes what is a day old.
const mirrorEvery = time.Minute

// A mirror has a log's bundle as it was had last, for devices, which verify it themselves. A
// nil mirror is of no log.
type mirror struct {
	remote logged.Remote
	every  time.Duration
	log    *slog.Logger
	last   atomic.Pointer[[]byte]
	failed atomic.Pointer[error] // the last fetch; nil if it did not
}

func newMirror(url string, every time.Duration, log *slog.Logger) *mirror {
	if url == "" {
		return nil
	}
	return &mirror{every: cmp.Or(every, mirrorEvery), remote: logged.Remote{URL: url, Client: &http.Client{Timeout: 30 * time.Second}}, log: log}
}

func (m *mirror) bundle() []byte {
	if b := m.last.Load(); b != nil {
		return *b
	}
	return nil
}

// trouble is why the last fetch failed.
func (m *mirror) trouble() error {
	if m == nil {
		return nil
	}
	if err := m.failed.Load(); err != nil {
		return fmt.Errorf("transparency log: %w", *err)
	}
	return nil
}

// run fetches until ctx ends. Until the first bundle is there it tries every second: devices
// that come meanwhile are refused, as they would be by the log.
func (m *mirror) run(ctx context.Context, ready func()) error {
	ready()
	for {
		b, err := m.remote.Bundle(ctx)
		if err == nil {
			_, err = tlog.ReadBundle(b) // what is none is handed to nobody
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if m.failed.Swap(&err) == nil {
				m.log.Warn("the log's bundle was not fetched", "error", err)
			}
		default:
			m.last.Store(&b)
			m.failed.Store(nil)
		}
		wait := m.every
		if m.last.Load() == nil {
			wait = min(wait, time.Second)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}
