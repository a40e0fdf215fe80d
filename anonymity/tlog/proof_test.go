package tlog_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// release is a different entry for each number.
func release(t testing.TB, n int) tlog.Entry {
	t.Helper()
	b, err := (&tlog.Release{Name: "starling", Digest: [32]byte{byte(n), byte(n >> 8)}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return tlog.Entry{Kind: tlog.KindRelease, Body: b}
}

// TestProofs: over all logs of up to 20 entries, each entry's proof shows it at its place
// and no other entry there, nor it elsewhere.
func TestProofs(t *testing.T) {
	l, w := tlogtest.New(t, "log.example"), tlogtest.Secret(t, "w", tlog.CosignEd)
	p := policy(t, l, "quorum w1", w)
	for size := range int64(20) {
		l.Add(t, release(t, int(size)))
		note := l.Sign(t, now, w)
		for i := range size + 1 {
			hashes, err := merkle.ProveRecord(size+1, i, l)
			if err != nil {
				t.Fatal(err)
			}
			x := &tlog.Proof{Index: i, Hashes: hashes, Note: note, Extra: []byte("x")[:size%2]}
			x, err = tlog.ReadProof(x.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			for j := range size + 1 {
				if _, err := p.OpenProof(x, l.Entries[j], now); (err == nil) != (i == j) || err != nil && !errors.Is(err, tlog.ErrProof) {
					t.Fatalf("size %d, proof of %d, entry %d: %v", size+1, i, j, err)
				}
			}
			x.Index = size + 1
			if _, err := p.OpenProof(x, l.Entries[i], now); !errors.Is(err, tlog.ErrProof) {
				t.Fatalf("size %d, at the end: %v", size+1, err)
			}
		}
	}
	x := &tlog.Proof{Note: l.Sign(t, now)}
	if _, err := p.OpenProof(x, l.Entries[0], now); !errors.Is(err, tlog.ErrQuorum) {
		t.Errorf("without a witness: %v", err)
	}
}

func TestProofRefused(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	l.Add(t, release(t, 0))
	good := string((&tlog.Proof{Extra: []byte("x"), Hashes: []tlog.Hash{{1}}, Note: l.Sign(t, now)}).Append(nil))
	if _, err := tlog.ReadProof([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty": "", "another version": strings.Replace(good, "@v1", "@v2", 1), "no index": strings.Replace(good, "index", "entry", 1),
		"an index written oddly": strings.Replace(good, "index 0", "index 00", 1), "extra of nothing": strings.Replace(good, "extra eA==", "extra ", 1),
		"no checkpoint": strings.SplitN(good, "\n\n", 2)[0], "too many hashes": strings.Replace(good, "index 0\n", "index 0\n"+strings.Repeat(strings.Split(good, "\n")[3]+"\n", 64), 1),
		"too long": good + strings.Repeat("x", tlog.MaxProof),
	} {
		if _, err := tlog.ReadProof([]byte(bad)); !errors.Is(err, tlog.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestContinues: between all sizes up to 20, the proof shows that one continues the other;
// with a hash changed, too many or too few, or of another log, it does not.
func TestContinues(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	roots := []tlog.Hash{l.Checkpoint(t).Root}
	for i := range 20 {
		l.Add(t, release(t, i))
		roots = append(roots, l.Checkpoint(t).Root)
	}
	for size := range int64(21) {
		for old := range size + 1 {
			proof, err := tlog.ProveContinued(size, old, l)
			if err != nil {
				t.Fatal(err)
			}
			ok := func(oldRoot, root tlog.Hash, proof []tlog.Hash) bool {
				err := tlog.Continues(old, oldRoot, size, root, proof)
				if err != nil && !errors.Is(err, tlog.ErrProof) {
					t.Fatal(err)
				}
				return err == nil
			}
			if !ok(roots[old], roots[size], proof) {
				t.Fatalf("from %d to %d: refused", old, size)
			}
			if ok(roots[old], roots[size], append(slices.Clone(proof), tlog.Hash{})) || len(proof) > 0 && ok(roots[old], roots[size], proof[1:]) {
				t.Fatalf("from %d to %d: with another proof", old, size)
			}
			if old > 0 && (ok(tlog.Hash{1}, roots[size], proof) || ok(roots[old], tlog.Hash{1}, proof)) {
				t.Fatalf("from %d to %d: of another log", old, size)
			}
			for i := range proof {
				changed := slices.Clone(proof)
				changed[i][3] ^= 1
				if ok(roots[old], roots[size], changed) {
					t.Fatalf("from %d to %d: hash %d changed", old, size, i)
				}
			}
		}
	}
	if err := tlog.Continues(3, roots[3], 2, roots[2], nil); !errors.Is(err, tlog.ErrProof) {
		t.Errorf("back: %v", err)
	}
}

func TestSubmission(t *testing.T) {
	l := tlogtest.New(t, "log.example")
	l.Add(t, release(t, 0))
	s := &tlog.Submission{Old: 5, Proof: []tlog.Hash{{1}, {2}}, Note: l.Sign(t, now)}
	b := s.Append(nil)
	again, err := tlog.ReadSubmission(b)
	if err != nil || !bytes.Equal(again.Append(nil), b) || again.Old != 5 || len(again.Proof) != 2 {
		t.Errorf("%+v, %v", again, err)
	}
	good := string(b)
	for name, bad := range map[string]string{
		"empty": "", "no old size": strings.Replace(good, "old 5", "ald 5", 1), "below 0": strings.Replace(good, "old 5", "old -5", 1),
		"no hash": strings.Replace(good, "old 5\n", "old 5\nx\n", 1), "too many hashes": strings.Replace(good, "old 5\n", "old 5\n"+strings.Repeat(strings.Split(good, "\n")[1]+"\n", 62), 1),
		"no checkpoint": "old 5\n", "too long": good + strings.Repeat("x", tlog.MaxSubmission),
	} {
		if _, err := tlog.ReadSubmission([]byte(bad)); !errors.Is(err, tlog.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
