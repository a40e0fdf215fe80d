// Package randhie holds the lab's real input: the RAND Health Insurance Experiment table (1974 to 1982), 20,190 rows,
// one for each person and year, in the public domain. Its source, its licence and its columns are in the README.md
// beside this file.
//
// The lab asks one question of it: how many visits to a doctor did a person make in a year?
package randhie

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
)

//go:embed randhie.csv.gz
var table []byte

// Shape of the table and of the question asked of it.
const (
	Rows = 20190
	// Buckets is the number of answers: 0, 1, ..., 19 visits, and 20 or more.
	Buckets = 21
	// column is the one the lab reads: outpatient visits to a doctor of medicine in the year.
	column = "mdvis"
)

// Visits returns the number of doctor visits of every row, in the table's order: Rows values, each 0 or more.
func Visits() ([]int, error) {
	z, err := gzip.NewReader(bytes.NewReader(table))
	if err != nil {
		return nil, fmt.Errorf("randhie: open the table: %w", err)
	}
	r := csv.NewReader(z)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("randhie: read the head of the table: %w", err)
	}
	at := -1
	for i, name := range head {
		if name == column {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("randhie: the table has no column %q", column)
	}
	visits := make([]int, 0, Rows)
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return visits, nil
		}
		if err != nil {
			return nil, fmt.Errorf("randhie: read the table: %w", err)
		}
		n, err := strconv.Atoi(row[at])
		if err != nil || n < 0 {
			return nil, fmt.Errorf("randhie: row %d holds no number of visits", len(visits)+1)
		}
		visits = append(visits, n)
	}
}

// Bucket says which of the Buckets answers a number of visits (0 or more) is.
func Bucket(visits int) int { return min(visits, Buckets-1) }

// Labels names the answers: "0", "1", ..., "19", "20+".
func Labels() []string {
	labels := make([]string, Buckets)
	for i := range labels {
		labels[i] = strconv.Itoa(i)
	}
	labels[Buckets-1] += "+"
	return labels
}
