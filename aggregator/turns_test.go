package aggregator_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator"
)

// TestTurns: of aggregators that have more blocks than there are processors each is worked
// for as long as the others, however many blocks it has and however long they take; one that
// comes later gets its share from then on, and not what it had not used before; and where
// nobody waits all processors are one's.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processors = 2
		turns := aggregator.NewTurns(processors)
		var mu sync.Mutex
		worked := map[string]time.Duration{}
		at, most := 0, 0
		stop := make(chan struct{})
		load := func(name string, turn *aggregator.Turn, workers int, block time.Duration) {
			for range workers {
				go func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						turn.Do(func() {
							mu.Lock()
							at++
							most = max(most, at)
							mu.Unlock()
							time.Sleep(block)
							mu.Lock()
							at--
							worked[name] += block
							mu.Unlock()
						})
					}
				}()
			}
		}
		since := func(d time.Duration) map[string]time.Duration {
			mu.Lock()
			clear(worked)
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			all := map[string]time.Duration{}
			for name, w := range worked {
				all[name] = w
			}
			return all
		}
		big, small, late := turns.Join(), turns.Join(), turns.Join()
		load("big", big, 40, 7*time.Millisecond)
		if w := since(time.Second)["big"]; w < 1950*time.Millisecond {
			t.Errorf("with nobody else one was worked for %v of 2 s", w)
		}
		load("small", small, 2, time.Millisecond)
		for name, w := range since(2 * time.Second) {
			if w < 1900*time.Millisecond || w > 2100*time.Millisecond {
				t.Errorf("%s was worked for %v, want a half of 4 s", name, w)
			}
		}
		load("late", late, 3, 3*time.Millisecond)
		for name, w := range since(3 * time.Second) {
			if w < 1900*time.Millisecond || w > 2100*time.Millisecond {
				t.Errorf("%s was worked for %v, want a third of 6 s", name, w)
			}
		}
		mu.Lock()
		if most != processors {
			t.Errorf("%d were worked on at one time, want %d", most, processors)
		}
		mu.Unlock()
		close(stop)
		time.Sleep(time.Second)
		synctest.Wait()
	})
}

// TestTurnsOfAFewBlocks: a block of one that has few waits for the blocks that are worked
// on, and not for those of another that wait before it.
func TestTurnsOfAFewBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := aggregator.NewTurns(1)
		big, small := turns.Join(), turns.Join()
		var mu sync.Mutex
		var order []string
		block := func(name string, turn *aggregator.Turn) {
			go turn.Do(func() {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
		}
		for range 5 {
			block("big", big)
		}
		time.Sleep(2500 * time.Millisecond)
		block("small", small)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"big", "big", "big", "small", "big", "big"}; !slices.Equal(order, want) {
			t.Errorf("worked for %v, want %v", order, want)
		}
	})
}
