package tlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/signed"
)

func TestRegister(t *testing.T) {
	mine, theirs := signed.PublicKey{1}, signed.PublicKey{2}
	day := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	var r tlog.Register
	add := func(leaf byte, c tlog.Claim, want error) {
		t.Helper()
		size := r.Size()
		err := r.Add(tlog.Hash{leaf}, c)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%d: %v, want %v", leaf, err, want)
		}
		if err != nil && r.Size() != size {
			t.Errorf("%d: refused, and there", leaf)
		}
	}
	add(1, tlog.Claim{About: [32]byte{1}, From: day(0), Owners: []signed.PublicKey{mine}}, nil)
	add(2, tlog.Claim{About: [32]byte{2}, From: day(1), Until: day(2)}, nil)
	add(3, tlog.Claim{About: [32]byte{3}, From: day(2), Until: day(3)}, nil)
	add(4, tlog.Claim{About: [32]byte{4}, From: day(1), Until: day(1)}, nil) // for no device
	add(5, tlog.Claim{}, nil)
	add(6, tlog.Claim{}, nil) // active sets are about nothing
	add(1, tlog.Claim{About: [32]byte{9}}, tlog.ErrDuplicate)
	add(1, tlog.Claim{}, nil) // byte for byte the first, and nothing follows from it
	if i, ok := r.Find(tlog.Hash{1}); !ok || i != 0 {
		t.Errorf("the first is at %d, %v", i, ok)
	}
	add(7, tlog.Claim{About: [32]byte{2}}, tlog.ErrDuplicate)
	live := func(from, until int, want ...int64) {
		t.Helper()
		if got := r.Live(day(from), day(until)); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("from %d to %d: %v, want %v", from, until, got, want)
		}
	}
	live(-1, 0)
	live(0, 1, 0)
	live(0, 2, 0, 1)
	live(1, 3, 0, 1, 2)
	live(2, 3, 0, 2)
	live(3, 9, 0)
	add(8, tlog.Claim{About: [32]byte{8}, Withdraws: tlog.Hash{77}, By: mine}, tlog.ErrWithdrawal)
	add(8, tlog.Claim{About: [32]byte{8}, Withdraws: tlog.Hash{1}, By: theirs}, tlog.ErrWithdrawal)
	add(8, tlog.Claim{About: [32]byte{8}, From: day(0), Until: day(0), Withdraws: tlog.Hash{1}, By: mine}, nil)
	add(9, tlog.Claim{About: [32]byte{10}, Withdraws: tlog.Hash{1}, By: mine}, tlog.ErrWithdrawal)
	live(0, 2, 1)
	add(10, tlog.Claim{About: [32]byte{1}}, tlog.ErrDuplicate) // it does not come again
	if i, ok := r.Find(tlog.Hash{8}); !ok || i != 7 {
		t.Errorf("at %d, %v", i, ok)
	}
}
