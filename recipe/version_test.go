package recipe_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
)

// The draft that a task speaks stands in the recipe, and so in its id and in its task's;
// draft 18 is said by saying nothing.
func TestWireVersion(t *testing.T) {
	old := needles()
	before, err := old.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := needles()
	r.DAP = dap.Draft19
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	ext := []byte{0, 16, 0, 2, 0, 19}
	if !bytes.HasSuffix(b, ext) || len(b) != len(before)+len(ext) {
		t.Errorf("%x does not end in %x", b, ext)
	}
	again, err := Read(b)
	if err != nil || again.DAP != dap.Draft19 {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := account.Validate(again); err != nil {
		t.Error(err)
	}
	for _, r := range []*Recipe{old, again} {
		task, err := r.Task()
		if err != nil || task.Version != r.DAP {
			t.Errorf("the task of a recipe of %v speaks %v, %v", r.DAP, task.Version, err)
		}
	}
	a, _ := old.Task()
	c, _ := again.Task()
	if a.TaskID() == c.TaskID() {
		t.Error("one task speaks both drafts")
	}

	var said strings.Builder
	if err := account.Describe(again, &said); err != nil || !strings.Contains(said.String(), "dap-19") {
		t.Errorf("%s, %v", said.String(), err)
	}
	for _, number := range []byte{0, 17, 18, 20} { // 18 too: it has one spelling
		b[len(b)-1] = number
		var unknown *UnknownError
		if _, err := Read(b); !errors.As(err, &unknown) || unknown.Value != uint16(number) {
			t.Errorf("a recipe of draft %d: %v", number, err)
		}
	}
	r.DAP = dap.Draft19 + 1
	var invalid *InvalidError
	if _, err := r.Append(nil); !errors.As(err, &invalid) {
		t.Errorf("a recipe of no draft has bytes: %v", err)
	}
	if err := account.Validate(r); !errors.As(err, &invalid) || invalid.Field != "dap" {
		t.Errorf("a recipe of no draft is valid: %v", err)
	}
}
