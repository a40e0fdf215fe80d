// Package faults reports all faults of a file at once, so that its owner mends them in
// one go.
package faults

import (
	"fmt"
	"strings"
)

// A List is all that is wrong with a file, in the file's order. As an error it has a line
// for each; errors.Is and errors.As look at every one.
type List []error

func (l List) Error() string {
	lines := make([]string, len(l))
	for i, err := range l {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (l List) Unwrap() []error { return l }

// Most is how many faults a list takes: a stranger's file may have as many as it has bytes.
const Most = 100

// Add adds what is wrong, where something is: of a List each fault. place says where, and
// stands before the fault as it is: "public." or "public: ".
func (l *List) Add(place string, err error) {
	all, ok := err.(List)
	if !ok && err != nil {
		all = List{err}
	}
	for _, err := range all {
		if len(*l) == Most {
			return
		}
		if place != "" {
			err = fmt.Errorf("%s%w", place, err)
		}
		*l = append(*l, err)
	}
}

// If adds a fault in words where a rule is broken.
func (l *List) If(broken bool, format string, args ...any) {
	if broken {
		l.Add("", fmt.Errorf(format, args...))
	}
}

// All is the error of all faults, and nil where there is none.
func (l List) All() error {
	if len(l) == 0 {
		return nil
	}
	return l
}
