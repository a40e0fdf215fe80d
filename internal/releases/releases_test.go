package releases_test

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
)

// entries differ from the first in one thing each.
func entries() []releases.Release {
	base := releases.Release{Batch: releases.Units(dap.Interval{Start: 10, Duration: 2}), Count: 7, Answer: [32]byte{1}}
	list := []releases.Release{base, base, base, base, base, base}
	list[1].Batch = releases.Units(dap.Interval{Start: 10, Duration: 3})
	list[2].Batch = releases.Units(dap.Interval{Start: 9, Duration: 2})
	list[3].Count++
	list[4].Answer[31]++
	list[5].Batch = releases.ID(dap.BatchID{10})
	return list
}

// TestDigestsTellReleasesApart: another task, entry, order or length has another digest.
func TestDigestsTellReleasesApart(t *testing.T) {
	seen := map[releases.Digest]string{}
	add := func(d releases.Digest, what string) {
		t.Helper()
		if other, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", what, other)
		}
		seen[d] = what
	}
	list := entries()
	for _, task := range []dap.TaskID{{1}, {2}} {
		begin := releases.Begin(task)
		add(begin, "nothing")
		for i := range list {
			one := begin.Next(&list[i])
			add(one, "one release")
			for k := range list {
				add(one.Next(&list[k]), "two releases")
			}
		}
	}
}

// TestDigest holds the chain to bytes that were computed apart from this code, as two
// releases of it must agree.
func TestDigest(t *testing.T) {
	list := entries()
	for _, x := range []struct {
		got  releases.Digest
		want string
	}{
		{releases.Begin(dap.TaskID{1}), "e79f416ea062f08a373f70e673e00416113a3d363bf4edf65ecf6bcc77291ebe"},
		{releases.Begin(dap.TaskID{1}).Next(&list[0]), "5764431f7641d0a3624a6e4c8cacecc325b2e1be9dde0a66a35db4ef35610d7c"},
		{releases.Begin(dap.TaskID{1}).Next(&list[5]), "7a9b1ea7581dbd35e48a25adcfebb7b274f3ab4266c444a66b1d409dac5de051"},
	} {
		if got := hex.EncodeToString(x.got[:]); got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
}

// TestUnitsWithoutEnd: an interval that no report reaches the end of is cut off, and what
// a row of a database can hold of it is the same batch.
func TestUnitsWithoutEnd(t *testing.T) {
	want := releases.Units(dap.Interval{Start: 5, Duration: math.MaxInt64 - 4})
	for _, iv := range []dap.Interval{{Start: 5, Duration: math.MaxUint64}, {Start: 5, Duration: math.MaxUint64 - 5}, {Start: 5, Duration: math.MaxInt64}} {
		if releases.Units(iv) != want {
			t.Errorf("%v is another batch", iv)
		}
	}
}

// TestSeen: what was seen has one spelling.
func TestSeen(t *testing.T) {
	want := releases.Seen{Length: 12, Chain: releases.Begin(dap.TaskID{1})}
	if got, err := releases.ParseSeen(want.String()); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
	digest := want.String()[3:]
	for _, text := range []string{"", "12", "12 ", " " + digest, "012 " + digest, "+12 " + digest, "-1 " + digest, "12  " + digest, "12 " + digest + "00",
		"12 " + digest[2:], "99999999999999999999 " + digest} {
		if got, err := releases.ParseSeen(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
