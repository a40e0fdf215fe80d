package recipe_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A recipe that is published again has an id and a task of its own and the same guarantee;
// the first epoch is said by saying nothing.
func TestEpoch(t *testing.T) {
	first := needles()
	before, err := first.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := needles()
	r.Epoch = 1
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	ext := []byte{0, 12, 0, 4, 0, 0, 0, 1}
	if !bytes.Contains(b, ext) || len(b) != len(before)+len(ext) {
		t.Errorf("%x does not hold %x", b, ext)
	}
	again, err := Read(b)
	if err != nil || again.Epoch != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := account.Validate(again); err != nil {
		t.Error(err)
	}
	one, err1 := first.Task()
	two, err2 := again.Task()
	if err := errors.Join(err1, err2); err != nil || one.TaskID() == two.TaskID() {
		t.Errorf("two epochs are one task, %v", err)
	}
	g, err1 := account.Guarantee(first)
	h, err2 := account.Guarantee(again)
	if err := errors.Join(err1, err2); err != nil || g.Epsilon != h.Epsilon || g.Delta != h.Delta {
		t.Errorf("the guarantees are %+v and %+v, %v", g, h, err)
	}
	var said strings.Builder
	if err := account.Describe(again, &said); err != nil || !strings.Contains(said.String(), "epoch 1") {
		t.Errorf("%s, %v", said.String(), err)
	}
	if j, err := marshal(again); err != nil || !bytes.Contains(j, []byte(`"epoch":1`)) {
		t.Errorf("%s, %v", j, err)
	}
	at := bytes.Index(b, ext)
	b[at+7] = 0
	if _, err := Read(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("epoch 0 has a second spelling: %v", err)
	}
}
