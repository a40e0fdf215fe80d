package dap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// goFiles are the Go files below dir, those of hidden folders and those of test data left
// out.
func goFiles(t *testing.T, dir string) (files []string) {
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files: %v", err)
	}
	return files
}

// The draft's number stands in one string constant of the whole tree; tests may spell it.
func TestVersionIsOneConstant(t *testing.T) {
	found := make(map[Version][]string)
	for _, file := range goFiles(t, "..") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var s scanner.Scanner
		fset := token.NewFileSet()
		s.Init(fset.AddFile(file, -1, len(src)), src, nil, 0)
		for {
			pos, tok, lit := s.Scan()
			if tok == token.EOF {
				break
			}
			for _, v := range Versions {
				if tok == token.STRING && strings.Contains(lit, v.String()) {
					found[v] = append(found[v], fset.Position(pos).String())
				}
			}
		}
	}
	for _, v := range Versions {
		if len(found[v]) != 1 || !strings.Contains(found[v][0], "version.go") {
			t.Errorf("%q stands in %q, want once in dap/version.go", v, found[v])
		}
	}
}

// The draft's own example (section 3).
func TestIDText(t *testing.T) {
	const s = "8BY0RzZMzxvA46_8ymhzycOB9krN-QIGYvg_RsByGec"
	want := TaskID(unhex("f0163447364ccf1bc0e3affcca6873c9c381f64acdf9020662f83f46c07219e7"))
	id, err := ParseTaskID(s)
	if err != nil || id != want || id.Base64() != s || id.String() != s {
		t.Fatalf("%v, %v", id, err)
	}
	for _, bad := range []string{
		"", s[:42], s + "A", s + "=", strings.Replace(s, "_", "/", 1), s[:42] + "d", // the last: stray bits
		s[:42] + "\n", s[:41] + "\nc", strings.Repeat("A", 42) + "\n",
	} {
		if id, err := ParseTaskID(bad); !errors.Is(err, ErrMalformed) || id != (TaskID{}) {
			t.Errorf("%q: %v, %v", bad, id, err)
		}
	}
	r, err := ParseReportID("AAECAwQFBgcICQoLDA0ODw")
	if err != nil || r != id1 || r.Base64() != "AAECAwQFBgcICQoLDA0ODw" {
		t.Errorf("%x, %v", r[:], err)
	}
	b, err := ParseBatchID(batch.Base64())
	if err != nil || b != batch {
		t.Errorf("%v, %v", b, err)
	}
	var back struct {
		T TaskID
		B BatchID
	}
	back.T, back.B = id, batch
	doc, err := json.Marshal(back)
	if err != nil || !bytes.Contains(doc, []byte(`"`+s+`"`)) {
		t.Fatalf("%s, %v", doc, err)
	}
	back.T, back.B = TaskID{}, BatchID{}
	if err := json.Unmarshal(doc, &back); err != nil || back.T != id || back.B != batch {
		t.Errorf("%+v, %v", back, err)
	}
}

func FuzzTaskIDText(f *testing.F) {
	seeds := []string{"8BY0RzZMzxvA46_8ymhzycOB9krN-QIGYvg_RsByGec", "8BY0RzZMzxvA46_8ymhzycOB9krN-QIGYvg_RsByGed", ""}
	if len(seeds) == 0 {
		f.Fatal("empty seed corpus")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseTaskID(s); err == nil && id.Base64() != s {
			t.Errorf("%q reads as %q", s, id.Base64())
		}
	})
}

func TestReportIDsAndSharesDoNotPrint(t *testing.T) {
	share := PlaintextInputShare{Payload: bytes.Repeat([]byte{0xd7}, 8)}
	var b bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&b, nil), slog.NewTextHandler(&b, nil)} {
		slog.New(h).Info("report", "id", id1, "in", meta, "ptr", &meta, "share", share, "err", ReportUploadStatus{id1, 1})
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%X", "%d", "%s", "%q", "%o"} {
		fmt.Fprintf(&b, verb+verb+verb+verb+verb+"\n", id1, &id1, meta, share, report)
	}
	doc, err := json.Marshal(map[string]any{"id": id1})
	if err != nil {
		t.Fatal(err)
	}
	b.Write(doc)
	for _, secret := range []string{
		hex.EncodeToString(id1[:]), id1.Base64(), "1 2 3 4 5 6", "1,2,3,4,5,6", "0x1, 0x2, 0x3",
		"d7d7", "D7D7", "215 215", "\xd7\xd7", "aa", "170 ", // the last two: data of an extension
	} {
		if strings.Contains(strings.ToLower(b.String()), secret) {
			t.Errorf("%q was printed in\n%s", secret, b.String())
		}
	}
	if err := json.Unmarshal(doc, &struct{ ID *ReportID }{}); err == nil {
		t.Error("a redacted id reads back")
	}
}

func TestCheckResourceID(t *testing.T) {
	for _, good := range []string{"a", "lc7aUeGpdSNosNlh-UZhKA", "-_", strings.Repeat("x", MaxResourceID)} {
		if err := CheckResourceID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a/b", "..", "a=", "a b", "a\n", "é", "a%2f", strings.Repeat("x", MaxResourceID+1)} {
		if err := CheckResourceID(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestChecksum(t *testing.T) {
	h1, h2 := sha256.Sum256(id1[:]), sha256.Sum256(id2[:])
	var a, b Checksum
	a.Add(id1)
	if a != Checksum(h1) {
		t.Error("the checksum of one report is not its hash")
	}
	b.Add(id2)
	a.Merge(b)
	for i := range a {
		if a[i] != h1[i]^h2[i] {
			t.Fatal("the checksum of two reports is not the XOR of their hashes")
		}
	}
	a.Add(id1)
	a.Add(id2)
	if a != (Checksum{}) {
		t.Error("adding twice does not take out")
	}
}

func TestNames(t *testing.T) {
	for want, got := range map[string]fmt.Stringer{
		"batch_collected": BatchCollected, "outdated_config": OutdatedConfig,
		"report error 0": ReportError(0), "report error 14": ReportError(14), "report error 200": unknownReportError | 200,
		"time-interval": TimeInterval, "leader-selected": LeaderSelected,
		"batch mode 0": BatchMode(0), "batch mode 3": BatchMode(3),
		"collector": RoleCollector, "helper": RoleHelper, "role 4": Role(4),
		"reject": Reject, "verify response 3": VerifyRespType(3),
	} {
		if got.String() != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	for i, e := range ReportErrors {
		if int(e) != i+1 || !e.Known() || strings.Contains(e.String(), strconv.Itoa(i+1)) {
			t.Errorf("report error %d is %v", i+1, e)
		}
	}
}
