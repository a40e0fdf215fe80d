package dap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The pieces of the golden messages, written down from the draft's structs by hand: TLS
// syntax, big-endian.
const (
	hexID    = "000102030405060708090a0b0c0d0e0f"
	hexID2   = "ffeeddccbbaa99887766554433221100"
	hexBatch = "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
	hexIv    = "0000000000000007" + "0000000000000003"
	hexExts  = "000b" + "0002" + "0001" + "aa" + "ff00" + "0002" + "bbcc"
	hexMeta  = hexID + "0000000000000009" + hexExts
	hexPub   = "00000002" + "5051"
	hexCt    = "05" + "0003" + "e1e2e3" + "00000004" + "c1c2c3c4"
	hexCt2   = "06" + "0001" + "e9" + "00000001" + "c9"
	hexShare = hexMeta + hexPub + hexCt2
	hexInit  = hexShare + "00000003" + "010203"
	hexQuery = "01" + "0010" + hexIv
	hexColl  = hexQuery + "00000001" + "77" + "0000"
	hexConf  = "c2" + "0020" + "0001" + "0001" + "0002" + "4142"
	hexTask  = "06666f6f626172001468747470733a2f2f6578616d706c652e636f6d2f001c68747470733a2f2f616e6f746865722e" +
		"6578616d706c652e636f6d2f0000000000000e10000000000000271001000000000001000000140001001000000000000f424000" +
		"0000000000001c"
)

var (
	id1    = ReportID(unhex(hexID))
	id2    = ReportID(unhex(hexID2))
	batch  = BatchID(unhex(hexBatch))
	exts   = mustExts(mustExts(Extensions{}, 2, "\xaa"), 0xff00, "\xbb\xcc")
	meta   = ReportMetadata{id1, 9, exts}
	ct     = HpkeCiphertext{5, unhex("e1e2e3"), unhex("c1c2c3c4")}
	ct2    = HpkeCiphertext{6, unhex("e9"), unhex("c9")}
	share  = ReportShare{meta, unhex("5051"), ct2}
	report = Report{meta, unhex("5051"), ct, ct2, nil}
	vinit  = VerifyInit{share, unhex("010203")}
	query  = Query{TimeInterval, Interval{7, 3}}
	coll   = CollectionJobReq{query, unhex("77"), Extensions{}, nil}
)

// A kind is one decoder with its encoder. read returns what it read and that again as
// bytes.
type kind struct {
	name string
	read func([]byte) (any, []byte, error)
	good []golden
	// bad are further refusals; truncation at every byte and a trailing byte are tried on
	// every golden message.
	bad []bad
}

type golden struct {
	hex   string
	value any
	cuts  int // how many proper prefixes are messages too: those of runs that end between two items
}

type bad struct{ why, hex string }

// kinds are all of them: those that are the same in all dialects, and the others in each.
var kinds = slices.Concat(commonKinds, dialectKinds())

