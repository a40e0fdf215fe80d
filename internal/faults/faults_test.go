package faults

import (
	"errors"
	"io"
	"testing"
)

// TestList: faults keep their order and places, those of a list each its own, and each can
// be found.
func TestList(t *testing.T) {
	var inner, outer List
	inner.Add("a: ", io.EOF)
	inner.If(true, "b: %d", 7)
	inner.If(false, "c: never")
	inner.Add("d", nil)
	outer.Add("", errors.New("first"))
	outer.Add("in.", inner.All())
	outer.Add("none.", List(nil).All())
	if err := outer.All(); err.Error() != "first\nin.a: EOF\nin.b: 7" || !errors.Is(err, io.EOF) || len(outer) != 3 {
		t.Errorf("%d faults: %q", len(outer), err)
	}
	for range 2 * Most {
		inner.If(true, "again")
	}
	if len(inner) != Most {
		t.Errorf("%d faults, want no more than %d", len(inner), Most)
	}
	if err := (List{}).All(); err != nil {
		t.Errorf("no fault is %v", err)
	}
}
