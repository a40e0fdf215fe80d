package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/dap"
)

// sleep waits as a leader that is slow, unless nobody waits for it any more.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// scripts are leaders of all kinds.
var scripts = map[string]script{
	"up":   func(context.Context, time.Duration, int, int) (int, http.Header, []byte) { return 200, nil, nil },
	"down": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) { return 0, nil, nil },
	"slow": func(ctx context.Context, _ time.Duration, _, _ int) (int, http.Header, []byte) {
		sleep(ctx, 20*time.Second)
		return 200, nil, nil
	},
	"tarpit": func(ctx context.Context, _ time.Duration, _, _ int) (int, http.Header, []byte) {
		<-ctx.Done()
		return 0, nil, nil
	},
	"429, each to come again at another time": func(_ context.Context, _ time.Duration, n, _ int) (int, http.Header, []byte) {
		return 429, http.Header{"Retry-After": {fmt.Sprint(3 + 2*n)}}, nil
	},
	"has lost its task": func(_ context.Context, since time.Duration, _, _ int) (int, http.Header, []byte) {
		if since < 5*time.Minute {
			return 404, http.Header{"Content-Type": {"application/problem+json"}}, []byte(`{"type":"urn:ietf:params:ppm:dap:error:unrecognizedTask"}`)
		}
		return 200, nil, nil
	},
	"503": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) { return 503, nil, nil },
	"400": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) {
		return 400, http.Header{"Content-Type": {"application/problem+json"}}, []byte(`{"type":"urn:ietf:params:ppm:dap:error:invalidMessage"}`)
	},
	"redirect": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) {
		return 307, http.Header{"Location": {"https://elsewhere.example/"}}, nil
	},
	"rubbish": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) {
		return 200, nil, []byte("thank you for your report")
	},
	"1 MiB": func(context.Context, time.Duration, int, int) (int, http.Header, []byte) {
		return 200, nil, make([]byte, 1<<20)
	},
	"restarted": func(_ context.Context, since time.Duration, _, _ int) (int, http.Header, []byte) {
		if since < 70*time.Second {
			return 0, nil, nil
		}
		return 200, nil, nil
	},
	"refuses what is joined, and answers each in a size and a time of its own": func(ctx context.Context, _ time.Duration, n, reports int) (int, http.Header, []byte) {
		if reports > 1 {
			return 400, nil, nil
		}
		sleep(ctx, time.Duration(n)*3*time.Second)
		return 200, http.Header{"Retry-After": {fmt.Sprint(n)}}, bytes.Repeat([]byte{0}, 2000*n)
	},
}

// sameTranscripts compares what was heard, and returns the first difference.
func sameTranscripts(t *testing.T, name string, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		var a, b string
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		if a != b {
			t.Errorf("%s: who listens hears\n%s\nwhere else\n%s", name, b, a)
			return
		}
	}
}

// play runs devices of those kinds, the first of them alone in its round, the others
// together in a later one, and returns what is heard on the edges in the ten minutes that
// follow.
func play(t *testing.T, s script, prepare func(*edge), kinds []kind) (heard []string) {
	t.Helper()
	return playWith(t, func() gateway.Options { return gateway.Options{Window: time.Second} }, s, prepare, kinds)
}

// playWith does so with a gateway of other options, made in the bubble.
func playWith(t *testing.T, o func() gateway.Options, s script, prepare func(*edge), kinds []kind) (heard []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t, o(), s)
		if prepare != nil {
			prepare(e)
		}
		var sent []func()
		for i, k := range kinds {
			at := 300 * time.Millisecond
			if i > 0 {
				at = 3*time.Second + time.Duration(i)*50*time.Millisecond
			}
			sent = append(sent, e.device(fmt.Sprint("device", i), k, at))
		}
		for _, wait := range sent {
			wait()
		}
		time.Sleep(time.Until(e.begin.Add(10 * time.Minute)))
		heard = e.end()
		e.once()
		if e.point != "" && e.points.Hits()[e.point] == 0 {
			t.Errorf("nothing was killed at %s", e.point)
		}
	})
	return heard
}

// assignments are who sends what: whatever it is, what is heard on the edges must be
// equal. In all of them a device is alone in its round, and a report is among the others.
var assignments = [][]kind{
	{isReport, isReport, isDummy, isNoOp, isCover},
	{isDummy, isNoOp, isReport, isCover, isDummy},
	{isNoOp, isCover, isNoOp, isDummy, isReport},
	{isCover, isDummy, isCover, isReport, isNoOp},
}

