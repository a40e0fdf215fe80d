//go:build !lean

package main

import (
	"strings"
	"testing"
)

// TestEndOfAProcess: of what a process wrote before it failed its error is said, or else its
// last line, however much it wrote.
func TestEndOfAProcess(t *testing.T) {
	long := strings.Repeat("a line of a log\n", endSize)
	for name, c := range map[string]struct {
		wrote []string
		want  string
	}{
		"nothing":          {nil, ""},
		"a line":           {[]string{"panic: ", "a cause\n\n"}, "panic: a cause"},
		"an error":         {[]string{"a log\nstarling: error: a ca", "use\nstarling: hint: wait\n"}, "a cause"},
		"an error at last": {[]string{long, long, "starling: error: a cause\n", "starling: hint: wait\n"}, "a cause"},
	} {
		t.Run(name, func(t *testing.T) {
			var e end
			for _, b := range c.wrote {
				if n, err := e.Write([]byte(b)); n != len(b) || err != nil {
					t.Fatal(n, err)
				}
			}
			if got := e.fault(); got != c.want || len(e) > 2*endSize {
				t.Errorf("%q, of %d bytes", got, len(e))
			}
		})
	}
}
