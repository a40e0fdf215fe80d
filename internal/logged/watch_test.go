package logged

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/signed"
)

// tiles shows a log in memory as its tiles, with the entries as they are or as others.
func tiles(l *tlogtest.Log, entries [][]byte) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		t, err := tlog.ParseTile(path)
		if err != nil {
			return nil, err
		}
		if !t.Entries {
			return t.Hashes(l)
		}
		var b []byte
		for i := range int64(t.Width) {
			b = tlog.AppendTiled(b, entries[t.N*256+i])
		}
		return b, nil
	}
}

// TestWatch: a monitor finds each thing that an honest log would not have done, and nothing
// in an honest one.
func TestWatch(t *testing.T) {
	x := loggedtest.New(t, "")
	j := judge(t, x)
	leaf := func(l *tlogtest.Log, i int64) []byte {
		h := tlog.LeafHash(l.Entries[i])
		return h[:]
	}
	hour := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	recipe, manifest := x.Say(tlog.KindRecipe, signed.Helper, x.RecipeFile()), x.Manifest(nil)
	base := tlogtest.New(t, "log.example")
	base.Add(t, recipe)
	base.Add(t, manifest)
	base.Hold(t, hour(0), hour(1), 0, 1)
	for name, c := range map[string]struct {
		change func(l *tlogtest.Log)
		live   int
		want   []string
	}{
		"honest": {func(*tlogtest.Log) {}, 2, nil},
		"honest, and longer": {func(l *tlogtest.Log) {
			for i := range 300 {
				l.Add(t, x.Say(tlog.KindRelease, signed.Leader, release(t, strings.Repeat("x", i%200+1)+string(rune('a'+i/200)))))
			}
		}, 302, nil},
		"honest, after a withdrawal": {func(l *tlogtest.Log) {
			l.Add(t, x.Say(tlog.KindWithdrawal, signed.Leader, leaf(l, 0)))
			l.Hold(t, hour(1), hour(2)) // the manifest has ended
		}, 1, nil},
		"two sets in one period":    {func(l *tlogtest.Log) { l.Hold(t, hour(0), hour(1), 0, 1) }, 2, []string{"entry 3: a second set"}},
		"a set of an earlier time":  {func(l *tlogtest.Log) { l.Hold(t, hour(-1), hour(0), 0, 1) }, 2, []string{"entry 3: a second set"}},
		"a set that leaves one out": {func(l *tlogtest.Log) { l.Hold(t, hour(1), hour(2)) }, 2, []string{"entry 3: it leaves out entry 0"}},
		"a set with what has ended": {func(l *tlogtest.Log) { l.Hold(t, hour(1), hour(2), 0, 1) }, 2, []string{"entry 3: it has entry 1, which does not hold"}},
		"a set with what was withdrawn": {func(l *tlogtest.Log) {
			l.Add(t, x.Say(tlog.KindWithdrawal, signed.Leader, leaf(l, 0)))
			l.Hold(t, hour(1), hour(2), 0)
		}, 1, []string{"entry 4: it has entry 0, which does not hold"}},
		"a set with itself":             {func(l *tlogtest.Log) { l.Hold(t, hour(1), hour(2), 0, 2) }, 2, []string{"entry 3: it has entry 2, which does not hold"}},
		"a forged author":               {func(l *tlogtest.Log) { l.Add(t, loggedtest.New(t, "").Manifest(nil)) }, 2, []string{"entry 3: logged: not signed by an owner"}},
		"a second manifest of an epoch": {func(l *tlogtest.Log) { l.Add(t, x.Manifest(nil)) }, 2, []string{"entry 3: tlog: entry 1 is about the same"}},
		"an entry twice":                {func(l *tlogtest.Log) { l.Add(t, recipe) }, 2, []string{"entry 3: tlog: entry 0 is about the same"}},
		"a revision":                    {func(l *tlogtest.Log) { l.Add(t, x.Manifest(func(m *ohttp.Manifest) { m.Revision = 1 })) }, 3, nil},
		"a withdrawal of nothing": {func(l *tlogtest.Log) {
			l.Add(t, x.Say(tlog.KindWithdrawal, signed.Leader, append(make([]byte, 31), 1)))
		}, 2, []string{"entry 3: tlog: there is nothing to withdraw"}},
		"a kind that nobody knows": {func(l *tlogtest.Log) { l.Add(t, tlog.Entry{Kind: 99, Body: []byte("x")}) }, 2, []string{"entry 3: logged: unknown kind"}},
	} {
		l := base.Fork()
		c.change(l)
		got, err := j.Watch(l.Checkpoint(t), tiles(l, l.Entries), hour(0))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ok := len(got.Faults) == len(c.want)
		for i := 0; ok && i < len(c.want); i++ {
			ok = strings.HasPrefix(got.Faults[i], c.want[i])
		}
		if !ok || len(got.Live) != c.live || got.Total != l.Size() {
			t.Errorf("%s: %d hold, of %d, faults %q", name, len(got.Live), got.Total, got.Faults)
		}
	}
	// What is not under the checkpoint is no log at all.
	other := base.Fork()
	other.Entries[1] = other.Entries[0]
	if _, err := j.Watch(base.Checkpoint(t), tiles(base, other.Entries), hour(0)); !errors.Is(err, tlog.ErrProof) {
		t.Errorf("another entry: %v", err)
	}
}
