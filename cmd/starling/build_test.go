package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLeanImports: the build for agents and accountants has nothing that draws and nothing
// that plays all parties. How large it is, the gate holds.
func TestLeanImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags", "lean", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for path := range strings.FieldsSeq(string(out)) {
		n++
		for _, never := range []string{"gonum.org/", "codeberg.org/", "golang.org/x/image", "image/", "github.com/starling-agg/starling/lab", "github.com/starling-agg/starling/figures",
			"github.com/starling-agg/starling/internal/draw", "github.com/starling-agg/starling/fl/train", "testing"} {
			if strings.HasPrefix(path, never) {
				t.Errorf("it imports %s", path)
			}
		}
	}
	if n < 100 {
		t.Errorf("go list names only %d packages", n)
	}
}
