package sim

import (
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
)

// In worlds with cfg.damage a file of one server's replay protection is damaged once,
// while the server is stopped. What may be in it has to wait, and it is made again from
// the other's ids: nothing that was acknowledged is lost, and nothing counts twice.

// damages are what happens to a file.
var damages = []func(fsys disk.FS, name string) error{
	func(fsys disk.FS, name string) error {
		b, err := disk.ReadFile(fsys, name, 1<<20)
		if err == nil {
			b[len(b)/2] ^= 4
			err = disk.WriteFile(fsys, name, b)
		}
		return err
	},
	func(fsys disk.FS, name string) error {
		b, err := disk.ReadFile(fsys, name, 1<<20)
		if err == nil {
			err = disk.WriteFile(fsys, name, b[:len(b)-9])
		}
		return err
	},
	func(fsys disk.FS, name string) error { return disk.WriteFile(fsys, name) },
	func(fsys disk.FS, name string) error { return disk.Remove(fsys, name) },
}

// opDamage stops a server, damages a file of its replay protection, if it has one, and
// starts it again.
func (w *world) opDamage() {
	n := w.nodes()[w.cfg.seed%2]
	if l := n.life.Load(); w.hurt != nil || l == nil || !l.alive.Load() {
		return
	}
	w.bury()
	n.stop()
	var runs []string
	for _, e := range must(n.disk.ReadDir("runs")) {
		if path.Ext(e.Name) == ".run" { // noise, which lies there too, nobody can make again
			runs = append(runs, path.Join("runs", e.Name))
		}
	}
	if len(runs) == 0 {
		return
	}
	name := runs[w.rng.IntN(len(runs))]
	if err := damages[w.rng.IntN(len(damages))](n.disk, name); err != nil {
		w.oracle.violate("damage: %v", err)
		return
	}
	w.logf("%s: %s is damaged", n.name, name)
	w.hurt = n
}

// whole demands, at rest, that nothing is damaged any more.
func (w *world) whole() {
	if w.hurt == nil {
		return
	}
	// Each file is looked at where an id may be in it: so all are.
	w.upload(w.oracle.reports)
	w.rest()
	if t := w.oracle.status(w.hurt.life.Load()); t == nil || len(t.Damaged) > 0 {
		w.oracle.violate("%s is not mended: %+v", w.hurt.name, t)
	}
	w.hurt.life.Load().audited = -1
	w.mended, w.hurt = w.hurt, nil
	w.oracle.check()
}

// TestDamage: worlds in which replay protection is damaged come to their right end. Where
// the peer gives nothing the oracle sees that nothing was mended.
func TestDamage(t *testing.T) {
	seeds := patient(10, 7)
	mended, missed := 0, 0
	for seed := range uint64(seeds) {
		cfg := draw(3000 + seed)
		cfg.damage = true
		if w := try(t, cfg); w.mended != nil {
			mended++
		}
		if missed > 0 {
			continue // seen
		}
		w := run(t, cfg, func(w *world) {
			w.net.forge = func(m *message, a *answer) {
				if strings.Contains(m.url.Path, "/starling_replay") {
					a.status, a.body, a.header = 404, nil, http.Header{}
				}
			}
		})
		if w.hurt != nil && w.failed() {
			missed++
			t.Logf("seed %d, with a peer that gives nothing: %.200q", cfg.seed, w.oracle.violations)
		}
	}
	if mended < 3 || missed == 0 {
		t.Errorf("of %d worlds %d were damaged and mended; of those with a peer that gives nothing %d were seen", seeds, mended, missed)
	}
}
