package randhie

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTable holds the embedded table to totals taken from the published one by another
// program.
func TestTable(t *testing.T) {
	visits, err := Visits()
	if err != nil {
		t.Fatal(err)
	}
	if len(visits) != Rows {
		t.Fatalf("%d rows, want %d", len(visits), Rows)
	}
	total, most, counts := 0, 0, make([]int, Buckets)
	for _, v := range visits {
		total += v
		most = max(most, v)
		counts[Bucket(v)]++
	}
	if total != 57752 || most != 77 {
		t.Errorf("%d visits in all and %d at most, want 57752 and 77", total, most)
	}
	want := []int{6308, 3817, 2797, 1884, 1345, 968, 689, 531, 408, 287, 206, 190, 118, 109, 82, 59, 56, 33, 37, 35, 231}
	if !slices.Equal(counts, want) {
		t.Errorf("histogram %v, want %v", counts, want)
	}
	if want := []int{0, 2, 0, 0, 0, 0, 0, 1}; !slices.Equal(visits[:len(want)], want) {
		t.Errorf("the table begins %v, want %v", visits[:len(want)], want)
	}
}

// TestReadme holds the README's size, checksum and count of long rows to the table.
func TestReadme(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(plain)
	if len(plain) != 748181 || !strings.Contains(string(readme), "748,181") {
		t.Errorf("the table has %d bytes; the README should say so", len(plain))
	}
	if got := hex.EncodeToString(sum[:]); !strings.Contains(string(readme), got) {
		t.Errorf("the README does not name the table's checksum %s", got)
	}
	for _, column := range strings.Split(strings.SplitN(string(plain), "\n", 2)[0], ",") {
		if !strings.Contains(string(readme), "`"+column+"`") {
			t.Errorf("the README does not explain the column %s", column)
		}
	}
}

func TestLabels(t *testing.T) {
	labels := Labels()
	if len(labels) != Buckets || labels[0] != "0" || labels[19] != "19" || labels[20] != "20+" {
		t.Errorf("labels %q", labels)
	}
	for visits, want := range map[int]int{0: 0, 19: 19, 20: 20, 21: 20, 77: 20} {
		if got := Bucket(visits); got != want {
			t.Errorf("Bucket(%d) = %d, want %d", visits, got, want)
		}
	}
}

func TestWholeTable(t *testing.T) {
	rows, err := Table()
	if err != nil {
		t.Fatal(err)
	}
	visits, err := Visits()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != Rows || len(visits) != Rows {
		t.Fatalf("%d rows, %d visits", len(rows), len(visits))
	}
	for i, n := range visits {
		if rows[i][0] != float64(n) {
			t.Fatalf("row %d: %v visits, want %d", i, rows[i][0], n)
		}
	}
	if rows[0] != [Columns]float64{0, 4.61512, 1, 6.907755, 0, 0, 13.73189, 1, 0, 0} {
		t.Errorf("the first row is %v", rows[0])
	}
}

// TestHealth holds the four ratings to totals taken from the published table by another
// program.
func TestHealth(t *testing.T) {
	visits, health, err := Health()
	if err != nil {
		t.Fatal(err)
	}
	want, err := Visits()
	if err != nil || !slices.Equal(visits, want) {
		t.Fatalf("the visits are not those of the table: %v", err)
	}
	people, seen := make([]int, len(HealthLabels)), make([]int, len(HealthLabels))
	for i, h := range health {
		people[h]++
		seen[h] += min(visits[i], 20)
	}
	if !slices.Equal(people, []int{11019, 7309, 1560, 302}) || !slices.Equal(seen, []int{27993, 20373, 5405, 1634}) {
		t.Errorf("%d people and %d visits", people, seen)
	}
}
