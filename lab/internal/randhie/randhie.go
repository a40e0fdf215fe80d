// Package randhie holds the lab's real input: the RAND Health Insurance Experiment table
// (1974 to 1982), 20,190 rows, one for each person and year, in the public domain. Its
// source, its licence and its columns are in the README.md beside this file.
//
// The lab asks how many visits to a doctor a person made in a year; of all columns it
// makes vectors.
package randhie

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

//go:embed randhie.csv.gz
var table []byte

// Shape of the table and of the question asked of it.
const (
	Rows = 20190
	// Buckets is the number of answers: 0, 1, ..., 19 visits, and 20 or more.
	Buckets = 21
	// column is the one the lab reads: outpatient visits to a doctor of medicine in the
	// year.
	column = "mdvis"
)

// Visits returns the number of doctor visits of every row, in the table's order: Rows
// values, each 0 or more.
func Visits() ([]int, error) {
	at := -1
	visits := make([]int, 0, Rows)
	err := read(func(row []string) error {
		if at < 0 {
			if at = slices.Index(row, column); at < 0 {
				return fmt.Errorf("the table has no column %q", column)
			}
			return nil
		}
		n, err := strconv.Atoi(row[at])
		if err != nil || n < 0 {
			return fmt.Errorf("row %d holds no number of visits", len(visits)+1)
		}
		visits = append(visits, n)
		return nil
	})
	return visits, err
}

// HealthLabels names how people rate their own health.
var HealthLabels = []string{"excellent", "good", "fair", "poor"}

// Health returns, for every row in the table's order, the number of visits and how the
// person rates their health, an index of HealthLabels.
func Health() (visits, health []int, err error) {
	rows, err := Table()
	if err != nil {
		return nil, nil, err
	}
	for i, row := range rows {
		at := 0
		for k, rated := range row[Columns-3:] { // hlthg, hlthf, hlthp
			if rated == 1 {
				at += k + 1
			}
		}
		if at >= len(HealthLabels) {
			return nil, nil, fmt.Errorf("row %d rates its health twice", i+1)
		}
		visits, health = append(visits, int(row[0])), append(health, at)
	}
	return visits, health, nil
}

// Columns is the number of columns of the table.
const Columns = 10

// Table returns all of the table: Rows rows of Columns numbers, in its order.
func Table() ([][Columns]float64, error) {
	rows := make([][Columns]float64, 0, Rows)
	head := true
	err := read(func(row []string) error {
		if head {
			head = false
			return nil
		}
		var numbers [Columns]float64
		for i := range numbers {
			var err error
			if numbers[i], err = strconv.ParseFloat(row[i], 64); err != nil {
				return fmt.Errorf("row %d: %w", len(rows)+1, err)
			}
		}
		rows = append(rows, numbers)
		return nil
	})
	return rows, err
}

// read hands over the head of the table and each row of it; row is used again after each
// call.
func read(take func(row []string) error) error {
	z, err := gzip.NewReader(bytes.NewReader(table))
	if err != nil {
		return fmt.Errorf("randhie: open the table: %w", err)
	}
	r := csv.NewReader(z)
	r.ReuseRecord, r.FieldsPerRecord = true, Columns
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = take(row)
		}
		if err != nil {
			return fmt.Errorf("randhie: read the table: %w", err)
		}
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
