package forward

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
)

// errNoTarget: the configuration no longer has the target of a round. It may come back.
var errNoTarget = errors.New("the configuration has no such target")

// ask makes one request to a target. An error means that nothing can be said of what
// became of it, or that it is to be asked again. Of the answer nothing is kept but what
// the protocol counts.
func (f *Forwarder) ask(route journal.Route, bodies [][]byte) (verdict, map[string]uint64, error) {
	target, ok := f.o.Targets[route.Target]
	if !ok {
		return 0, nil, errNoTarget
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	timer := f.o.Clock.NewTimer(f.o.Timeout)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(target.Via, "/")+"/"+route.Path, nil)
	if err != nil {
		return 0, nil, err
	}
	pieces := f.o.Protocol.Join(bodies)
	for _, p := range pieces {
		r.ContentLength += int64(len(p))
	}
	r.GetBody = func() (io.ReadCloser, error) {
		left := net.Buffers(slices.Clone(pieces)) // reading uses it up
		return io.NopCloser(&left), nil
	}
	r.Body, _ = r.GetBody()
	if r.ContentLength == 0 {
		r.Body, r.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
	r.Header = http.Header{"Content-Type": {route.Media}, "User-Agent": nil}
	if target.Token != "" {
		r.Header.Set("Authorization", "Bearer "+target.Token)
	}
	resp, err := f.o.Transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, f.o.Answer+1))
	if err != nil {
		return 0, nil, err
	}
	if int64(len(b)) > f.o.Answer {
		return 0, nil, errors.New("the answer is too long")
	}
	f.mu.Lock()
	f.requests++
	f.mu.Unlock()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		refused, err := f.o.Protocol.Refusals(bodies, b)
		if err != nil {
			return 0, nil, err
		}
		return done, refused, nil
	case resp.StatusCode >= 400 && f.o.Protocol.Final(resp.StatusCode, b):
		return final, nil, nil
	case resp.StatusCode >= 400 && f.o.Protocol.Unknown(resp.StatusCode, b):
		return unknown, nil, nil
	}
	return 0, nil, errStatus(resp.StatusCode)
}
