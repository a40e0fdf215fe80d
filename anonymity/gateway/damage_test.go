package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/sealed"
)

var writeDamage = flag.Bool("write-damage", false, "write the matrix in docs/bench/damage.md anew")

// epochsDir is where the files of a gateway have those of its epochs, which are on the
// real disk while it runs.
const epochsDir = "epochs/"

// usedGateway is what a gateway was: its first key has retired, reports were passed on, two
// wait for a leader that is away, and it was killed.
type usedGateway struct {
	first, second *sealed.KeyPair
	passed        []byte   // the encapsulated request of report 2, which was passed on
	held          [][]byte // those of reports 3 and 4, which were acknowledged
	begin         time.Time
}

// epochsOf writes the epochs among some files to a directory, and reads its keys.
func (u *usedGateway) epochsOf(t *testing.T, f disktest.Files) ([]Key, *Epochs, error) {
	t.Helper()
	dir := t.TempDir()
	for name, b := range f {
		if base, ok := strings.CutPrefix(name, epochsDir); ok {
			if err := os.WriteFile(filepath.Join(dir, base), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := &Epochs{Dir: dir, Overlap: time.Hour, Hold: DefaultHold, Read: os.ReadFile}
	keys, err := e.Keys(u.begin)
	if err == nil && len(keys) == 0 {
		err = errors.New("epochs: no key")
	}
	return keys, e, err
}

// life runs a gateway over files until work is done, and returns what they are when it is
// killed.
func (u *usedGateway) life(t *testing.T, f disktest.Files, keys []Key, dir string, l *fakeLeader, work func(b *bed)) disktest.Files {
	t.Helper()
	mem := disktest.NewMem(1)
	f.Put(t, mem)
	var killed disktest.Files
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{FS: mem, Keys: keys, Window: time.Second, Transport: l})
		work(b)
		killed = disktest.FilesOf(t, mem)
		b.stop()
	})
	if dir != "" {
		fsys, err := disk.OS(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		for name, b := range disktest.FilesOf(t, fsys) {
			killed[epochsDir+name] = b
		}
	}
	return killed
}

// use makes the files of such a gateway, and what they were before the last report.
func (u *usedGateway) use(t *testing.T) (older, whole disktest.Files) {
	t.Helper()
	up := func() *fakeLeader { return &fakeLeader{} }
	bring := func(b *bed, n byte) []byte {
		request, _ := sealTo(t, b.pair, upload(report(t, n)))
		if got := refusedAs(t, b.bring(request)); got != "" {
			t.Fatalf("report %d: %q", n, got)
		}
		return request
	}
	f := u.life(t, nil, []Key{{Pair: u.first}}, "", up(), func(b *bed) {
		bring(b, 1)
		time.Sleep(time.Minute)
	})
	key, err := u.second.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := (&ohttp.Manifest{Epoch: ohttp.EpochAt(u.begin, 24*time.Hour), Length: 24 * time.Hour, NotBefore: u.begin, NotAfter: u.begin.Add(24 * time.Hour),
		Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(u.second)}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold,
		Targets: []string{leaderURL}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	f[epochsDir+"2.key"], f[epochsDir+"2.manifest"] = key, manifest
	keys, e, err := u.epochsOf(t, f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		keys[i].NotAfter = time.Time{} // the clock of a bubble is another
	}
	older = u.life(t, f, keys, e.Dir, up(), func(b *bed) {
		u.passed = bring(b, 2)
		time.Sleep(time.Minute)
		if b.Status().Passed != 2 {
			t.Fatal("report 2 was not passed on")
		}
	})
	away := &fakeLeader{answer: func(n int, _ []byte, _ *http.Request) (int, []byte) {
		if n == 1 {
			return 200, nil
		}
		return 0, nil
	}}
	whole = u.life(t, older, keys, e.Dir, away, func(b *bed) {
		bring(b, 5)
		time.Sleep(time.Minute)
		for n := range byte(2) {
			u.held = append(u.held, bring(b, 3+n))
			time.Sleep(time.Minute)
		}
	})
	return older, whole
}

// play starts a gateway on files, with the leader back, and says what came of it: no
// request is opened a second time, the key that left does not come back, and what was
// acknowledged comes to the leader or is told of.
func (u *usedGateway) play(t *testing.T, f disktest.Files) (class, words string) {
	keys, _, err := u.epochsOf(t, f)
	if err != nil {
		return "refused", err.Error()
	}
	for i := range keys {
		keys[i].NotAfter = time.Time{}
	}
	mem := disktest.NewMem(1)
	for name := range f {
		if strings.HasPrefix(name, epochsDir) {
			f = f.With(name, nil)
		}
	}
	f.Put(t, mem)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &fakeLeader{}
		o := Options{FS: mem, Record: disk.Sub(mem, "record"), Keys: keys, Window: time.Second, Transport: l, Protocol: uploads.DAP{},
			Targets: []Target{{URL: leaderURL}}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		g, err := New(o)
		if err != nil {
			class, words = "refused", err.Error()
			return
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		b := start(t, o)
		defer b.stop()
		time.Sleep(10 * time.Minute)
		for i, request := range append(slices.Clone(u.held), u.passed) {
			if got := refusedAs(t, b.bring(request)); got != door.Replayed {
				class, words = "fails", "a request was opened a second time: "+string(rune('0'+i))+" "+string(got)
				return
			}
		}
		state := new(StateError)
		if err := b.setKeys(append(slices.Clone(keys), Key{Pair: u.first}), nil); !errors.Is(err, ErrRetired) && !errors.As(err, &state) {
			class, words = "fails", "a key that had left came back"
			return
		}
		came := bytes.Join(l.seen(), nil)
		s := b.Status()
		lost := s.Lost["damaged"]
		for n := range byte(2) {
			if !bytes.Contains(came, []byte{3 + n}) && lost == 0 {
				class, words = "fails", "an acknowledged upload is lost, and nothing says so"
				return
			}
		}
		switch {
		case lost > 0:
			class, words = "counted", s.Troubles()[0].Blocks
		case log.Len() > 0:
			class, words = "mended", log.String()
		case bytes.Contains(came, []byte{2}):
			class, words = "fails", "a report was passed on a second time"
		default:
			class = "harmless"
		}
	})
	return class, words
}

// newerGateway is a file of a gateway as a later version would write it, checksums and all.
func newerGateway(state [32]byte) func(name string, b []byte) []byte {
	return func(name string, b []byte) []byte {
		summed := func(magic, later string, size int) []byte {
			b = bytes.Replace(b, []byte(magic), []byte(later), 1)
			sum := sha256.Sum256(b[:size])
			copy(b[size:], sum[:])
			return b
		}
		switch kindOfGateway(name) {
		case "data/secret":
			return summed("secret v1", "secret v2", len(b)-sha256.Size)
		case "record/mark":
			for at := range len(b) / 4096 {
				copy(b[4096*at:], bytes.Replace(b[4096*at:4096*(at+1)], []byte("mark v1"), []byte("mark v2"), 1))
			}
			return b
		case "data/round-*":
			content := bytes.Replace(b[:len(b)-sha256.Size], []byte("round v4"), []byte("round v5"), 1)
			sum := sha256.Sum256(append(state[:], content...))
			return append(content, sum[:]...)
		case "data/forward-*", "data/opened-*":
			binary.BigEndian.PutUint32(b[16:], 3)
			binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
			return b
		}
		return nil
	}
}

func kindOfGateway(name string) string {
	if strings.HasPrefix(name, "record/") || strings.HasPrefix(name, epochsDir) {
		if base, ok := strings.CutPrefix(name, epochsDir+"2."); ok {
			return epochsDir + "*." + base
		}
		return name
	}
	if stem, _, ok := strings.Cut(name, "-"); ok {
		return "data/" + stem + "-*"
	}
	return "data/" + name
}

// TestDamage does to each kind of file of a gateway, in use and killed, what disks and
// people do, and holds what comes of it to the table in docs/bench/damage.md.
func TestDamage(t *testing.T) {
	u := &usedGateway{first: generate(t, 1), second: generate(t, 2), begin: time.Unix(1_000_000, 0).UTC()}
	_, others := u.use(t) // of the same keys, the worst case
	u.held = nil
	older, whole := u.use(t)
	state := sha256.Sum256(append([]byte("starling gateway state v1"), whole["secret"][len("starling gateway secret v1\n"):][:32]...))
	m := &disktest.Matrix{Whole: whole, Older: older, Others: others, Kind: kindOfGateway, Newer: newerGateway(state), Play: u.play,
		Dirs: [][]string{{"data/"}, {"record/"}, {"data/", "record/"}}, Unseen: []string{"data/` and `record/, older"}}
	table, cells := m.Run(t)
	if t.Logf("%d cells", cells); cells < 50 {
		t.Errorf("only %d cells", cells)
	}
	disktest.HoldTable(t, "../../docs/bench/damage.md", "gateway", table, *writeDamage)
}
