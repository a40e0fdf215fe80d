package store

import (
	"github.com/starling-agg/starling/dap"
)

// Damaged are files of the replay protection that are damaged or missing, and are mended
// together: several where nobody knows which id was in which.
type Damaged struct {
	Files     int
	IDs       int64        // in all of them
	Low, High dap.ReportID // they lie between, both included
	Sum       [32]byte     // names the damage: SHA-256 of the file, or of those of the files
	Why       string
}
