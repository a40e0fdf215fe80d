//go:build !lean

package main

import (
	"strings"
	"testing"

	"github.com/starling-agg/starling/collector"
)

// A long vector is shown by its first entries, each with its mean and the errors of both.
func TestWriteVector(t *testing.T) {
	x := &collector.Result{ReportCount: 100, Estimate: make([]float64, 10_000), Stderr: make([]float64, 10_000)}
	x.Estimate[1], x.Stderr[1] = -250, 4
	var b strings.Builder
	writeVector(&b, x)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != shownEntries+2 || strings.Join(strings.Fields(lines[2]), " ") != "1 -250 4 -2.5 0.04" ||
		lines[len(lines)-1] != "and 9,980 more, which --json prints" {
		t.Errorf("%s", &b)
	}
}