var commonKinds = []kind{
	{
		name: "Interval", read: codec(ReadInterval),
		good: []golden{{hexIv, Interval{7, 3}, 0}, {strings.Repeat("ff", 16), Interval{1<<64 - 1, 1<<64 - 1}, 0}},
	}, {
		name: "Extensions", read: codec(ReadExtensions),
		good: []golden{{"0000", Extensions{}, 0}, {hexExts, exts, 0},
			{"0008" + "00020000" + "00020000", Extensions{unhex("0002000000020000")}, 0}},
		bad: []bad{{"inner length runs over", "0004" + "00020001"}, {"inner header is cut", "0003" + "000200"}},
	}, {
		name: "HpkeCiphertext", read: codec(decode[HpkeCiphertext]),
		good: []golden{{hexCt, ct, 0}, {hexCt2, ct2, 0}},
		bad: []bad{{"empty enc", "05" + "0000" + "00000001" + "c1"}, {"empty payload", "05" + "0001" + "e1" + "00000000"},
			{"length of 4 GiB", "05" + "0001" + "e1" + "ffffffff" + "c1"}},
	}, {
		name: "HpkeConfig", read: codec(ReadHpkeConfig),
		good: []golden{{hexConf, HpkeConfig{0xc2, 0x20, 1, 1, unhex("4142")}, 0}},
		bad:  []bad{{"empty key", "c2" + "0020" + "0001" + "0001" + "0000"}},
	}, {
		name: "HpkeConfigList", read: codec(ReadHpkeConfigList),
		good: []golden{
			{"000b" + hexConf, HpkeConfigList{{0xc2, 0x20, 1, 1, unhex("4142")}}, 0},
			{"0015" + hexConf + "11" + "999900ff00ee" + "0001" + "99",
				HpkeConfigList{{0xc2, 0x20, 1, 1, unhex("4142")}, {0x11, 0x9999, 0xff, 0xee, unhex("99")}}, 0}},
		bad: []bad{{"empty list", "0000"}, {"one id twice", "0016" + hexConf + hexConf}, {"cut config", "000a" + hexConf[:20]}},
	}, {
		name: "CountConfig", read: codec(readConfig[CountConfig](TypePrio3Count)),
		good: []golden{{"", CountConfig{}, 0}},
	}, {
		name: "SumConfig", read: codec(readConfig[SumConfig](TypePrio3Sum)),
		good: []golden{{"00000000000000ff", SumConfig{255}, 0}},
		bad:  []bad{{"zero", "0000000000000000"}},
	}, {
		name: "SumVecConfig", read: codec(readConfig[SumVecConfig](TypePrio3SumVec)),
		good: []golden{{"0000000a" + "00000000000000ff" + "00000003", SumVecConfig{10, 255, 3}, 0}},
		bad: []bad{{"no length", "00000000" + "00000000000000ff" + "00000003"}, {"no range", "0000000a" + "0000000000000000" + "00000003"},
			{"no chunk", "0000000a" + "00000000000000ff" + "00000000"}},
	}, {
		name: "HistogramConfig", read: codec(readConfig[HistogramConfig](TypePrio3Histogram)),
		good: []golden{{"0000000a" + "00000003", HistogramConfig{10, 3}, 0}},
		bad:  []bad{{"no length", "00000000" + "00000003"}, {"no chunk", "0000000a" + "00000000"}},
	}, {
		name: "MultihotCountVecConfig", read: codec(readConfig[MultihotCountVecConfig](TypePrio3MultihotCountVec)),
		good: []golden{{"0000000a" + "00000003" + "0000000000000002", MultihotCountVecConfig{10, 3, 2}, 0}},
		bad: []bad{{"no weight", "0000000a" + "00000003" + "0000000000000000"},
			{"weight over length", "0000000a" + "00000003" + "000000000000000b"},
			{"no length", "00000000" + "00000003" + "0000000000000001"}, {"no chunk", "0000000a" + "00000000" + "0000000000000002"}},
	}, {
		name: "L1BoundSumConfig", read: codec(readConfig[L1BoundSumConfig](TypePrio3L1BoundSum)),
		good: []golden{{"0000000a" + "00000000000000f0" + "00000009", L1BoundSumConfig{10, 240, 9}, 0}},
		bad: []bad{{"no length", "00000000" + "00000000000000f0" + "00000009"}, {"no value", "0000000a" + "0000000000000000" + "00000009"},
			{"no chunk", "0000000a" + "00000000000000f0" + "00000000"}},
	}, {
		name: "PineConfig", read: codec(readConfig[PineConfig](TypePine40)),
		good: []golden{
			{"00040000" + "13" + "0000000000080000", PineConfig{TypePine40, 1 << 18, 19, 1 << 19}, 0},
			{"ffffffff" + "ff" + "ffffffffffffffff", PineConfig{TypePine40, 1<<32 - 1, 255, 1<<64 - 1}, 0}, // too large for a VDAF
		},
		bad: []bad{{"no dimension", "00000000" + "13" + "0000000000080000"}, {"no bound", "00040000" + "13" + "0000000000000000"}},
	}, {
		name: "L2VecConfig", read: codec(readConfig[L2VecConfig](TypeL2Vec16)),
		good: []golden{{"00002710", L2VecConfig{TypeL2Vec16, 10000}, 0}},
		bad:  []bad{{"no length", "00000000"}},
	}, {
		name: "ColumnsConfig", read: codec(readConfig[ColumnsConfig](TypeColumns)),
		good: []golden{{"00000004" + "00000014" + "00000006", ColumnsConfig{4, 20, 6}, 0}},
		bad: []bad{{"no groups", "00000000" + "00000014" + "00000006"}, {"no values", "00000004" + "00000000" + "00000006"},
			{"no chunk", "00000004" + "00000014" + "00000000"}},
	}, {
		name: "ReportMetadata", read: codec(decode[ReportMetadata]),
		good: []golden{{hexMeta, meta, 0}, {hexID + "0000000000000000" + "0000", ReportMetadata{ID: id1}, 0}},
	}, {
		name: "Report", read: codec(ReadReport),
		good: []golden{{hexMeta + hexPub + hexCt + hexCt2, report, 0}},
	}, {
		name: "ReportShare", read: codec(decode[ReportShare]),
		good: []golden{{hexShare, share, 0}},
	}, {
		name: "PlaintextInputShare", read: codec(ReadPlaintextInputShare),
		good: []golden{{hexExts + "00000002" + "d1d2", PlaintextInputShare{exts, unhex("d1d2")}, 0}},
		bad:  []bad{{"empty share", hexExts + "00000000"}},
	}, {
		name: "UploadRequest", read: runCodec(Reports, AppendUploadRequest),
		good: []golden{{"", []Report(nil), 0},
			{hexMeta + hexPub + hexCt + hexCt2 + hexMeta + hexPub + hexCt + hexCt2, []Report{report, report}, 2}},
		bad: []bad{{"second has an empty enc", hexMeta + hexPub + hexCt + hexCt2 +
			hexMeta + hexPub + "05" + "0000" + "00000001" + "c1" + hexCt2}},
	}, {
		name: "VerifyInit", read: codec(decode[VerifyInit]),
		good: []golden{{hexInit, vinit, 0}},
		bad:  []bad{{"empty payload", hexShare + "00000000"}},
	}, {
		name: "VerifyContinue", read: codec(decode[VerifyContinue]),
		good: []golden{{hexID + "00000001" + "07", VerifyContinue{id1, unhex("07")}, 0}},
		bad:  []bad{{"empty payload", hexID + "00000000"}},
	}, {
		name: "Query", read: codec(decode[Query]),
		good: []golden{{hexQuery, query, 0}, {"02" + "0000", Query{Mode: LeaderSelected}, 0}},
		bad: []bad{{"mode 0", "00" + "0000"}, {"mode 3", "03" + "0000"}, {"no interval", "01" + "0000"},
			{"long interval", "01" + "0011" + hexIv + "00"}, {"leader-selected with an interval", "02" + "0010" + hexIv}},
	}, {
		name: "BatchSelector", read: codec(decode[BatchSelector]),
		good: []golden{{hexQuery, BatchSelector{Mode: TimeInterval, Interval: Interval{7, 3}}, 0},
			{"02" + "0020" + hexBatch, BatchSelector{Mode: LeaderSelected, BatchID: batch}, 0}},
		bad: []bad{{"mode 0", "00" + "0000"}, {"no batch id", "02" + "0000"}, {"short batch id", "02" + "001f" + hexBatch[2:]},
			{"long batch id", "02" + "0021" + hexBatch + "00"}, {"time interval with a batch id", "01" + "0020" + hexBatch}},
	}, {
		name: "CollectionJobReq", read: codec(ReadCollectionJobReq),
		good: []golden{{hexColl, coll, 0}},
	}, {
		name: "CollectionJobResp", read: codec(ReadCollectionJobResp),
		good: []golden{{"0000000000000064" + hexIv + hexCt + hexCt2, CollectionJobResp{100, Interval{7, 3}, ct, ct2}, 0}},
	}, {
		name: "AggregateShareReq", read: codec(ReadAggregateShareReq),
		good: []golden{{hexColl + "01" + "0010" + hexIv + "0000000000000064" + hexBatch,
			AggregateShareReq{coll, BatchSelector{Mode: TimeInterval, Interval: Interval{7, 3}}, 100, Checksum(batch)}, 0}},
	}, {
		name: "AggregateShare", read: codec(ReadAggregateShare),
		good: []golden{{hexCt, AggregateShare{ct}, 0}},
		bad:  []bad{{"empty", ""}},
	},
}

