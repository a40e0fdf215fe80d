package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var errBad = errors.New("test: bad")

// An all has every kind of field.
type all struct {
	a       uint8
	b       uint16
	c       uint32
	d       uint64
	e       int64
	id      [3]byte
	v8, v16 []byte
	v24     []byte
	v32     []byte
	t8, t16 string
	yes     bool
	at      time.Time
	length  time.Duration
	list    []uint16
	n24     uint8
	n32     uint8
	raw     []byte
	rest    []byte
}

func (m *all) code(c *Coder) {
	c.Const("magic", "no magic")
	c.Raw(&m.raw, func() {
		c.Uint8(&m.a, "a")
		c.Uint16(&m.b, "b")
	})
	c.Uint32(&m.c, "c")
	c.Uint64(&m.d, "d")
	c.Int64(&m.e, "e")
	c.Fixed(m.id[:], "id")
	c.Vec8(&m.v8, 1, "v8")
	c.CheckRead(!bytes.HasPrefix(m.v8, []byte("!")), "v8 is bad")
	c.Vec16(&m.v16, 0, "v16")
	c.Vec24(&m.v24, 0, "v24")
	c.Vec32(&m.v32, 0, "v32")
	c.Text8(&m.t8, "t8")
	c.Text16(&m.t16, "t16")
	c.Bool(&m.yes, "yes")
	c.Seconds(&m.at, "at")
	c.Duration32(&m.length, "length")
	c.Nested16("list", func() {
		Items(c, &m.list, func(i int, x *uint16) {
			c.Uint16(x, "item")
			c.Check(i == 0 || m.list[i-1] < *x, "items do not rise")
		})
	})
	c.Nested24("n24", func() { c.Uint8(&m.n24, "n24") })
	c.Nested32("n32", func() { c.Uint8(&m.n32, "n32") })
	c.Rest(&m.rest)
}

const encoded = "magic" + "\x01" + "\x02\x03" + "\x04\x05\x06\x07" + "\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f" +
	"\xff\xff\xff\xff\xff\xff\xff\xfe" + "idx" + "\x02v8" + "\x00\x00" + "\x00\x00\x01x" + "\x00\x00\x00\x01y" +
	"\x01t" + "\x00\x02tt" + "\x01" + "\x00\x00\x00\x00\x65\x53\xf1\x00" + "\x00\x00\x00\x3c" +
	"\x00\x04\x00\x01\x00\x03" + "\x00\x00\x01\x07" + "\x00\x00\x00\x01\x09" + "rest"

func sample() *all {
	return &all{
		a: 1, b: 0x0203, c: 0x04050607, d: 0x08090a0b0c0d0e0f, e: -2, id: [3]byte([]byte("idx")),
		v8: []byte("v8"), v24: []byte("x"), v32: []byte("y"), t8: "t", t16: "tt",
		yes: true, at: time.Unix(1_700_000_000, 0).UTC(), length: time.Minute,
		list: []uint16{1, 3}, n24: 7, n32: 9, rest: []byte("rest"),
	}
}

func TestBothWays(t *testing.T) {
	b, err := Append([]byte("before"), errBad, sample().code)
	if err != nil || string(b) != "before"+encoded {
		t.Fatalf("wrote %q, %v; want %q", b, err, encoded)
	}
	var m all
	if err := Read([]byte(encoded), errBad, m.code); err != nil {
		t.Fatal(err)
	}
	if string(m.raw) != "\x01\x02\x03" {
		t.Errorf("raw is %x", m.raw)
	}
	want := sample()
	want.raw, want.v16 = m.raw, m.v16
	if got, want := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", *want); got != want || len(m.v16) != 0 {
		t.Errorf("read  %s\nwant %s", got, want)
	}
	// A field that grows does not write into the next one.
	in := []byte(encoded)
	m = all{}
	if err := Read(in, errBad, m.code); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][]byte{m.raw, m.v8, m.v16, m.v24, m.v32} {
		_ = append(f, 0xee)
	}
	if string(in) != encoded {
		t.Error("the input has changed")
	}
}

// Every beginning of a message is refused with the reader's error, and none is read as a
// whole.
func TestTruncated(t *testing.T) {
	end := len(encoded) - len("rest")
	for n := range end {
		var m all
		if err := Read([]byte(encoded[:n]), errBad, m.code); !errors.Is(err, errBad) {
			t.Errorf("%d of %d bytes: %v", n, end, err)
		}
	}
}

