package deploy

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/starling-agg/starling/internal/faults"
	"github.com/starling-agg/starling/internal/service"
)

// Faults are all that is wrong with a file, in its order.
type Faults = faults.List

// ofFile is the error of a configuration file: each fault with the file's name.
func ofFile(path string, f Faults) error {
	var named Faults
	for _, err := range f {
		if _, ok := err.(*service.ConfigError); !ok {
			err = &service.ConfigError{File: path, Reason: err.Error()}
		}
		named = append(named, err)
	}
	return named.All()
}

// negatives are the keys of a table whose numbers are below zero, but for those in which
// that has a meaning.
func negatives(table any, meant ...string) (f Faults) {
	t := reflect.ValueOf(table)
	for i := range t.NumField() {
		key := t.Type().Field(i).Tag.Get("toml")
		if v := t.Field(i); v.CanInt() && v.Int() < 0 && !slices.Contains(meant, key) {
			f = append(f, fmt.Errorf("%s: negative", key))
		}
	}
	return f
}
