package disk_test

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// A record that was acknowledged survives a loss of power.
func Example() {
	mem := disktest.NewMem(42) // disk.OS("/var/lib/starling") in production
	keep := func(payload []byte) error {
		fmt.Printf("found %s\n", payload)
		return nil
	}
	log, _, err := disk.OpenLog(mem, "ledger", disk.LogOptions{}, keep)
	if err != nil {
		panic(err)
	}
	if err := log.Append(context.Background(), []byte("spent 0.1")); err != nil {
		panic(err)
	}
	mem = mem.Crash()
	log.Close()

	log, _, err = disk.OpenLog(mem, "ledger", disk.LogOptions{}, keep)
	if err != nil {
		panic(err)
	}
	log.Close()
	// Output: found spent 0.1
}
