package cloak_test

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/shuffle/cloak"
	"github.com/starling-agg/starling/shuffle/cloak/cloaktest"
)

var constructors = map[string]func(cloak.Options) (*cloak.Params, error){
	"modern": cloak.Modern, "single-user": cloak.SingleUser, "sum-preserving": cloak.SumPreserving,
}

// TestStated: the least numbers that are found give the guarantee when they are stated,
// more give it too, and one message less does not.
func TestStated(t *testing.T) {
	for name, construct := range constructors {
		o := cloak.Options{Users: 400, Honest: 300, Precision: 25, Epsilon: 1, Delta: 1e-6}
		found := params(t, construct, o)
		o.Messages, o.Modulus = found.Messages(), found.Modulus()
		for more, want := range map[int]error{-1: cloak.ErrMessages, 0: nil, 2: nil} {
			stated := o
			stated.Messages += more
			p, err := construct(stated)
			if !errors.Is(err, want) {
				t.Errorf("%s with %d messages more: %v, want %v", name, more, err, want)
			}
			if err == nil && (p.Messages() != stated.Messages || p.Modulus() != stated.Modulus) {
				t.Errorf("%s: %d messages modulo %d, stated %d modulo %d", name, p.Messages(), p.Modulus(), stated.Messages, stated.Modulus)
			}
		}
		wide := o
		wide.Modulus = 1<<61 + 1
		if _, err := construct(wide); !errors.Is(err, cloak.ErrMessages) {
			t.Errorf("%s: as few messages for a modulus that is wider by far: %v", name, err)
		}
		for _, modulus := range []uint64{1, 3 * 400 * 25, 3*400*25 + 2, 1 << 62, 1<<62 + 1, 1<<64 - 1} {
			bad := o
			bad.Modulus = modulus
			if rangeError := new(cloak.RangeError); modulus != 3*400*25+2 && !errors.As(func() error { _, err := construct(bad); return err }(), &rangeError) {
				t.Errorf("%s: modulus %d is taken", name, modulus)
			}
		}
		for _, messages := range []int{-1, 1, 2, 513} {
			bad := o
			bad.Messages = messages
			if _, err := construct(bad); err == nil {
				t.Errorf("%s: %d messages are taken", name, messages)
			}
		}
	}
}

// TestSomeUsers: the sum of any number of users up to Users is right, without noise to the
// unit, and no other number of messages is taken.
func TestSomeUsers(t *testing.T) {
	p := cloaktest.Seeded(params(t, cloak.SumPreserving, cloak.Options{Users: 9, Precision: 7, Epsilon: 1, Delta: 1e-6}), [32]byte{1})
	var all []cloak.Message
	want := int64(0)
	for user := range uint64(9) {
		x := user % 8
		messages, err := p.EncodeUnits([]uint64{x})
		if err != nil {
			t.Fatal(err)
		}
		all, want = append(all, messages...), want+int64(x)
		got, users, err := p.AnalyzeSome(all)
		if err != nil || users != user+1 || got[0].Units != want || got[0].Sum != float64(want)/7 {
			t.Errorf("%d users: %+v of %d, %v, want %d", user+1, got, users, err, want)
		}
		var count *cloak.CountError
		if _, _, err := p.AnalyzeSome(all[1:]); !errors.As(err, &count) || count.Want != user*uint64(p.Messages()) {
			t.Errorf("%d users, one message lost: %v", user+1, err)
		}
		if user == 8 {
			if _, _, err := p.AnalyzeSome(append(all, messages...)); !errors.As(err, &count) || count.Want != 9*uint64(p.Messages()) {
				t.Errorf("10 users of 9: %v", err)
			}
		}
	}
	for _, bad := range [][]uint64{nil, {8}, {1, 1}, {1<<64 - 1}} {
		var out *cloak.RangeError
		if _, err := p.EncodeUnits(bad); !errors.As(err, &out) {
			t.Errorf("%d: %v", bad, err)
		}
	}
}

// Any sum-preserving change is hidden where more are honest than are counted on: then it
// may be one among all.
func TestSumPreservingAmongAll(t *testing.T) {
	o := cloak.Options{Users: 1000, Precision: 100, Epsilon: 1, Delta: 1e-6}
	all := params(t, cloak.SumPreserving, o)
	for _, o.Honest = range []uint64{2, 50, 999} {
		if p := params(t, cloak.SumPreserving, o); p.Messages() != all.Messages() || p.Modulus() != all.Modulus() {
			t.Errorf("%d of 1000 honest: %d messages modulo %d, want %d modulo %d", o.Honest, p.Messages(), p.Modulus(), all.Messages(), all.Modulus())
		}
	}
}