// codec pairs a Read function with the Append method of what it returns.
func codec[T any, P interface {
	*T
	Append([]byte) ([]byte, error)
}](read func([]byte) (T, error)) func([]byte) (any, []byte, error) {
	return func(b []byte) (any, []byte, error) {
		v, err := read(b)
		if err != nil {
			return v, nil, err
		}
		again, err := P(&v).Append(nil)
		return v, again, err
	}
}

func runCodec[T any](
	read func([]byte, *Limits) iter.Seq2[T, error], app func([]byte, []T) ([]byte, error),
) func([]byte) (any, []byte, error) {
	return func(b []byte) (any, []byte, error) {
		v, err := Collect(read(b, nil))
		if err != nil {
			return v, nil, err
		}
		again, err := app(nil, v)
		return v, again, err
	}
}

func readConfig[T VDAFConfig](vdafType uint32) func([]byte) (T, error) {
	return func(b []byte) (v T, err error) {
		c, err := ReadVDAFConfig(vdafType, b)
		if err != nil {
			return v, err
		}
		return c.(T), nil
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func mustExts(e Extensions, typ uint16, data string) Extensions {
	e, err := e.With(typ, []byte(data))
	if err != nil {
		panic(err)
	}
	return e
}

// stripRaw takes away the bytes kept beside the fields, after checking that they are the
// message's own.
func stripRaw(t *testing.T, v any, b []byte) any {
	own := func(raw *[]byte, want []byte) {
		if !bytes.Equal(*raw, want) {
			t.Errorf("keeps the bytes %x, want %x", *raw, want)
		}
		*raw = nil
	}
	switch v := v.(type) {
	case Report:
		own(&v.raw, b)
		return v
	case []Report:
		for i := range v {
			n := len(b) / len(v) // the golden reports are all alike
			own(&v[i].raw, b[i*n:(i+1)*n])
		}
		return v
	case CollectionJobReq:
		own(&v.raw, b)
		return v
	case AggregateShareReq:
		own(&v.CollectionJobReq.raw, b[:len(hexColl)/2])
		return v
	case TaskConfiguration:
		own(&v.raw, b)
		return v
	}
	return v
}

func TestMessages(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			if len(k.good) == 0 {
				t.Fatal("no golden message")
			}
			for _, g := range k.good {
				b := unhex(g.hex)
				v, again, err := k.read(b)
				if err != nil {
					t.Fatalf("%s: %v", g.hex, err)
				}
				if v := stripRaw(t, v, b); !reflect.DeepEqual(v, g.value) {
					t.Errorf("%s reads as\n%#v, want\n%#v", g.hex, v, g.value)
				}
				if !bytes.Equal(again, b) {
					t.Errorf("%s comes back as %x", g.hex, again)
				}
				cuts := 0
				for n := range b {
					if _, again, err := k.read(b[:n:n]); err == nil {
						if cuts++; !bytes.Equal(again, b[:n]) {
							t.Errorf("%x comes back as %x", b[:n], again)
						}
					} else if !errors.Is(err, ErrMalformed) {
						t.Errorf("cut at %d: %v, want ErrMalformed", n, err)
					}
				}
				if cuts != g.cuts {
					t.Errorf("%s: %d of its prefixes are taken, want %d", g.hex, cuts, g.cuts)
				}
				if _, _, err := k.read(append(bytes.Clone(b), 0)); !errors.Is(err, ErrMalformed) {
					t.Errorf("%s with a trailing byte: %v, want ErrMalformed", g.hex, err)
				}
			}
			for _, x := range k.bad {
				if v, _, err := k.read(unhex(x.hex)); !errors.Is(err, ErrMalformed) {
					t.Errorf("%s: read %+v, %v; want ErrMalformed", x.why, v, err)
				}
			}
		})
	}
}

