package keyset_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/keysettest"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// directory is one in memory, and a clock.
type directory struct {
	mem   *disktest.Mem
	ahead atomic.Int64
}

func (d *directory) Shared() bool            { return false }
func (d *directory) Advance(t time.Duration) { d.ahead.Add(int64(t)) }
func (d *directory) Open(t *testing.T) vault.Vault {
	v := &vault.Dir{FS: d.mem, Path: "keys", Suffix: ".hpke"}
	if err := v.Make(); err != nil {
		t.Fatal(err)
	}
	return v
}

func (d *directory) Clock(ahead time.Duration) disk.Clock { return clock{d, ahead} }

type clock struct {
	d     *directory
	ahead time.Duration
}

func (c clock) Now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.d.ahead.Load()) + c.ahead)
}

func (c clock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

// TestDirectory: a set on a directory keeps what every set does.
func TestDirectory(t *testing.T) {
	keysettest.Run(t, func(*testing.T) keysettest.Harness { return &directory{mem: disktest.NewMem(1)} })
}
