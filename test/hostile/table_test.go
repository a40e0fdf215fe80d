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
var controls = []string{"TestHonestRecipe", "TestHonestReport", "TestMain", "TestAttackTable", "TestPaperTable"}

// TestAttackTable: every test that docs/attacks.md names is there, every attack of this
// package is in it, and each line says who attacks, what, who refuses and by which test.
func TestAttackTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
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
		named = append(named, existing(t, cells[4])...)
	}
	if rows < 20 {
		t.Fatalf("the table has only %d lines", rows)
	}
	for _, test := range testsOf(t, "test/hostile") {
		if !slices.Contains(controls, test) && !slices.Contains(named, "test/hostile."+test) {
			t.Errorf("%s is not in docs/attacks.md", test)
		}
	}
}

// testsOf are the tests of a package.
func testsOf(t *testing.T, pkg string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
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

// existing are the tests that a cell names, each of which must be there, and one at least.
func existing(t *testing.T, cell string) (named []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cell, -1) {
		if !slices.Contains(testsOf(t, m[1]), m[2]) {
			t.Errorf("%s.%s does not exist", m[1], m[2])
		}
		named = append(named, m[1]+"."+m[2])
	}
	if len(named) == 0 {
		t.Errorf("no test: %s", cell)
	}
	return named
}

// TestPaperTable: each requirement in docs/samplable.md says what does it and how far, and is
// held by tests that exist.
func TestPaperTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/samplable.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "section" {
			continue
		}
		rows++
		for _, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("an empty cell: %s", line)
			}
		}
		existing(t, cells[4])
	}
	if rows < 20 {
		t.Errorf("the table has only %d lines", rows)
	}
}