func TestRefused(t *testing.T) {
	change := func(f func(*all)) *all { m := sample(); f(m); return m }
	for want, m := range map[string]*all{
		"v8 is too short":   change(func(m *all) { m.v8 = nil }),
		"v8 is too long":    change(func(m *all) { m.v8 = make([]byte, 1<<8) }),
		"v16 is too long":   change(func(m *all) { m.v16 = make([]byte, 1<<16) }),
		"v24 is too long":   change(func(m *all) { m.v24 = make([]byte, 1<<24) }),
		"t8 is too long":    change(func(m *all) { m.t8 = strings.Repeat("x", 1<<8) }),
		"list is too long":  change(func(m *all) { m.list = rising(1 << 15) }),
		"items do not rise": change(func(m *all) { m.list = []uint16{2, 2} }),
	} {
		dst := []byte("dst")
		b, err := Append(dst, errBad, m.code)
		if !errors.Is(err, errBad) || !strings.HasSuffix(err.Error(), want) || !bytes.Equal(b, dst) {
			t.Errorf("%s: wrote %d bytes, %v", want, len(b), err)
		}
	}
	for want, edit := range map[string][2]string{
		"no magic":               {"magic", "magik"},
		"v8 is too short":        {"\x02v8", "\x00"},
		"items do not rise":      {"\x00\x04\x00\x01\x00\x03", "\x00\x04\x00\x03\x00\x03"},
		"yes is neither 0 nor 1": {"tt\x01", "tt\x02"},
		"at: time out of bounds": {"\x00\x00\x00\x00\x65\x53", "\x00\x00\x01\x00\x65\x53"},
		"v8 is bad":              {"\x02v8", "\x02!8"},
		"item is truncated":      {"\x00\x04\x00\x01\x00\x03", "\x00\x03\x00\x01\x00"},
		"n24 has trailing bytes": {"\x00\x00\x01\x07", "\x00\x00\x02\x07\x07"},
		"n24 is truncated":       {"\x00\x00\x01\x07", "\x00\x00\x00"},
	} {
		in := strings.Replace(encoded, edit[0], edit[1], 1)
		err := Read([]byte(in), errBad, new(all).code)
		if !errors.Is(err, errBad) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	bad := change(func(m *all) { m.v8 = []byte("!8") })
	if b, err := Append(nil, errBad, bad.code); err != nil || !bytes.Contains(b, bad.v8) {
		t.Errorf("who writes is not trusted: %v", err)
	}
	err := Read([]byte("\x01\x02"), errBad, func(c *Coder) {
		var n uint8
		c.Uint8(&n, "n")
	})
	if !errors.Is(err, errBad) || !strings.HasSuffix(err.Error(), "trailing bytes") {
		t.Errorf("two bytes for one: %v", err)
	}
}

func rising(n int) []uint16 {
	list := make([]uint16, n)
	for i := range list {
		list[i] = uint16(i)
	}
	return list
}

// After the first failure nothing is read, and the failure stays.
func TestFirstFailureSticks(t *testing.T) {
	c := Reader([]byte("\x01\x02"), errBad)
	own := errors.New("own")
	c.Abort(own)
	var n uint8
	var v []byte
	c.Uint8(&n, "n")
	c.Rest(&v)
	c.Nested16("nested", func() { t.Error("the table ran") })
	c.Fail("later")
	if err := c.End(); err != own || n != 0 || v != nil || c.More() {
		t.Errorf("%v, read %d and %x", err, n, v)
	}
}

// TestMustAppend: a table that fails after all is our own bug.
func TestMustAppend(t *testing.T) {
	if b := MustAppend([]byte("x"), func(c *Coder) { c.Const("y", "") }); string(b) != "xy" {
		t.Errorf("%q", b)
	}
	defer func() {
		if why, _ := recover().(string); why != "wire: internal error: no" {
			t.Errorf("panic of %q", why)
		}
	}()
	MustAppend(nil, func(c *Coder) { c.Fail("no") })
}

func TestSum(t *testing.T) {
	b := AppendSum([]byte("content"), 0)
	content, ok := CutSum(b)
	if !ok || string(content) != "content" {
		t.Fatalf("%q, %v", content, ok)
	}
	if again := AppendSum([]byte("xxcontent"), 2); !bytes.Equal(again[2:], b) {
		t.Error("the sum depends on what stands before")
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if _, ok := CutSum(bad); ok {
			t.Errorf("byte %d changed, and nobody sees it", i)
		}
	}
	if _, ok := CutSum(b[:31]); ok {
		t.Error("31 bytes have a sum")
	}
}

// FuzzMalleability: what is read is the only encoding of what was read.
func FuzzMalleability(f *testing.F) {
	f.Add([]byte(encoded))
	f.Add([]byte(encoded[:len(encoded)-6]))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m all
		if err := Read(b, errBad, m.code); err != nil {
			if !errors.Is(err, errBad) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		again, err := Append(nil, errBad, m.code)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x reads as %x, %v", b, again, err)
		}
	})
}
