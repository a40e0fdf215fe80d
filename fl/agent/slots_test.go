package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
)

// TestEachRoundOfSlots: a process that contributes in each slot takes part in each round,
// once, and pays for each once; and in each slot what lies on the disk is written anew, in
// files of one length, whether the slot was the one that was drawn or not.
func TestEachRoundOfSlots(t *testing.T) {
	for _, kind := range []string{"fixed:1/2:4:1", "averaged:1/2:4:1", "sliding:1/2:4:2:1"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, kind, false)
				w.start()
				defer func() { w.stop() }()
				const rounds, slots = 8, 4
				file := func(name string) string {
					b, err := os.ReadFile(filepath.Join(w.dir, "home", name))
					if err != nil {
						t.Fatal(err)
					}
					return string(b)
				}
				sent := make(map[int]uint64)
				for round := range rounds {
					began := w.paid()
					for slot := range slots {
						before := w.servers.Counts().Reports
						var draws, mark string
						if round+slot > 0 {
							draws, mark = file(participate.DrawsFile), file(participate.MarkFile)
						}
						if code, name := w.contribute(w.round(), "", some); code != 200 {
							t.Fatalf("round %d, slot %d: %d %s", round, slot, code, name)
						}
						synctest.Wait()
						asleep := w.paid() == began && strings.HasPrefix(kind, "sliding") // which is no secret
						if !asleep && file(participate.DrawsFile) == draws || !asleep && file(participate.MarkFile) == mark {
							t.Errorf("round %d, slot %d: nothing is written, which tells that it is not the slot", round, slot)
						}
						if n := len(file(participate.MarkFile)); mark != "" && n != len(mark) {
							t.Errorf("round %d, slot %d: the mark has %d bytes, before %d", round, slot, n, len(mark))
						}
						sent[round] += uint64(w.servers.Counts().Reports - before)
						time.Sleep(minute)
					}
					if sent[round] > 1 {
						t.Errorf("%d reports in a round", sent[round])
					}
				}
				// The first begins in the middle of things, and another round is drawn for in the last.
				if n := w.paid(); n < rounds {
					t.Errorf("%d of %d rounds are paid for", n, rounds)
				}
			})
		})
	}
}

// TestLateForItsSlot: an update is of the slot in which it was given: one that is to be sent
// when the next slot has come, which is the one that was drawn, is not sent in it.
func TestLateForItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "fixed:1/2:4:1", false)
		w.start()
		defer func() { w.stop() }()
		x := w.agent.tasks[w.checked.ID()]
		for range 16 {
			at := time.Now()
			d, err := x.person.DecideAt(t.Context(), client.Reals([]float64{0, 0, 0}), at)
			if err != nil {
				t.Fatal(err)
			}
			from, _, ok := d.Slot()
			if !ok || !from.After(at) || from.Sub(at) > minute {
				time.Sleep(minute)
				continue
			}
			time.Sleep(time.Until(from.Add(time.Second)))
			w.agent.send(x, d, at)
			if w.servers.Counts().Uploads != 0 {
				t.Error("sent in the slot after its own")
			}
			// The slot is still there for an update of its own.
			d, err = x.person.DecideAt(t.Context(), client.Reals([]float64{0, 0, 0}), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if again, _, ok := d.Slot(); !ok || !again.Equal(from) {
				t.Error("the slot was taken by an update of another")
			}
			return
		}
		t.Error("no slot was drawn")
	})
}

// TestWakesEvenly: in sliding windows the guarantee counts on devices that decide evenly over
// a round, so that enough others have each slot in their windows. A process that contributes
// in each slot is not taken to wake in the first of each round. That 15 rounds are all begun
// there has probability 10^-9.
func TestWakesEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "sliding:1/2:4:2:1", false)
		time.Sleep(2 * minute) // to the middle of a round
		w.options.Home.Limits.MaxEpsilon = 1e6
		w.start()
		defer func() { w.stop() }()
		var begun [4]int
		for i := range 15 {
			for slot := range 4 {
				before := w.paid()
				if code, name := w.contribute(w.round(), "", some); code != 200 {
					t.Fatalf("%d %s", code, name)
				}
				synctest.Wait()
				at := (slot + 2) % 4
				begun[at] += int(w.paid() - before)
				if i == 0 && slot == 0 && w.paid() != 1 {
					t.Error("one that begins within a round waits for the next")
				}
				time.Sleep(minute)
			}
		}
		if n := begun[0] + begun[1] + begun[2] + begun[3]; n < 15 || n > 16 {
			t.Errorf("%d rounds are paid for, of 15 and a half", n)
		}
		if begun[0] == 15 {
			t.Errorf("rounds begun in slots: %v", begun)
		}
	})
}
