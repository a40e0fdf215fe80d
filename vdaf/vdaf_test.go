package vdaf

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

func TestAggShare(t *testing.T) {
	for _, f := range []field.Field{field.Field64{}, field.Field128{}} {
		a := MakeAggShare(f, 3)
		if err := a.AddSigned([]int64{5, -7, math.MinInt64}); err != nil {
			t.Fatal(err)
		}
		b := a.Clone()
		if err := b.Merge(a); err != nil {
			t.Fatal(err)
		}
		if err := b.AddSigned([]int64{-1, 0, math.MaxInt64}); err != nil {
			t.Fatal(err)
		}
		if b.Len() != 3 {
			t.Errorf("field %d: length is %d", f.ID(), b.Len())
		}
		// Noise in two shares, part below zero, comes out of their sum.
		got, err := UnshardInt64(f, 2, []*AggShare{{f, a.v[:2*f.Limbs()]}, {f, b.v[:2*f.Limbs()]}})
		if err != nil || !slices.Equal(got, []int64{14, -21}) {
			t.Errorf("field %d: sum is %d, %v", f.ID(), got, err)
		}
		enc := a.Append([]byte{9})
		if len(enc) != 1+3*f.Size() || enc[0] != 9 {
			t.Errorf("field %d: Append gives %x", f.ID(), enc)
		}
		c, err := ReadAggShare(f, 3, enc[1:])
		if err != nil || !slices.Equal(c.v, a.v) {
			t.Errorf("field %d: decoded share differs: %v", f.ID(), err)
		}
		for _, bad := range [][]byte{nil, enc, enc[2:], bytes.Repeat([]byte{0xFF}, 3*f.Size())} {
			if _, err := ReadAggShare(f, 3, bad); !errors.Is(err, ErrDecode) {
				t.Errorf("field %d: ReadAggShare(%x): %v", f.ID(), bad, err)
			}
		}
		before := slices.Clone(a.v)
		other := MakeAggShare(field.ByID(3-f.ID()), 3)
		for _, err := range []error{a.Merge(MakeAggShare(f, 2)), a.Merge(other), a.AddSigned([]int64{1, 2})} {
			if !errors.Is(err, ErrMismatch) {
				t.Errorf("field %d: error is %v", f.ID(), err)
			}
		}
		if !slices.Equal(a.v, before) {
			t.Errorf("field %d: a refused call changed the share", f.ID())
		}
		if a.Reset(); !slices.Equal(a.v, make([]uint64, len(before))) || slices.Equal(b.v, a.v) {
			t.Errorf("field %d: Reset leaves %x", f.ID(), a.v)
		}
	}
	// Shares of as many words but another field.
	if err := MakeAggShare(field.Field64{}, 2).Merge(MakeAggShare(field.Field128{}, 1)); !errors.Is(err, ErrMismatch) {
		t.Errorf("fields mixed: %v", err)
	}
}

func TestPingPong(t *testing.T) {
	msg, share := []byte{0xAA, 0xBB}, []byte{0xCC}
	for _, c := range []struct {
		enc  []byte
		want []byte // VDAF-18 section 5.7.1
		m    PingPong
	}{
		{AppendPingPongInitialize(nil, share), []byte{0, 0, 0, 0, 1, 0xCC}, PingPong{PingPongInitialize, nil, share}},
		{AppendPingPongContinue(nil, msg, share), []byte{1, 0, 0, 0, 2, 0xAA, 0xBB, 0, 0, 0, 1, 0xCC},
			PingPong{PingPongContinue, msg, share}},
		{AppendPingPongFinish(nil, msg), []byte{2, 0, 0, 0, 2, 0xAA, 0xBB}, PingPong{PingPongFinish, msg, nil}},
		{AppendPingPongFinish(nil, nil), []byte{2, 0, 0, 0, 0}, PingPong{PingPongFinish, []byte{}, nil}},
	} {
		if !bytes.Equal(c.enc, c.want) {
			t.Errorf("type %d: encoded as %x, want %x", c.m.Type, c.enc, c.want)
		}
		m, err := ReadPingPong(c.enc)
		if err != nil || m.Type != c.m.Type || !bytes.Equal(m.Message, c.m.Message) || !bytes.Equal(m.Share, c.m.Share) {
			t.Errorf("type %d: decoded as %v, %v", c.m.Type, m, err)
		}
		for n := range c.enc {
			if _, err := ReadPingPong(c.enc[:n]); !errors.Is(err, ErrDecode) {
				t.Errorf("type %d: %d of %d bytes: %v", c.m.Type, n, len(c.enc), err)
			}
		}
		if _, err := ReadPingPong(append(c.enc, 0)); !errors.Is(err, ErrDecode) {
			t.Errorf("type %d: byte too many: %v", c.m.Type, err)
		}
	}
	for _, bad := range [][]byte{{3, 0, 0, 0, 0}, {0xFF}, {0, 0xFF, 0xFF, 0xFF, 0xFF, 1}} {
		if _, err := ReadPingPong(bad); !errors.Is(err, ErrDecode) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

var pingPongSeeds = [][]byte{
	AppendPingPongInitialize(nil, []byte("share")),
	AppendPingPongContinue(nil, []byte("message"), []byte("share")),
	AppendPingPongFinish(nil, nil),
	{3, 0, 0, 0, 0},
	{1, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF},
}

// What decodes encodes to the same bytes.
func FuzzReadPingPong(f *testing.F) {
	if len(pingPongSeeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range pingPongSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadPingPong(b)
		if err != nil {
			if !errors.Is(err, ErrDecode) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		var again []byte
		switch m.Type {
		case PingPongInitialize:
			again = AppendPingPongInitialize(nil, m.Share)
		case PingPongContinue:
			again = AppendPingPongContinue(nil, m.Message, m.Share)
		case PingPongFinish:
			again = AppendPingPongFinish(nil, m.Message)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%x encodes again as %x", b, again)
		}
	})
}
