package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestMixOverStart: what was acknowledged waits for the next multiple of Mix over a start
// of the gateway too, or whoever makes it start anew chooses who goes on together; where
// that time passed meanwhile it goes on at once.
func TestMixOverStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := &fakeLeader{}
		o := Options{FS: disktest.NewMem(1), Keys: []Key{{Pair: generate(t, 1)}}, Window: time.Second, Mix: time.Hour, Transport: leader}
		begin := time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute)
		at := func(minute int) {
			time.Sleep(time.Until(begin.Add(time.Duration(minute)*time.Minute + time.Millisecond)))
		}
		for _, c := range []struct{ sent, stopped, started, looked, want int }{
			{0, 1, 2, 50, 0},
			{51, 52, 53, 60, 2}, // the first with it, at the hour
			{61, 62, 123, 124, 3},
		} {
			at(c.sent)
			b := start(t, o)
			b.ask(t, upload(report(t, byte(c.sent))))
			at(c.stopped)
			b.stop()
			o.FS = o.FS.(*disktest.Mem).Crash()
			at(c.started)
			b = start(t, o)
			at(c.looked)
			got := 0
			for _, ids := range leader.seen() {
				got += len(ids)
			}
			if got != c.want {
				t.Errorf("minute %d: the leader has %d reports, want %d", c.looked, got, c.want)
			}
			b.stop()
			o.FS = o.FS.(*disktest.Mem).Crash()
		}
	})
}
