package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
)

// An item is one request that waits for its round.
type item struct {
	route  route
	body   []byte // nil for cover
	answer *ohttp.Response
	done   chan struct{} // closed when answer is set
}

// route is where an item goes; items of one route can be joined.
type route struct {
	target *Target
	url    string
	media  string
}

// A round is what arrived in one window.
type round struct {
	items    []*item
	finished chan struct{} // closed when every item has its answer
}

// wait puts a request into the next round and returns its answer when the round is answered. A request that nobody waits for any more
// goes on with its round, is held until then, and keeps its place: who could leave and come again would be bounded by nothing.
func (g *Gateway) wait(ctx context.Context, it *item) (*ohttp.Response, error) {
	it.done = make(chan struct{})
	g.mu.Lock()
	if g.stopped {
		g.mu.Unlock()
		return nil, &door.Error{Reason: door.Busy}
	}
	if len(g.pending) == 0 {
		g.since = g.o.Clock.Now()
	}
	g.pending = append(g.pending, it)
	g.mu.Unlock()
	<-it.done
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return it.answer, nil
}

// Drain ends the waiting: what has come is sent at once, or refused where it is too little, and what comes later is refused. A server
// that shuts down calls it first, for it waits for requests that wait for others, who come no more. Run goes on until its context ends.
func (g *Gateway) Drain() { g.drain.Do(func() { close(g.draining) }) }

// Run sends the rounds until ctx ends or [Gateway.Drain] is called, then what is left at once, and returns when all is answered and
// ctx has ended. Requests wait until it runs. It runs once.
func (g *Gateway) Run(ctx context.Context) error {
	var running []*round
	sending := context.WithoutCancel(ctx) // every request has its own limit
	for {
		timer := g.o.Clock.NewTimer(g.o.Window)
		select {
		case <-timer.C():
			running = deliver(running)
			if r := g.begin(sending, false); r != nil {
				running = append(running, r)
			}
			continue
		case <-ctx.Done():
		case <-g.draining:
		}
		timer.Stop()
		if r := g.begin(sending, true); r != nil {
			running = append(running, r)
		}
		for _, r := range running {
			<-r.finished
			deliver([]*round{r})
		}
		<-ctx.Done()
		return nil
	}
}

// deliver answers the requests of finished rounds, all of a round at once, and returns the other rounds.
func deliver(rounds []*round) (left []*round) {
	for _, r := range rounds {
		select {
		case <-r.finished:
			for _, it := range r.items {
				close(it.done)
			}
		default:
			left = append(left, r)
		}
	}
	return left
}

// begin takes what is pending and sends it; nil if there is nothing, or too little for now. What is too little for good is
// refused as a whole.
func (g *Gateway) begin(ctx context.Context, last bool) *round {
	g.mu.Lock()
	g.stopped = g.stopped || last
	few := len(g.pending) < g.o.MinRound
	if len(g.pending) == 0 || few && !last && g.o.Clock.Now().Sub(g.since) < g.o.MaxDelay {
		g.mu.Unlock()
		return nil
	}
	r := &round{items: g.pending, finished: make(chan struct{})}
	g.pending = nil
	g.mu.Unlock()
	if few {
		g.fail(r.items, door.Few)
		close(r.finished)
		return r
	}
	shuffle(r.items)
	routes := make(map[route][]*item)
	var order []route // the first to come, after the shuffle
	for _, it := range r.items {
		if it.body == nil {
			it.answer = &ohttp.Response{Status: http.StatusOK}
			continue
		}
		if routes[it.route] == nil {
			order = append(order, it.route)
		}
		routes[it.route] = append(routes[it.route], it)
	}
	var all sync.WaitGroup
	for _, to := range order {
		for _, part := range g.cut(routes[to]) {
			all.Go(func() {
				g.senders <- struct{}{}
				defer func() { <-g.senders }()
				g.send(ctx, part)
			})
		}
	}
	go func() { all.Wait(); close(r.finished) }()
	return r
}

