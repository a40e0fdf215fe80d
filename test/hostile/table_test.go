package hostile

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// controls are tests of the harness: what the attacks change is taken as it is.
var controls = []string{"TestHonestRecipe", "TestHonestReport", "TestMain", "TestAttackTable"}

// TestAttackTable: every test that docs/attacks.md names is there, every attack of this
// package is in it, and each line says who attacks, what, who refuses and by which test.
func TestAttackTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := func(pkg string) []string {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.[TM]\)`).FindAllStringSubmatch(string(src), -1) {
				found = append(found, m[1])
			}
		}
		return found
	}
	var named []string
	rows := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "attacker" {
			continue
		}
		rows++
		for i, cell := range cells {
			if cells[i] = strings.TrimSpace(cell); cells[i] == "" && (i != 3 || !strings.HasPrefix(cells[2], "nothing to refuse")) {
				t.Errorf("an empty cell: %s", line)
			}
		}
		list := regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cells[4], -1)
		if len(list) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range list {
			if !slices.Contains(tests(m[1]), m[2]) {
				t.Errorf("docs/attacks.md names %s.%s, which does not exist", m[1], m[2])
			}
			named = append(named, m[1]+"."+m[2])
		}
	}
	if rows < 20 {
		t.Fatalf("the table has only %d lines", rows)
	}
	for _, test := range tests("test/hostile") {
		if !slices.Contains(controls, test) && !slices.Contains(named, "test/hostile."+test) {
			t.Errorf("%s is not in docs/attacks.md", test)
		}
	}
}
