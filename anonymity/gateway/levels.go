package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/disk"
)

// errDisk: the disk is nearly full.
var errDisk = errors.New("the disk has less room than is to be left free (min_free)")

// Levels say how full a gateway is, and what is in the way of its work.
type Levels struct {
	// Store is why it neither takes nor passes on anything, Keys, Disk and Backlog why it
	// takes no requests, and Target why it does not pass on what it has acknowledged; nil
	// where there is nothing.
	Store, Keys, Disk, Backlog, Target error
	// DiskFree is the room on the disk in bytes; below 0: not known.
	DiskFree int64
	// Held requests are of rounds that are not done; Oldest is how long the first of them
	// has been held.
	Held   int
	Oldest time.Duration
	// Usable keys may devices use.
	Usable int
}

// Levels are those of the moment.
func (g *Gateway) Levels() Levels {
	left, _ := g.room.left()
	l := Levels{Store: g.err(), Keys: g.Ready(), DiskFree: -1, Held: g.o.Limits.Held - left}
	if g.diskFull() {
		l.Disk = errDisk
	}
	if free, known := disk.Free(g.o.FS); known {
		l.DiskFree = int64(free)
	}
	if left == 0 {
		l.Backlog = fmt.Errorf("it holds %d requests, as many as it may", g.o.Limits.Held)
	}
	if s := g.Status(); s.Oldest != nil {
		l.Oldest = max(0, s.Now.Sub(*s.Oldest))
		if s.Waiting < uint64(s.Held) && l.Oldest > late+g.o.Mix {
			l.Target = fmt.Errorf("the leader has not taken the oldest upload for %v", l.Oldest.Round(time.Second))
		}
	}
	for _, k := range g.keys.Load().list {
		if k.usable(g.o.Clock) && g.count(k.opened) < k.opened.max {
			l.Usable++
		}
	}
	return l
}

// Busy answers a request for which there is no connection left.
func Busy(w http.ResponseWriter, _ *http.Request) { door.Refuse(w, door.Rate) }

// NotStarted answers a request that comes before the gateway is open.
func NotStarted(w http.ResponseWriter, _ *http.Request) { door.Refuse(w, door.Busy) }