// shuffle draws a uniform order.
func shuffle(items []*item) {
	for i := len(items) - 1; i > 0; i-- {
		j, err := rand.Int(rand.Reader, big.NewInt(int64(i+1)))
		if err != nil {
			panic("gateway: internal error: no randomness: " + err.Error())
		}
		k := int(j.Int64())
		items[i], items[k] = items[k], items[i]
	}
}

// cut divides items of one route into requests.
func (g *Gateway) cut(items []*item) (parts [][]*item) {
	start, size := 0, 0
	for i, it := range items {
		if i > start && (i-start >= g.o.Limits.Joined || size+len(it.body) > g.o.Limits.JoinedBytes) {
			parts = append(parts, items[start:i])
			start, size = i, 0
		}
		size += len(it.body)
	}
	return append(parts, items[start:])
}

// send passes items of one route on in one request, and sets their answers.
func (g *Gateway) send(ctx context.Context, items []*item) {
	bodies := make([][]byte, len(items))
	for i, it := range items {
		bodies[i] = it.body
	}
	pieces := bodies
	if len(bodies) > 1 {
		pieces = g.o.Protocol.Join(bodies)
	}
	answer, err := g.post(ctx, items[0].route, pieces)
	if err != nil {
		g.o.Log.Warn("no answer from a target", slog.Any("error", err))
		g.fail(items, door.Leader)
		return
	}
	g.requests.Add(1)
	switch {
	case len(items) == 1:
		items[0].answer = answer
	case answer.Status < 300:
		contents, err := g.o.Protocol.Split(bodies, answer.Content)
		if err != nil || len(contents) != len(items) {
			g.o.Log.Warn("a target's answer does not fit what was asked", slog.Any("error", err))
			g.fail(items, door.Leader)
			return
		}
		for i, it := range items {
			it.answer = &ohttp.Response{Status: answer.Status, Content: contents[i]}
			if len(contents[i]) > 0 {
				it.answer.Header = answer.Header
			}
		}
	case answer.Status >= 400 && answer.Status < 500 && answer.Status != http.StatusTooManyRequests:
		// Something in there is not to the target's liking. Nobody else is to suffer for it.
		for i := range items {
			g.send(ctx, items[i:i+1])
		}
		return
	default:
		for _, it := range items {
			it.answer = answer
		}
	}
	for _, it := range items {
		if it.answer.Status < 300 {
			g.passed.Add(1)
		}
	}
}

// fail answers items with a refusal.
func (g *Gateway) fail(items []*item, reason door.Reason) {
	for _, it := range items {
		it.answer = refusal(reason)
		g.refused[reason].Add(1)
	}
}

// post makes one request to a target, with a body in pieces. Only status, content type, Retry-After and content of the answer are kept.
func (g *Gateway) post(ctx context.Context, to route, pieces [][]byte) (*ohttp.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, g.o.Limits.AnswerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range pieces {
		r.ContentLength += int64(len(p))
	}
	r.GetBody = func() (io.ReadCloser, error) {
		left := net.Buffers(slices.Clone(pieces)) // reading uses it up
		return io.NopCloser(&left), nil
	}
	r.Body, _ = r.GetBody()
	r.Header = http.Header{"Content-Type": {to.media}, "User-Agent": nil}
	if to.target.Token != "" {
		r.Header.Set("Authorization", "Bearer "+to.target.Token)
	}
	resp, err := g.o.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 599 || resp.StatusCode/100 == 3 {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, g.o.Limits.Answer+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > g.o.Limits.Answer {
		return nil, errors.New("the answer is too long")
	}
	out := &ohttp.Response{Status: resp.StatusCode, Content: b}
	if media := resp.Header.Get("Content-Type"); media != "" && len(b) > 0 {
		out.Header = append(out.Header, ohttp.Field{Name: "content-type", Value: media})
	}
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
		out.Header = append(out.Header, ohttp.Field{Name: "retry-after", Value: strconv.FormatUint(n, 10)})
	}
	return out, nil
}

func refusal(reason door.Reason) *ohttp.Response {
	return &ohttp.Response{Status: reason.Status(), Content: bytes.TrimRight(door.Document(reason), " "),
		Header: []ohttp.Field{{Name: "content-type", Value: door.ProblemMedia}}}
}
