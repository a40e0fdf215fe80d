package aggregator_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformanceTable: every test that docs/conformance.md names is there, and every
// test of a check in this package is in the table.
func TestConformanceTable(t *testing.T) {
	doc, err := os.ReadFile("../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9/]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1) {
		named[m[1]+"."+m[2]] = true
	}
	if len(named) < 80 {
		t.Fatalf("the table names only %d tests", len(named))
	}
	declared := map[string]map[string]bool{}
	tests := func(pkg string) map[string]bool {
		if declared[pkg] != nil {
			return declared[pkg]
		}
		files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(pkg), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(src), -1) {
				found[m[1]] = true
			}
		}
		declared[pkg] = found
		return found
	}
	for name := range named {
		pkg, test, _ := strings.Cut(name, ".")
		if !tests(pkg)[test] {
			t.Errorf("docs/conformance.md names %s, which does not exist", name)
		}
	}
	for test := range tests("aggregator") {
		for _, prefix := range []string{"TestUpload", "TestHelperInit", "TestHelperReport", "TestCollection", "TestShare", "TestLeader"} {
			if strings.HasPrefix(test, prefix) && !named["aggregator."+test] {
				t.Errorf("%s is not in docs/conformance.md", test)
			}
		}
	}
}
