// Package prose fits words to a terminal, and writes counts for people.
package prose

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Columns is how wide text of up to full columns is on a terminal of a given width: all
// of it where that is 0 or wider, and never less than 40, below which words stand alone.
func Columns(width, full int) int {
	if width == 0 {
		return full
	}
	return min(max(width, 40), full)
}

// Wrap breaks text at spaces into lines of at most width runes; a longer word has a line
// to itself. A newline in text always begins a line.
func Wrap(text string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines, line = append(lines, line), word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Count writes a count rounded to an integer with commas between thousands, as in "-6,308".
func Count(x float64) string {
	s := strconv.FormatFloat(math.Abs(math.Round(x)), 'f', 0, 64)
	var b strings.Builder
	if math.Round(x) < 0 {
		b.WriteByte('-')
	}
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
