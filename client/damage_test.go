package client

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
)

var writeDamage = flag.Bool("write-damage", false, "write the matrix in docs/bench/damage.md anew")

// TestMemoryDamage does to each file of what a device has seen of manifests what disks and
// people do, and holds what comes of it to the table in docs/bench/damage.md: another
// manifest of an epoch, an earlier one, or a clock that was put back is taken in none of
// them.
func TestMemoryDamage(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	x, y := newTrio(t, r), newTrio(t, testRecipe(recipe.Histogram{Length: 5, Chunk: 2}))
	begin := now.UTC().Truncate(time.Second)
	first, second, forged := x.manifest(begin, time.Hour, 0, 10), x.manifest(begin, time.Hour, 1, 20), x.manifest(begin, time.Hour, 1, 30)
	ask := func(mem *disktest.Mem, x *trio, m *ohttp.Manifest, clock time.Time) error {
		memory, err := OpenMemory(mem)
		if err != nil {
			return err
		}
		manifests, err := NewManifests(ManifestsOptions{Recipe: x.recipe, Anchors: x.anchors, Source: ohttp.Pin(m), Memory: memory,
			Now: func() time.Time { return clock }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = manifests.Manifest(t.Context())
		return err
	}
	mem := disktest.NewMem(1)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ask(mem, x, first, begin.Add(time.Minute)))
	older := disktest.FilesOf(t, mem)
	must(ask(mem, x, second, begin.Add(2*time.Minute)))
	whole := disktest.FilesOf(t, mem)
	another := disktest.NewMem(2)
	must(ask(another, y, y.manifest(begin, time.Hour, 1, 40), begin.Add(time.Minute)))
	m := &disktest.Matrix{Whole: whole, Older: older, Others: disktest.FilesOf(t, another),
		Kind: func(name string) string {
			if strings.HasSuffix(name, clockFile) {
				return name
			}
			return "manifests/*"
		},
		Newer: func(name string, b []byte) []byte {
			if !strings.HasSuffix(name, clockFile) {
				return nil
			}
			b = bytes.Replace(b, []byte("clock v2"), []byte("clock v3"), 1)
			sum := sha256.Sum256(b[:len(b)-sha256.Size])
			return append(b[:len(b)-sha256.Size], sum[:]...)
		},
		Dirs: [][]string{{"manifests/"}}, Unseen: []string{"manifests/, missing", "manifests/, older", "manifests/, another party's"},
		Play: func(t *testing.T, f disktest.Files) (class, words string) {
			later := begin.Add(3 * time.Minute)
			for _, attack := range []struct {
				m    *ohttp.Manifest
				at   time.Time
				want error
			}{{second, begin, ErrClock}, {forged, later, ErrConflict}, {first, later, ohttp.ErrManifest}, {second, later, nil}} {
				mem := disktest.NewMem(1)
				f.Put(t, mem)
				switch err := ask(mem, x, attack.m, attack.at); {
				case errors.Is(err, ErrMemory):
					words = err.Error()
				case !errors.Is(err, attack.want):
					return "fails", "what was seen is forgotten"
				}
			}
			if words != "" {
				return "refused", words
			}
			return "harmless", ""
		},
	}
	table, cells := m.Run(t)
	if t.Logf("%d cells\n%s", cells, table); cells < 10 {
		t.Errorf("only %d cells", cells)
	}
	disktest.HoldTable(t, "../docs/bench/damage.md", "memory", table, *writeDamage)
}
