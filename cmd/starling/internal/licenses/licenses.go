// Package licenses holds the licence of every module that the binary is built from, the
// standard library included.
package licenses

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:generate go run ./gen licenses.json.gz

//go:embed licenses.json.gz
var packed []byte

// A Module is one dependency and its terms.
type Module struct {
	Path    string `json:"module"`
	Version string `json:"version"`
	License string `json:"license"` // SPDX expression
	Text    string `json:"text,omitempty"`
}

// All returns every module, sorted by path.
func All() ([]Module, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("licenses: unpack: %w", err)
	}
	var all []Module
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		return nil, fmt.Errorf("licenses: read: %w", err)
	}
	return all, nil
}
