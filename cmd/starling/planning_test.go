package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

var measured = regexp.MustCompile(`[\d.]+ ms`)

// timeless leaves out of a text what this machine measured, and how its lines break for it.
func timeless(s string) string {
	return measured.ReplaceAllString(strings.Join(strings.Fields(s), " "), "... ms")
}

// TestPlanningPage: docs/planning.md shows what its commands print.
func TestPlanningPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/planning.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for i, block := range strings.Split(string(page), "```\n") {
		if i%2 == 0 {
			continue // text
		}
		first, want, _ := strings.Cut(block, "\n")
		args, ok := strings.CutPrefix(first, "$ starling ")
		if !ok {
			t.Fatalf("a block that shows no command: %q", first)
		}
		var out, messages strings.Builder
		e := &env{stdin: strings.NewReader(""), stdout: &out, stderr: &messages}
		err := root().run(t.Context(), e, "", strings.Fields(args))
		if f := new(failure); err != nil && !(errors.As(err, &f) && f.code == exitCheck) {
			t.Errorf("%s: %v", args, err)
		}
		if timeless(out.String()) != timeless(want) {
			t.Errorf("starling %s prints\n%s", args, out.String())
		}
		shown++
	}
	if shown < 4 {
		t.Errorf("the page shows %d commands", shown)
	}
}
