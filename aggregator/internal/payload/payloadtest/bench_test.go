package payloadtest_test

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
	"github.com/starling-agg/starling/internal/disk"
)

// BenchmarkFiles puts and reads on the disk that holds the temporary directory, as it is
// and with 100 ms before each put.
func BenchmarkFiles(b *testing.B) {
	fsys, err := disk.OS(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close()
	payloadtest.Bench(b, payload.OpenFiles(fsys), 0, 100*time.Millisecond)
}
