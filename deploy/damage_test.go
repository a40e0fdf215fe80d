package deploy

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/collector/collectortest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var writeDamage = flag.Bool("write-damage", false, "write the matrix in docs/bench/damage.md anew")

// seenBefore is how far the leader's releases were seen.
const seenBefore = "3 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// collectorFiles are what a collector has.
var collectorFiles = []string{CollectorFile, "recipe.starling", "secrets/collector.token", "secrets/collector.hpke", "collector.state", "collector.state.mark"}

func readCollector(t *testing.T, dir string) disktest.Files {
	t.Helper()
	f := disktest.Files{}
	for _, name := range collectorFiles {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f[name] = b
	}
	return f
}

// TestDamage does to each file of a collector whose question is pending what disks and
// people do, and holds what comes of it to the table in docs/bench/damage.md: it goes on
// with the same question and says how far it has seen the leader's releases, or says why
// not.
func TestDamage(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	addresses.Close()
	r, err := account.New(account.Options{
		Name: "damage", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(), MinBatch: 20, TimePrecision: 10,
		Window: recipe.Between{Start: 100, End: 200}, Epsilon: decimal(t, "1"), Delta: decimal(t, "0.000001"), Rounds: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	leader := &collectortest.Leader{Problem: &dap.Problem{Status: 503}, Releases: seenBefore}
	from := func(round int) time.Time { return time.Unix(int64(1000+10*round), 0) }
	// use makes a collector that has asked some questions, one after the other.
	use := func(rounds ...int) (all []disktest.Files) {
		dir := filepath.Join(t.TempDir(), "d")
		if err := Create(dir, r, addresses); err != nil {
			t.Fatal(err)
		}
		token, err := os.ReadFile(filepath.Join(dir, "secrets/collector.token"))
		if err != nil {
			t.Fatal(err)
		}
		leader.Token = strings.TrimSpace(string(token))
		config, err := LoadCollector(filepath.Join(dir, CollectorFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, round := range rounds {
			s, err := config.Open(collector.Options{HTTP: leader, Attempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			leader.Task, _ = s.collector.Task()
			if err := s.Drop(t.Context()); err != nil && len(all) == 0 {
				t.Fatal(err)
			}
			s.state.Done = true
			if _, err := s.Collect(t.Context(), from(round), from(round+1)); err == nil || !s.Pending() {
				t.Fatal(err)
			}
			all = append(all, readCollector(t, dir))
		}
		return all
	}
	others := use(3)[0]
	mine := use(1, 2)
	whole, job := mine[1], "job"+string(rune('0'+len(leader.Jobs)))
	play := func(t *testing.T, f disktest.Files) (class, words string) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "secrets"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, b := range f {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		config, err := LoadCollector(filepath.Join(dir, CollectorFile))
		if err != nil {
			return "refused", err.Error()
		}
		s, err := config.Open(collector.Options{HTTP: leader, Attempts: 1})
		if err != nil {
			return "refused", err.Error()
		}
		leader.Path, leader.Seen = "", ""
		notice, pending := s.Notice(), s.Pending()
		_, err = s.Collect(t.Context(), from(2), from(3))
		said := ""
		if err != nil {
			said = err.Error()
		}
		switch {
		case strings.Contains(said, "401"), leader.Path == "" && said != "":
			return "refused", said
		case !strings.HasSuffix(leader.Path, "/"+job):
			return "fails", "it goes on with another question: " + leader.Path
		case leader.Seen != seenBefore:
			return "fails", "it has forgotten what it has seen of the leader's releases"
		case !pending:
			if notice = s.Notice(); notice == "" {
				return "fails", "it asks as if it had never asked, and says nothing"
			}
			return "told", notice
		case notice != "":
			return "mended", notice
		}
		return "harmless", ""
	}
	m := &disktest.Matrix{Whole: whole, Older: mine[0], Others: others, Play: play,
		Kind: func(name string) string { return name },
		Newer: func(name string, b []byte) []byte {
			if !strings.HasPrefix(name, "collector.state") {
				return nil
			}
			return bytes.Replace(b, []byte(`"version": 1`), []byte(`"version": 2`), 1)
		},
		Dirs: [][]string{{"collector.state"}}, Unseen: []string{"collector.state*, older", "collector.state*, another party's"},
	}
	table, cells := m.Run(t)
	if t.Logf("%d cells\n%s", cells, table); cells < 30 {
		t.Errorf("only %d cells", cells)
	}
	disktest.HoldTable(t, "../docs/bench/damage.md", "collector", table, *writeDamage)
}