// What cannot be encoded is refused, and the caller's bytes come back untouched.
func TestAppendRefuses(t *testing.T) {
	long := make([]byte, 1<<16)
	for name, m := range map[string]interface {
		Append([]byte) ([]byte, error)
	}{
		"empty enc":                   HpkeCiphertext{1, nil, []byte{1}},
		"long enc":                    HpkeCiphertext{1, long, []byte{1}},
		"empty payload":               HpkeCiphertext{1, []byte{1}, nil},
		"no configs":                  HpkeConfigList{},
		"long list of configs":        HpkeConfigList{{ID: 1, Key: long[:40000]}, {ID: 2, Key: long[:40000]}},
		"two configs of one id":       HpkeConfigList{{ID: 1, Key: []byte{1}}, {ID: 1, Key: []byte{1}}},
		"long task_info":              &TaskConfiguration{TaskInfo: long[:256], Leader: []byte("l"), Helper: []byte("h"), BatchMode: 1},
		"no batch mode":               &TaskConfiguration{TaskInfo: long[:1], Leader: []byte("l"), Helper: []byte("h")},
		"query without mode":          Query{},
		"query with foreign field":    Query{Mode: LeaderSelected, Interval: Interval{1, 1}},
		"selector with interval":      BatchSelector{Mode: LeaderSelected, Interval: Interval{1, 1}},
		"selector with batch":         BatchSelector{Mode: TimeInterval, BatchID: batch},
		"empty share":                 PlaintextInputShare{},
		"sum up to nothing":           SumConfig{},
		"multihot weight over length": MultihotCountVecConfig{3, 1, 4},
	} {
		dst := []byte("before")
		got, err := m.Append(dst)
		if !errors.Is(err, ErrMalformed) || string(got) != "before" {
			t.Errorf("%s: %q, %v; want ErrMalformed", name, got, err)
		}
	}
	for name, err := range map[string]error{
		"UploadRequest": second(AppendUploadRequest(nil, []Report{report, {}})),
		"VerifyInits":   second(AppendVerifyInits(nil, []VerifyInit{{share, nil}})),
	} {
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want ErrMalformed", name, err)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

// Builders take exactly the room they need.
func TestSizes(t *testing.T) {
	for name, build := range map[string]func([]byte) ([]byte, error){
		"UploadRequest": func(b []byte) ([]byte, error) { return AppendUploadRequest(b, []Report{report, report}) },
		"VerifyInits":   func(b []byte) ([]byte, error) { return AppendVerifyInits(b, []VerifyInit{vinit, vinit}) },
	} {
		appendsInPlace(t, name, build)
	}
	resps := []VerifyResp{{ID: id1, Payload: unhex("0708")}, {ID: id1, Type: Finish}, {ID: id1, Type: Reject, Error: 1}}
	selected := AggregationJobInitReq{1, unhex("aa"), mustExts(Extensions{}, 1, string(batch[:])), unhex(hexInit)}
	for _, d := range dialects {
		for name, build := range map[string]func([]byte) ([]byte, error){
			"UploadErrors": func(b []byte) ([]byte, error) { return d.AppendUploadErrors(b, []ReportUploadStatus{{id1, 1}}) },
			"VerifyResps":  func(b []byte) ([]byte, error) { return d.AppendVerifyResps(b, resps) },
			"InitReq":      func(b []byte) ([]byte, error) { return d.AppendAggregationJobInitReq(b, &selected) },
			"InitReq of time": func(b []byte) ([]byte, error) {
				return d.AppendAggregationJobInitReq(b, &AggregationJobInitReq{Inits: unhex(hexInit)})
			},
			"ContinueReq": func(b []byte) ([]byte, error) {
				return d.AppendAggregationJobContinueReq(b, &AggregationJobContinueReq{1, unhex(hexInit)})
			},
		} {
			appendsInPlace(t, fmt.Sprint(d, " ", name), build)
		}
	}
}

func appendsInPlace(t *testing.T, name string, build func([]byte) ([]byte, error)) {
	t.Helper()
	empty, err := build(nil)
	if err != nil || cap(empty) != len(empty) {
		t.Errorf("%s: %d bytes in room for %d, %v", name, len(empty), cap(empty), err)
	}
	dst := append(make([]byte, 0, 4096), "before"...)
	got, err := build(dst)
	if err != nil || string(got) != "before"+string(empty) || &got[0] != &dst[0] {
		t.Errorf("%s does not append in place (%v)", name, err)
	}
}

func TestLimits(t *testing.T) {
	base := Limits{MaxReports: 2, MaxPublicShare: 2, MaxEnc: 3, MaxCiphertext: 4, MaxPayload: 3, MaxExtensions: 2}
	if err := errors.Join(base.Validate(), DefaultLimits().Validate()); err != nil {
		t.Fatal(err)
	}
	upload, _ := AppendUploadRequest(nil, []Report{report, report})
	inits, _ := AppendVerifyInits(nil, []VerifyInit{vinit, vinit})
	resps, _ := Dialect{}.AppendVerifyResps(nil, []VerifyResp{{ID: id1, Payload: unhex("070809")}, {ID: id2, Type: Finish}})
	conts := unhex(hexID + "00000003" + "070809" + hexID2 + "00000001" + "07")
	refused, _ := Dialect{}.AppendUploadErrors(nil, []ReportUploadStatus{{id1, 1}, {id2, 1}})
	readers := map[string]func(*Limits) error{
		"upload": func(l *Limits) error { return second(Collect(Reports(upload, l))) },
		"init":   func(l *Limits) error { return second(Collect((&AggregationJobInitReq{Inits: inits}).VerifyInits(l))) },
		"resp":   func(l *Limits) error { return second(Collect(Dialect{}.VerifyResps(resps, l))) },
		"continue": func(l *Limits) error {
			return second(Collect((&AggregationJobContinueReq{1, conts}).VerifyContinues(l)))
		},
		"errors": func(l *Limits) error { return second(Collect(Dialect{}.UploadErrors(refused, l))) },
	}
	for name, read := range readers {
		if err := read(&base); err != nil {
			t.Errorf("%s at the limits: %v", name, err)
		}
	}
	for _, c := range []struct {
		what    string
		lower   func(*Limits)
		refused string
	}{
		{"MaxReports", func(l *Limits) { l.MaxReports-- }, "upload init resp continue errors"},
		{"MaxPublicShare", func(l *Limits) { l.MaxPublicShare-- }, "upload init"},
		{"MaxEnc", func(l *Limits) { l.MaxEnc = 2 }, "upload"}, // the helper's golden ciphertext is smaller
		{"MaxEnc", func(l *Limits) { l.MaxEnc = 0 }, "upload init"},
		{"MaxCiphertext", func(l *Limits) { l.MaxCiphertext = 3 }, "upload"},
		{"MaxCiphertext", func(l *Limits) { l.MaxCiphertext = 0 }, "upload init"},
		{"MaxPayload", func(l *Limits) { l.MaxPayload-- }, "init resp continue"},
		{"MaxExtensions", func(l *Limits) { l.MaxExtensions-- }, "upload init"},
	} {
		l := base
		c.lower(&l)
		for name, read := range readers {
			want := strings.Contains(" "+c.refused+" ", " "+name+" ")
			if err := read(&l); errors.Is(err, ErrLimit) != want {
				t.Errorf("%s lowered, %s: %v, want refusal %v", c.what, name, err, want)
			}
		}
	}
	for i := range reflect.TypeFor[Limits]().NumField() {
		l := base
		reflect.ValueOf(&l).Elem().Field(i).SetInt(-1)
		if l.Validate() == nil {
			t.Errorf("%s of -1 is valid", reflect.TypeFor[Limits]().Field(i).Name)
		}
	}
}

// A stranger's message costs no memory but what the caller keeps of it.
func TestReadingReportsAllocatesNothing(t *testing.T) {
	all := make([]Report, 100)
	for i := range all {
		all[i] = report
	}
	body, err := AppendUploadRequest(nil, all)
	if err != nil {
		t.Fatal(err)
	}
	l := DefaultLimits()
	got := testing.AllocsPerRun(20, func() {
		n := 0
		for r, err := range Reports(body, l) {
			if err != nil || len(r.Bytes()) != report.Size() {
				t.Fatal(err)
			}
			n++
		}
		if n != len(all) {
			t.Fatal(n)
		}
	})
	if got > 10 {
		t.Errorf("%v allocations for %d reports", got, len(all))
	}
}

// Appending to a field that was read must not write into the next one.
func TestFieldsDoNotRunOver(t *testing.T) {
	b := unhex(strings.Repeat(hexMeta+hexPub+hexCt+hexCt2, 2))
	want := bytes.Clone(b)
	for r, err := range Reports(b, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range [][]byte{r.PublicShare, r.Leader.Enc, r.Leader.Payload, r.Helper.Enc, r.Bytes()} {
			_ = append(f, 0xee)
			if !bytes.Equal(b, want) {
				t.Fatal("the body has changed")
			}
		}
	}
}

func BenchmarkReports(b *testing.B) {
	body, err := AppendUploadRequest(nil, []Report{report, report, report, report})
	if err != nil {
		b.Fatal(err)
	}
	l := DefaultLimits()
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range Reports(body, l) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(4*b.N)/b.Elapsed().Seconds(), "reports/s")
}

// fuzz demands of the decoder of that name that what it takes is the only encoding of
// what it read.
func fuzz(f *testing.F, name string) {
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		if len(k.good) == 0 {
			f.Fatal("empty seed corpus")
		}
		for _, g := range k.good {
			f.Add(unhex(g.hex))
		}
		for _, x := range k.bad {
			f.Add(unhex(x.hex))
		}
		f.Fuzz(func(t *testing.T, b []byte) {
			_, again, err := k.read(b)
			if err != nil {
				if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrLimit) {
					t.Errorf("%x: untyped error %v", b, err)
				}
				return
			}
			if !bytes.Equal(again, b) {
				t.Errorf("%x reads as %x", b, again)
			}
		})
		return
	}
	f.Fatalf("empty seed corpus: no decoder %s", name)
}