// TestTranscripts: who listens at every device, and between relay and gateway, hears the
// same bytes at the same times whatever each device sends and whatever the leader does
// with it; ciphertexts are compared by their length. And each report comes to the leader
// in one batch.
//
// On a gateway that answered covers by itself and passed the leader's answers through, a
// report that a leader refused for the moment was sent up to five times where a cover was
// sent once.
func TestTranscripts(t *testing.T) {
	for name, s := range scripts {
		t.Run(name, func(t *testing.T) {
			want := play(t, s, nil, assignments[0])
			if n := len(slices.DeleteFunc(slices.Clone(want), func(line string) bool { return !strings.Contains(line, "taken") })); n != 5 {
				t.Fatalf("%d of 5 devices were taken:\n%s", n, strings.Join(want, "\n"))
			}
			for _, kinds := range assignments[1:] {
				sameTranscripts(t, fmt.Sprint(kinds), want, play(t, s, nil, kinds))
			}
		})
	}
}

// shows is what a device shows the gateway in the place of a token.
type shows string

const (
	showsValid   shows = "a token"
	showsNone    shows = "none"
	showsForged  shows = "one of its own making"
	showsForeign shows = "one of another round"
	showsSpent   shows = "one that another device showed"
)

// token makes it.
func (s shows) token(t *testing.T, k *admission.Keys, spent string) string {
	t.Helper()
	at := map[shows]int{showsForeign: 2}[s]
	round := k.First + uint64(at)
	switch s {
	case showsNone:
		return ""
	case showsForged:
		return admission.Value(round, voprf.Token{Nonce: [32]byte{1}})
	case showsSpent:
		return spent
	}
	request := voprf.NewTokenRequest(k.Round(round))
	e, err := k.Keys[at].Issue(request.Request())
	if err != nil {
		t.Fatal(err)
	}
	token, err := request.Finalize(k.Keys[at].PublicKey(), e)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Value(round, token)
}

// TestTranscriptsOfTokens: where the task asks for tokens, the same is heard on all edges
// whatever each device sends, and whatever it shows in the place of a token; also where
// the gateway is killed before it has answered, and after. What the leader gets is for the
// valid ones alone.
func TestTranscriptsOfTokens(t *testing.T) {
	arrangements := [][]shows{
		{showsValid, showsValid, showsValid, showsValid, showsValid},
		{showsNone, showsForged, showsForeign, showsSpent, showsValid},
		{showsForged, showsValid, showsSpent, showsNone, showsForeign},
		{showsForeign, showsSpent, showsNone, showsValid, showsForged},
	}
	for _, point := range []string{"", gateway.FailBeforeLog, gateway.FailAfterLog, gateway.FailAfterAnswer} {
		for _, leader := range []string{"up", "503", "down", "1 MiB"} {
			if point != "" && leader != "up" {
				continue
			}
			t.Run(leader+"/"+point, func(t *testing.T) {
				var want []string
				for i, shown := range arrangements {
					for j, kinds := range assignments {
						var keys *admission.Keys
						options := func() gateway.Options {
							keys = &admission.Keys{First: uint64(time.Now().Unix()) / 3600, Length: 3600, Grace: 3600}
							keys.Generate(3)
							return gateway.Options{Window: time.Second, Admission: []gateway.Admission{{Keys: keys}}}
						}
						reports := 0
						prepare := func(e *edge) {
							e.tokens = make(map[string]string)
							spent := showsValid.token(t, keys, "")
							for n, s := range shown {
								if s == showsValid && kinds[n] == isReport {
									reports++
								}
								e.tokens[fmt.Sprint("device", n)] = s.token(t, keys, spent)
							}
							if point != "" {
								e.kill(point)
							}
							t.Cleanup(func() { // after the edge has ended
								if leader != "up" {
									return
								}
								got := make(map[dap.ReportID]bool)
								for _, a := range e.asked {
									for _, id := range a.ids {
										got[id] = true
									}
								}
								if first := slices.Index(shown, showsSpent); first >= 0 && kinds[first] == isReport {
									reports++ // nobody else has shown it
								}
								for n, s := range shown { // a dummy is a report to the leader
									if kinds[n] == isDummy && (s == showsValid || s == showsSpent) {
										reports++
									}
								}
								if len(got) != reports {
									t.Errorf("%v of %v: the leader got %d reports, want %d", shown, kinds, len(got), reports)
								}
							})
						}
						heard := playWith(t, options, scripts[leader], prepare, kinds)
						if i+j == 0 {
							want = heard
						}
						sameTranscripts(t, fmt.Sprint(kinds, shown), want, heard)
					}
				}
			})
		}
	}
}

