package deploy

import (
	"fmt"
	"strings"

	"github.com/starling-agg/starling/internal/service"
)

// Faults are all that is wrong with a file, in its order.
type Faults []error

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, err := range f {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap has errors.Is and errors.As look at each.
func (f Faults) Unwrap() []error { return f }

// add adds what is wrong, where something is: name says where, unless it is empty.
func (f *Faults) add(name string, err error) {
	if err == nil {
		return
	}
	if name != "" {
		err = fmt.Errorf("%s%w", name, err)
	}
	*f = append(*f, err)
}

// all is the error of all, nil of none.
func (f Faults) all() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// of is the error of a configuration file: each fault with the file's name.
func (f Faults) of(path string) error {
	var named Faults
	for _, err := range f {
		named = append(named, &service.ConfigError{File: path, Reason: err.Error()})
	}
	return named.all()
}

// invalid is what is wrong with a configuration that was read from a file.
func invalid(path string, err error) error {
	if err == nil {
		return nil
	}
	if all, ok := err.(Faults); ok {
		return all.of(path)
	}
	return Faults{err}.of(path)
}
