// Package daptest runs the tests of a package once in each draft of DAP, or in each
// dialect: what every party says must hold in all of them.
package daptest

import (
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// A Plan says which tests of a package run in which dialects: those that it does not
// name, in all where CI=true, else each in one.
type Plan struct {
	Dialects []dap.Dialect
	// Only are tests about one dialect, or about none, by the index of the one that they run in.
	Only map[string]int
}

// Run runs the tests of m once in each dialect, as the plan says, and returns the exit
// code of them all. pass is told which one it is, and calls run. Every test runs in one
// dialect, and each dialect has a share of the tests, where CI is not true, so that
// nobody waits for all of them at every change; and with -short, where a run under the
// race detector asks about goroutines and not about messages. Fuzz targets, benchmarks
// and lists are run once.
func Run(m *testing.M, p Plan, pass func(d dap.Dialect, run func() int) int) int {
	flag.Parse()
	for _, f := range []string{"test.fuzz", "test.bench", "test.list"} {
		if flag.Lookup(f).Value.String() != "" {
			return pass(p.Dialects[0], m.Run)
		}
	}
	tests, err := names()
	if err == nil {
		err = p.check(tests)
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		return 1
	}
	all := os.Getenv("CI") == "true" && !testing.Short()
	code, skip := 0, flag.Lookup("test.skip").Value
	given := skip.String()
	for i, d := range p.Dialects {
		var elsewhere []string
		for _, name := range tests {
			if !p.runs(name, i, all) {
				elsewhere = append(elsewhere, name)
			}
		}
		if err := skip.Set(skipping(elsewhere, given)); err != nil {
			panic("daptest: internal error: " + err.Error())
		}
		if failed := pass(d, m.Run); failed != 0 {
			fmt.Printf("that was in %v, framing %v\n", d.Version, d.Framing)
			code = failed
		}
	}
	return code
}

// Drafts runs the tests of m once in each draft, as [Run] does, and sets speaks to the
// draft of the pass.
func Drafts(m *testing.M, speaks *dap.Version) int {
	var p Plan
	for _, v := range dap.Versions {
		p.Dialects = append(p.Dialects, dap.Dialect{Version: v})
	}
	return Run(m, p, func(d dap.Dialect, run func() int) int {
		*speaks = d.Version
		return run()
	})
}

// skipping is the pattern of what is skipped: tests of whole names, and what was given on
// the command line. The brackets keep package testing from cutting the names into patterns
// of their own, each of which it would compile anew for each test and subtest.
func skipping(names []string, given string) string {
	if len(names) == 0 {
		return given
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	if given != "" {
		pattern += "|" + given
	}
	return pattern
}

// runs says whether a test runs in the dialect of an index, where tests that the plan does
// not name run in all, or are shared out.
func (p *Plan) runs(name string, dialect int, all bool) bool {
	if at, ok := p.Only[name]; ok {
		return at == dialect
	}
	return all || int(crc32.ChecksumIEEE([]byte(name))%uint32(len(p.Dialects))) == dialect
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

// check holds the plan to the tests that there are.
func (p *Plan) check(tests []string) error {
	var errs []error
	for name, at := range p.Only {
		if at < 0 || at >= len(p.Dialects) || !slices.Contains(tests, name) {
			errs = append(errs, fmt.Errorf("%s is no test, or runs in no dialect", name))
		}
	}
	return errors.Join(errs...)
}
