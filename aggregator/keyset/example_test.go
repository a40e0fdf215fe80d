package keyset_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/internal/disk"
)

// A clock that is always a day on.
type tomorrow struct{ disk.Clock }

func (tomorrow) Now() time.Time { return time.Now().Add(24 * time.Hour) }

// A new key every day; the one of today goes once no upload can come for it and no
// acknowledged report needs it.
func Example() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	files, err := disk.OS(dir)
	if err != nil {
		log.Fatal(err)
	}
	schedule := keyset.Schedule{Period: 24 * time.Hour, MaxAge: 12 * time.Hour}
	today, err := keyset.Open(context.Background(), keyset.Options{Schedule: schedule, FS: files})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(today.Status()[0].State)

	later, err := keyset.Open(context.Background(), keyset.Options{Schedule: schedule, FS: files, Clock: tomorrow{disk.SystemClock}})
	if err != nil {
		log.Fatal(err)
	}
	needs := func(_ context.Context, id uint8, ended time.Time) (why string, err error) { return "", nil }
	if _, err := later.Step(context.Background(), needs); err != nil {
		log.Fatal(err)
	}
	for _, k := range later.Status() {
		fmt.Println(k.State, k.KEM)
	}
	// Output:
	// current
	// current x25519
	// accepted x25519
}