// TestTranscriptsKilled: the same where gateway and relay are killed, at each state of a
// round, and where the gateway is stopped in order between two ticks, which answers at
// ticks alone. Devices that were not answered come again, all alike.
func TestTranscriptsKilled(t *testing.T) {
	// Points that only a report passes are killed at by who sees a report pass: there is
	// one in each of the second rounds.
	together := []string{"forward.after-answer-before-settle", "forward.after-settle"}
	for i, point := range gateway.Failpoints() {
		leader := []string{"up", "restarted"}[i%2]
		t.Run(point+"/"+leader, func(t *testing.T) {
			list := slices.Clone(assignments)
			if slices.Contains(together, point) { // and none in the first
				for i := range list {
					list[i] = append([]kind{[]kind{isNoOp, isCover}[i%2]}, list[i][1:]...)
				}
			}
			prepare := func(e *edge) { e.kill(point) }
			want := play(t, scripts[leader], prepare, list[0])
			for _, kinds := range list[1:] {
				sameTranscripts(t, fmt.Sprint(kinds), want, play(t, scripts[leader], prepare, kinds))
			}
		})
	}
	for _, from := range []time.Duration{600 * time.Millisecond, 1400 * time.Millisecond, 3160 * time.Millisecond, 4400 * time.Millisecond} {
		t.Run(fmt.Sprint("gateway stopped at ", from), func(t *testing.T) {
			prepare := func(e *edge) { time.AfterFunc(time.Until(e.begin.Add(from)), e.restart) }
			want := play(t, scripts["up"], prepare, assignments[0])
			answers := 0
			for _, line := range want {
				var at string
				if fmt.Sscan(line, &at); strings.Contains(line, "< 200") {
					answers++
					if d, err := time.ParseDuration(at); err != nil || d%time.Second != 0 {
						t.Errorf("an answer between two ticks: %s", line)
					}
				}
			}
			if answers != 2*len(assignments[0]) { // at the device and at the relay
				t.Errorf("%d answers", answers)
			}
			for _, kinds := range assignments[1:] {
				sameTranscripts(t, fmt.Sprint(kinds), want, play(t, scripts["up"], prepare, kinds))
			}
		})
	}
	for _, from := range []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 3120 * time.Millisecond} {
		t.Run(fmt.Sprint("relay at ", from), func(t *testing.T) {
			prepare := func(e *edge) {
				time.AfterFunc(time.Until(e.begin.Add(from)), func() { e.relayIs(true) })
				time.AfterFunc(time.Until(e.begin.Add(from+70*time.Second)), func() { e.relayIs(false) })
			}
			want := play(t, scripts["up"], prepare, assignments[0])
			for _, kinds := range assignments[1:] {
				sameTranscripts(t, fmt.Sprint(kinds), want, play(t, scripts["up"], prepare, kinds))
			}
		})
	}
}

