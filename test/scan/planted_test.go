package scan

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-agg/starling/test/internal/recording"
)

// planted is a world of which nothing runs: a directory and a log.
func planted(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), needles: newFinder(), logs: map[string]*recording.Bytes{"leader": new(recording.Bytes)}, local: map[string]string{}}
	w.write("leader/store.db", "")
	return w
}

// leaks says whether the search finds what is written into the leader's log and into its
// database, and nothing where it is not.
func (w *world) leaks(kind string, b []byte) (inLog, inFile bool) {
	w.t.Helper()
	w.logs["leader"] = new(recording.Bytes)
	slog.New(slog.NewJSONHandler(w.logs["leader"], nil)).Info("request", "what", string(b))
	w.logs["leader"].Write(b) // as it is, where JSON would change it
	w.write("leader/store.db", strings.Repeat("\x00page", 900)+string(b)+strings.Repeat("\xff", 100))
	defer w.write("leader/store.db", "")
	lines := strings.Join(differs(nil, phases, 0, w.found()), "\n")
	return strings.Contains(lines, "leader: one "+kind+" is in log"), strings.Contains(lines, "leader: one "+kind+" is in store.db")
}

// TestPlantedLeaks: whatever is written into a log or a file, in whatever form, is found
// there; and nothing is found before.
func TestPlantedLeaks(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{16, 32, 33, 100} {
		b := make([]byte, size)
		rnd.Read(b)
		numbers := make([]int, size)
		var spaced, colons []string
		for i, c := range b {
			numbers[i] = int(c)
			spaced, colons = append(spaced, strconv.Itoa(int(c))), append(colons, fmt.Sprintf("%02x", c))
		}
		asJSON, err := json.Marshal(numbers)
		if err != nil {
			t.Fatal(err)
		}
		forms := map[string]string{
			"raw": string(b), "hexadecimal": fmt.Sprintf("id=%x;", b), "HEXADECIMAL": fmt.Sprintf("%X", b), "printed": fmt.Sprint(b),
			"printed with spaces": strings.Join(spaced, " "), "JSON": string(asJSON), "with colons": strings.Join(colons, ":"), "with spaces": fmt.Sprintf("% x", b),
			"a number": new(big.Int).SetBytes(b).String(), "numbers of 8 bytes": fmt.Sprint(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])),
			"little numbers of 8 bytes": fmt.Sprint(binary.LittleEndian.Uint64(b), " ", binary.LittleEndian.Uint64(b[8:])),
			"8 bytes":                   fmt.Sprintf("%x...", b[:8]), "the last 8": fmt.Sprintf("...%x", b[size-8:]),
			"over two pages": string(b[:size/2]) + strings.Repeat("\x00", 50) + string(b[size/2:]),
			"base32":         base32.StdEncoding.EncodeToString(b),
		}
		if size == 16 {
			forms["uuid"] = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
		}
		for name, e := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.RawURLEncoding} {
			for before := range 5 {
				forms[fmt.Sprint(name, " behind ", before)] = e.EncodeToString([]byte("abcde"[:before]+string(b)+"fghij")) + "="
				forms[fmt.Sprint("8 bytes in ", name, " behind ", before)] = e.EncodeToString([]byte("abcde"[:before] + string(b[:8])))
			}
		}
		w := planted(t)
		w.needles.needle("secret", b)
		if inLog, inFile := w.leaks("secret", []byte("nothing")); inLog || inFile {
			t.Fatal("found where it is not")
		}
		for form, text := range forms {
			if inLog, inFile := w.leaks("secret", []byte(text)); !inLog || !inFile {
				t.Errorf("%d bytes, %s: found in the log %v, in the file %v", size, form, inLog, inFile)
			}
		}
	}

	w := planted(t)
	w.needles.address(netip.MustParseAddrPort("127.190.201.130:41234"))
	w.needles.text("code", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	for form, x := range map[string][2]string{
		"address": {"address", "from 127.190.201.130"}, "address and port": {"address", "127.190.201.130:41234"}, "in IPv6": {"address", "[::ffff:127.190.201.130]"},
		"as a number": {"address", "ip=2143209858;"}, "in hexadecimal": {"address", "ip=7fbec982;"}, "four bytes and the port": {"address", string(netip.MustParseAddr("127.190.201.130").AsSlice()) + "\xa1\x12"},
		"sixteen bytes": {"address", strings.Repeat("\x00", 10) + "\xff\xff\x7f\xbe\xc9\x82"}, "sockaddr": {"address", "\x02\x00\xa1\x12\x7f\xbe\xc9\x82"},
		"code": {"code", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, "code in small letters": {"code", "abcdefghijklmnopqrstuvwxyz"},
		"code in hexadecimal": {"code", fmt.Sprintf("%x", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")},
		"code in base64":      {"code", base64.StdEncoding.EncodeToString([]byte("x ABCDEFGHIJKLMNOPQRSTUVWXYZ"))},
	} {
		if inLog, inFile := w.leaks(x[0], []byte(x[1])); !inLog || !inFile {
			t.Errorf("%s: found in the log %v, in the file %v", form, inLog, inFile)
		}
	}
	if inLog, inFile := w.leaks("address", []byte("sum=d7fbec9824 n=92143209858")); inLog || inFile {
		t.Error("a short form within a longer number is an address")
	}

	// A name of a file tells, too.
	w.write("leader/127.190.201.130", "")
	if lines := differs(nil, phases, 0, w.found()); len(lines) != 1 || !strings.Contains(lines[0], "one address is in 127.190.201.130") {
		t.Error(lines)
	}
	if err := os.Remove(filepath.Join(w.dir, "leader", "127.190.201.130")); err != nil {
		t.Fatal(err)
	}
}

// TestTable: what stands in the table must be found in its time, and may not be at any other,
// nor another thing in its place.
func TestTable(t *testing.T) {
	list := rows(t, head, phases)
	if len(list) < 20 {
		t.Fatalf("%d rows", len(list))
	}
	ids := []row{{"leader", "runs/*.run", "report id", 5, 8}}
	at := func(party, where, kind string) map[place]string { return map[place]string{{party, where, kind}: "raw"} }
	for name, x := range map[string]struct {
		phase int
		found map[place]string
		wrong bool
	}{
		"in its time":      {5, at("leader", "runs/1.run", "report id"), false},
		"to the last":      {7, at("leader", "runs/1.run", "report id"), false},
		"too early":        {4, at("leader", "runs/1.run", "report id"), true},
		"too late":         {8, at("leader", "runs/1.run", "report id"), true},
		"missing":          {5, nil, true},
		"nothing too late": {8, nil, false},
		"another kind":     {5, at("leader", "runs/1.run", "share"), true},
		"another party":    {5, at("helper", "runs/1.run", "report id"), true},
		"another place":    {5, at("leader", "runs/x/1.run", "report id"), true},
	} {
		if lines := differs(ids, phases, x.phase, x.found); (len(lines) > 0) != x.wrong {
			t.Errorf("%s: %q", name, lines)
		}
	}
}
