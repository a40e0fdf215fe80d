// Package daptest runs the tests of a package once in each draft of DAP, or in each
// dialect: what every party says must hold in all of them.
package daptest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// Run runs the tests of m once in each dialect and returns the exit code of them all.
// pass is told which one it is, and calls run. inOne names tests that run in one dialect
// alone, by its index: those that take long and ask about other things than messages.
// With -short, where a run under the race detector asks about goroutines and not about
// messages, every test runs in one: in its own, or in the first. Fuzz targets,
// benchmarks and lists are run once.
func Run(m *testing.M, dialects []dap.Dialect, inOne map[string]int, pass func(d dap.Dialect, run func() int) int) int {
	flag.Parse()
	tests, err := names()
	if err == nil {
		err = check(tests, len(dialects), inOne)
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		return 1
	}
	for _, f := range []string{"test.fuzz", "test.bench", "test.list"} {
		if flag.Lookup(f).Value.String() != "" {
			dialects, inOne = dialects[:1], nil
		}
	}
	code, skip := 0, flag.Lookup("test.skip").Value
	given := skip.String()
	for i, d := range dialects {
		var elsewhere []string
		for _, name := range tests {
			at, one := inOne[name]
			if (one || testing.Short()) && at != i {
				elsewhere = append(elsewhere, "^"+name+"$")
			}
		}
		if given != "" {
			elsewhere = append(elsewhere, given)
		}
		if err := skip.Set(strings.Join(elsewhere, "|")); err != nil {
			panic("daptest: internal error: " + err.Error())
		}
		if failed := pass(d, m.Run); failed != 0 {
			fmt.Printf("that was in %v, framing %v\n", d.Version, d.Framing)
			code = failed
		}
	}
	return code
}

var test = regexp.MustCompile(`(?m)^func (Test\w+)\(t `)

// names are those of the tests of the package that is run.
func names() (names []string, err error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, m := range test.FindAllSubmatch(src, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names, nil
}

// check holds inOne to the tests that there are.
func check(tests []string, dialects int, inOne map[string]int) error {
	var errs []error
	for name, at := range inOne {
		if at >= dialects || !slices.Contains(tests, name) {
			errs = append(errs, fmt.Errorf("%s is no test, or runs in no dialect", name))
		}
	}
	return errors.Join(errs...)
}
