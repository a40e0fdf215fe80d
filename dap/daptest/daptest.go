// Package daptest runs the tests of a package once in each draft of DAP, or in each
// dialect: what every party says must hold in all of them.
package daptest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// Run runs the tests of m once in each dialect and returns the exit code of them all.
// pass is told which one it is, and calls run. inOne names tests that run in one dialect
// alone, by its index: those that take long and ask about other things than messages.
// Fuzz targets, benchmarks and lists are run once.
func Run(m *testing.M, dialects []dap.Dialect, inOne map[string]int, pass func(d dap.Dialect, run func() int) int) int {
	flag.Parse()
	if err := check(len(dialects), inOne); err != nil {
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
		for name, at := range inOne {
			if at != i {
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

// check holds inOne to the tests that there are.
func check(dialects int, inOne map[string]int) error {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return err
	}
	var all []byte
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		all = append(all, src...)
	}
	var errs []error
	for name, at := range inOne {
		if at >= dialects || !bytes.Contains(all, []byte("\nfunc "+name+"(t ")) {
			errs = append(errs, fmt.Errorf("%s is no test, or runs in no dialect", name))
		}
	}
	return errors.Join(errs...)
}
