package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/sealed"
)

// TestLead: --lead puts off a first manifest and a revision, so that devices can visit
// before it begins; a manifest that begins later anyway it leaves alone, and it leads out
// of no epoch.
func TestLead(t *testing.T) {
	const day = 24 * time.Hour
	begin := time.Unix(20000*int64(day/time.Second), 0).UTC()
	now := begin.Add(10 * time.Hour)
	pair, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	before := &ohttp.Manifest{Epoch: 20000, Length: day, NotBefore: begin, NotAfter: begin.Add(day), Relay: "https://relay.example/",
		Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)}, Tries: 1, Every: time.Second, Hold: time.Hour, Targets: []string{"https://leader.example/"}}
	b, err := before.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	previous := filepath.Join(t.TempDir(), "previous")
	if err := os.WriteFile(previous, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     []string
		from, to time.Time // zero: refused
	}{
		{nil, now, now.Add(day)},
		{[]string{"--lead", "90m"}, now.Add(90 * time.Minute), now.Add(90*time.Minute + day)},
		{[]string{"--previous", previous, "--lead", "90m"}, begin.Add(day), begin.Add(2 * day)},
		{[]string{"--previous", previous, "--revision", "1"}, now, begin.Add(day)},
		{[]string{"--previous", previous, "--revision", "1", "--lead", "90m"}, now.Add(90 * time.Minute), begin.Add(day)},
		{[]string{"--previous", previous, "--revision", "1", "--lead", "14h"}, time.Time{}, time.Time{}},
	} {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		x := newCeremony(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		o, err := x.window(&keyset.Deployment{Epoch: day}, &manifestFiles{}, now)
		if (err != nil) != c.from.IsZero() || err == nil && (!o.NotBefore.Equal(c.from) || !o.NotAfter.Equal(c.to)) {
			t.Errorf("%q: from %v until %v, %v; want from %v until %v", c.args, o.NotBefore, o.NotAfter, err, c.from, c.to)
		}
	}
}
