package gateway

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
)

// TestMinRound: no upload goes on among fewer requests than MinRound. A round waits for others, covers count, and what waited
// too long is refused with all that came with it, inside the sealed answer.
func TestMinRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second, MinRound: 3, MaxDelay: 10 * time.Second})
		defer b.stop()
		cover := upload(nil)
		cover.Method = ohttp.MethodCover
		n := byte(0)
		next := func() *ohttp.Request { n++; return upload(report(t, n)) }
		var asked sync.WaitGroup
		var mu sync.Mutex
		answers := make(map[door.Reason]int)
		ask := func(m *ohttp.Request) {
			asked.Go(func() {
				reason := sealedReason(b.ask(t, m))
				mu.Lock()
				defer mu.Unlock()
				answers[reason]++
			})
		}
		expect := func(when string, passed, few, rounds int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := len(b.leader.seen()); answers[""] != passed || answers[door.Few] != few || got != rounds {
				t.Errorf("%s: answers %v and %d requests to the leader, want %d passed, %d refused, %d requests", when, answers, got,
					passed, few, rounds)
			}
		}
		ask(next())
		ask(next())
		time.Sleep(8 * time.Second)
		expect("two wait", 0, 0, 0)
		ask(next())
		time.Sleep(3 * time.Second)
		expect("the third has come", 3, 0, 1)
		if ids := b.leader.seen()[0]; len(ids) != 3 {
			t.Errorf("the leader got %d reports together", len(ids))
		}

		ask(next())
		time.Sleep(9 * time.Second)
		ask(next())
		expect("two wait again", 3, 0, 1)
		time.Sleep(4 * time.Second)
		expect("the first has waited too long", 3, 2, 1)

		ask(next())
		ask(cover)
		ask(cover)
		time.Sleep(3 * time.Second)
		expect("one among covers", 6, 2, 2)

		ask(next())
		time.Sleep(2 * time.Second)
		b.stop()
		asked.Wait()
		expect("one was left at the stop", 6, 3, 2)
	})
}