// TestRoomForOne: a stranger leaves room for one more, lets a device send, and looks
// again and again for whether there is room. It hears the same whatever the device sent
// and whatever the leader does.
func TestRoomForOne(t *testing.T) {
	for name, s := range scripts {
		if strings.HasPrefix(name, "restarted") || strings.HasPrefix(name, "slow") || strings.HasPrefix(name, "refuses") {
			continue // what is repeated is repeated at random times, and so is the end of that; alike, but not equal
		}
		t.Run(name, func(t *testing.T) {
			var want []string
			for i, k := range []kind{isReport, isDummy, isNoOp, isCover} {
				var heard []string
				synctest.Test(t, func(t *testing.T) {
					e := newEdge(t, gateway.Options{Window: time.Second, Hold: 2 * time.Hour, Limits: gateway.Limits{Held: 4}}, s)
					sent := []func(){e.device("stranger", isCover, 100*time.Millisecond), e.device("stranger", isCover, 150*time.Millisecond),
						e.device("stranger", isCover, 200*time.Millisecond), e.device("victim", k, 300*time.Millisecond)}
					for minute := range 12 { // each of three tries
						sent = append(sent, e.device(fmt.Sprint("probe", minute), isCover, 1400*time.Millisecond+time.Duration(minute)*15*time.Minute))
					}
					for _, wait := range sent {
						wait()
					}
					heard = e.end()
				})
				if i == 0 {
					want = heard
					// Full until the round is done with: at once, or when the gateway
					// gives it up.
					full := slices.DeleteFunc(slices.Clone(heard), func(line string) bool {
						return !strings.Contains(line, "ohttp:full") || !strings.Contains(line, "probe")
					})
					if late := len(full) > 3; len(full) == 0 || late == (name == "up" || name == "400" || name == "has lost its task") {
						t.Errorf("the stranger found the gateway full %d times", len(full))
					}
				}
				sameTranscripts(t, string(k), want, heard)
			}
		})
	}
}

// TestKeySpent: strangers spend one of the gateway's two keys. Devices are refused in
// their first try and taken in their second, under the other key; at which times and
// under which key is the same whatever they send, and neither strangers nor the relay
// have a say in it.
func TestKeySpent(t *testing.T) {
	keys, err := edgeKeys()
	if err != nil {
		t.Fatal(err)
	}
	second := pair(t, 77)
	var want []string
	for i, k := range []kind{isReport, isDummy, isNoOp, isCover} {
		var heard []string
		synctest.Test(t, func(t *testing.T) {
			e := newEdge(t, gateway.Options{Window: time.Second, MaxOpened: 6, Keys: []gateway.Key{{Pair: keys[0]}, {Pair: second}}}, scripts["up"])
			var sent []func()
			for n := range 6 {
				sent = append(sent, e.device("stranger", isCover, time.Duration(100+n)*time.Millisecond))
			}
			sent = append(sent, e.device("device", k, 5300*time.Millisecond))
			for _, wait := range sent {
				wait()
			}
			s := e.gateway.Status()
			if s.Keys[0].Opened != 6 || s.Keys[1].Opened != 1 {
				t.Errorf("%s: the keys have opened %+v", k, s.Keys)
			}
			heard = e.end()
		})
		if i == 0 {
			want = heard
			var tries []string
			for _, line := range heard {
				if strings.Contains(line, " device ") && strings.Contains(line, "<") {
					tries = append(tries, line)
				}
			}
			said := strings.Join(tries, "\n")
			if len(tries) != 2 || !strings.Contains(said, "5.3s device   < 503") || !strings.Contains(said, "ohttp:spent") ||
				!strings.Contains(said, "1m7s device   < 200") {
				t.Errorf("the device heard\n%s", said)
			}
		}
		sameTranscripts(t, string(k), want, heard)
	}
}

// TestPoison: a report that the leader refuses spoils no other, and nobody is told.
// Whoever brings poison in each round costs the leader a request for each halving and
// learns nothing.
func TestPoison(t *testing.T) {
	var want []string
	for i, poisoned := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var e *edge
			var poison []byte // bytes of one report
			e = newEdge(t, gateway.Options{Window: time.Second}, func(_ context.Context, _ time.Duration, n, _ int) (int, http.Header, []byte) {
				e.mu.Lock()
				defer e.mu.Unlock()
				q := e.asked[n-1]
				if n == 1 && poisoned {
					poison = q.ids[3][:]
				}
				if poison != nil && bytes.Contains(q.body, poison) {
					return 400, nil, nil
				}
				return 200, nil, nil
			})
			var sent []func()
			for i := range 8 {
				sent = append(sent, e.device(fmt.Sprint("device", i), isReport, 300*time.Millisecond))
			}
			for _, wait := range sent {
				wait()
			}
			time.Sleep(time.Minute)
			s := e.gateway.Status()
			if passed, dropped := s.Passed, s.Lost["dropped"]; passed+dropped != 8 || (dropped == 1) != poisoned || dropped > 1 {
				t.Errorf("poisoned %v: %d passed on, %d dropped", poisoned, passed, dropped)
			}
			heard := e.end()
			e.once()
			if i == 0 {
				want = heard
			}
			sameTranscripts(t, fmt.Sprint("poisoned ", poisoned), want, heard)
		})
	}
}
