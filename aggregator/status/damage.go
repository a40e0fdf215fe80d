package status

import "fmt"

// Damage is what one log of acknowledged reports lost.
type Damage struct {
	File    string `json:"file"` // where it was
	Bytes   int64  `json:"bytes"`
	Records int    `json:"records"` // requests, of one report or more
	Reports int    `json:"reports"` // that count as report_dropped
	Exact   bool   `json:"exact"`   // else both are the least
}

// Why is what was lost, in words.
func (d *Damage) Why() string {
	if d.Records == 0 {
		return fmt.Sprintf("a log of acknowledged reports, which %s stands for, is gone or was emptied: how many reports are lost nobody can tell", d.File)
	}
	least := ""
	if !d.Exact {
		least = "at least "
	}
	return fmt.Sprintf("%d bytes of %s are damaged: %s%d requests of acknowledged reports are lost, of which %d reports count as report_dropped",
		d.Bytes, d.File, least, d.Records, d.Reports)
}
