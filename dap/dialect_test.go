package dap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The dialects that there are. Nobody frames draft 19 as Janus does.
var dialects = []Dialect{{}, {Version: Draft19}, {Framing: Janus}}

// suffix tells the decoders of one message in several dialects apart.
func suffix(d Dialect) string {
	return map[Dialect]string{{}: "", {Version: Draft19}: "19", {Framing: Janus}: "Janus"}[d]
}

// Numbers of report errors as the drafts have them, written down by hand: 18 in its
// section 4.1; 19 in pull requests 784, 786 and 789 of the working group's repository.
var numbers = map[Dialect]map[ReportError]uint8{
	{}: {BatchCollected: 1, ReportReplayed: 2, ReportDropped: 3, HpkeUnknownConfigID: 4, HpkeDecryptError: 5, VDAFVerifyError: 6,
		TaskExpired: 7, InvalidMessage: 8, ReportTooEarly: 9, TaskNotStarted: 10, OutdatedConfig: 11},
	{Version: Draft19}: {BatchCollected: 1, ReportReplayed: 2, ReportDropped: 3, HpkeUnknownConfigID: 4, HpkeDecryptError: 5,
		VDAFVerifyError: 6, InvalidMessage: 7, ReportTooEarly: 8, UnknownVerificationKeyID: 9, UnsupportedExtension: 10},
	{Framing: Janus}: {BatchCollected: 1, ReportReplayed: 2, ReportDropped: 3, HpkeUnknownConfigID: 4, HpkeDecryptError: 5,
		VDAFVerifyError: 6, TaskExpired: 7, InvalidMessage: 8, ReportTooEarly: 9, TaskNotStarted: 10},
}

func dialectKinds() (all []kind) {
	for _, d := range dialects {
		for _, k := range []kind{taskKind(d), uploadErrorsKind(d), initReqKind(d), respKind(d), continueKind(d)} {
			k.name += suffix(d)
			all = append(all, k)
		}
	}
	return all
}

func taskKind(d Dialect) kind {
	k := kind{
		name: "TaskConfiguration", read: codec(func(b []byte) (TaskConfiguration, error) {
			t, err := ReadTaskConfiguration(d.Version, b)
			if err != nil {
				return TaskConfiguration{}, err
			}
			return *t, nil
		}),
		bad: []bad{{"empty leader", strings.Replace(hexTask, "001468747470733a2f2f6578616d706c652e636f6d2f", "0000", 1)},
			{"batch mode 0", strings.Replace(hexTask, "271001", "271000", 1)},
			{"batch mode 3", strings.Replace(hexTask, "271001", "271003", 1)},
			{"endpoint is not ASCII", strings.Replace(hexTask, "0014687474", "0014e87474", 1)}},
	}
	want := TaskConfiguration{
		Version: d.Version, TaskInfo: []byte("foobar"),
		Leader: []byte("https://example.com/"), Helper: []byte("https://another.example.com/"),
		TimePrecision: 3600, MinBatchSize: 10000, BatchMode: TimeInterval, BatchConfig: []byte{}, VDAFType: 1, VDAFConfig: []byte{},
		Extensions: mustExts(Extensions{}, 1, "\x00\x00\x00\x00\x00\x0f\x42\x40\x00\x00\x00\x00\x00\x00\x00\x1c"),
	}
	k.good = []golden{{hexTask, want, 0}}
	empty := strings.Replace(hexTask, "06666f6f626172", "00", 1)
	if d.Version == Draft19 {
		want.TaskInfo = []byte{}
		k.good = append(k.good, golden{empty, want, 0})
	} else {
		k.bad = append(k.bad, bad{"empty task_info", empty})
	}
	return k
}

// errorHex is the number of an error in the dialect, in hexadecimal.
func errorHex(d Dialect, e ReportError) string { return fmt.Sprintf("%02x", numbers[d][e]) }

func uploadErrorsKind(d Dialect) kind {
	return kind{
		name: "UploadErrors", read: runCodec(d.UploadErrors, d.AppendUploadErrors),
		good: []golden{
			{hexID + "02" + hexID2 + errorHex(d, ReportTooEarly), []ReportUploadStatus{{id1, ReportReplayed}, {id2, ReportTooEarly}}, 2},
			{hexID + "c8", []ReportUploadStatus{{id1, unknownReportError | 200}}, 1}, // kept as the number that it is
		},
		bad: []bad{{"error 0", hexID + "00"}, {"error 255", hexID + "ff"}},
	}
}

type initReq struct {
	AggregationJobInitReq
	inits []VerifyInit
}

func initReqKind(d Dialect) kind {
	k := kind{
		name: "AggregationJobInitReq", read: func(b []byte) (any, []byte, error) {
			r, err := d.ReadAggregationJobInitReq(b)
			if err != nil {
				return r, nil, err
			}
			inits, err := Collect(r.VerifyInits(nil))
			if err != nil {
				return r, nil, err
			}
			if r.Inits, err = AppendVerifyInits(nil, inits); err != nil {
				return r, nil, err
			}
			again, err := d.AppendAggregationJobInitReq(nil, &r)
			return initReq{r, inits}, again, err
		},
	}
	selected := AggregationJobInitReq{3, unhex("aa"), mustExts(Extensions{}, 1, string(batch[:])), unhex(hexInit + hexInit)}
	const head = "03" + "00000001" + "aa"
	if d.Framing != Janus {
		k.good = []golden{{head + "0024" + "0001" + "0020" + hexBatch + hexInit + hexInit, initReq{selected, []VerifyInit{vinit, vinit}}, 2}}
		return k
	}
	oldest := AggregationJobInitReq{AggParam: []byte{}, Inits: unhex(hexInit)}
	length := func(inits string) string { return fmt.Sprintf("%08x", len(inits)/2) + inits }
	k.good = []golden{
		{head + "02" + "0020" + hexBatch + length(hexInit+hexInit), initReq{selected, []VerifyInit{vinit, vinit}}, 0},
		{"00" + "00000000" + "01" + "0000" + length(hexInit), initReq{oldest, []VerifyInit{vinit}}, 0},
	}
	k.bad = []bad{
		{"mode 0", head + "00" + "0000" + length(hexInit)}, {"mode 3", head + "03" + "0000" + length(hexInit)},
		{"a time interval with a batch", head + "01" + "0020" + hexBatch + length(hexInit)},
		{"no batch", head + "02" + "0000" + length(hexInit)},
		{"a short batch", head + "02" + "001f" + hexBatch[2:] + length(hexInit)},
		{"a long batch", head + "02" + "0021" + hexBatch + "00" + length(hexInit)},
		{"the draft's framing", head + "0000" + hexInit},
		{"reports beyond the length", head + "01" + "0000" + "00000001" + hexInit},
		{"a length beyond the reports", head + "01" + "0000" + "ffffffff" + hexInit},
		{"a length that cuts a report", head + "01" + "0000" + length(hexInit[:len(hexInit)-2])},
	}
	return k
}

func respKind(d Dialect) kind {
	const first = hexID + "00" + "00000002" + "0708"
	k := kind{name: "AggregationJobResp", read: runCodec(d.VerifyResps, d.AppendVerifyResps)}
	for _, g := range []golden{
		{hexID + "01" + hexID2 + "02" + "06", []VerifyResp{{ID: id1, Type: Finish}, {ID: id2, Type: Reject, Error: VDAFVerifyError}}, 2},
		{first, []VerifyResp{{ID: id1, Payload: unhex("0708")}}, 1},
		{hexID + "02" + errorHex(d, ReportTooEarly), []VerifyResp{{ID: id1, Type: Reject, Error: ReportTooEarly}}, 1},
		{hexID + "02" + "c8", []VerifyResp{{ID: id1, Type: Reject, Error: unknownReportError | 200}}, 1},
	} {
		k.good = append(k.good, framed(d, "", g))
	}
	for _, x := range []bad{
		{"second of type 3", hexID + "01" + hexID2 + "03"}, {"empty payload", hexID + "00" + "00000000"}, {"error 0", hexID + "02" + "00"},
		{"error 255", hexID + "02" + "ff"},
	} {
		k.bad = append(k.bad, bad{x.why, framed(d, "", golden{hex: x.hex}).hex})
	}
	if d.Framing == Janus {
		k.bad = append(k.bad, bad{"the draft's framing", first})
	}
	return k
}

// framed puts the length before a golden run that starts behind head: no prefix is a
// message any more.
func framed(d Dialect, head string, g golden) golden {
	if d.Framing != Janus {
		return golden{head + g.hex, g.value, g.cuts}
	}
	return golden{head + fmt.Sprintf("%08x", len(g.hex)/2) + g.hex, g.value, 0}
}

type contReq struct {
	AggregationJobContinueReq
	conts []VerifyContinue
}

func continueKind(d Dialect) kind {
	const item = hexID + "00000001" + "07"
	return kind{
		name: "AggregationJobContinueReq", read: func(b []byte) (any, []byte, error) {
			r, err := d.ReadAggregationJobContinueReq(b)
			if err != nil {
				return r, nil, err
			}
			conts, err := Collect(r.VerifyContinues(nil))
			if err != nil {
				return r, nil, err
			}
			r.Continues = nil
			for _, v := range conts {
				if r.Continues, err = v.Append(r.Continues); err != nil {
					return r, nil, err
				}
			}
			again, err := d.AppendAggregationJobContinueReq(nil, &r)
			return contReq{r, conts}, again, err
		},
		good: []golden{framed(d, "0102", golden{item,
			contReq{AggregationJobContinueReq{0x102, unhex(item)}, []VerifyContinue{{id1, unhex("07")}}}, 1})},
		bad: []bad{{"step 0", framed(d, "0000", golden{hex: item}).hex}},
	}
}

// Each dialect has the numbers that its draft gives, says what it has no number for by
// what comes closest, and keeps the numbers that it has no name for.
func TestReportErrorNumbers(t *testing.T) {
	instead := map[Dialect]map[ReportError]ReportError{
		{}:                 {UnknownVerificationKeyID: InvalidMessage, UnsupportedExtension: InvalidMessage},
		{Version: Draft19}: {TaskExpired: ReportDropped, TaskNotStarted: ReportDropped, OutdatedConfig: HpkeUnknownConfigID},
		{Framing: Janus}: {UnknownVerificationKeyID: InvalidMessage, UnsupportedExtension: InvalidMessage,
			OutdatedConfig: HpkeUnknownConfigID},
	}
	for _, d := range dialects {
		named := map[uint8]ReportError{}
		for _, e := range ReportErrors {
			want, ok := numbers[d][e]
			if !ok {
				want = numbers[d][instead[d][e]]
			} else {
				named[want] = e
			}
			if n, ok := d.Code(e); !ok || n != want || n == 0 {
				t.Errorf("%v: %v is %d %v, want %d", d, e, n, ok, want)
			}
		}
		for n := 1; n < 255; n++ {
			e := d.ReportError(uint8(n))
			if want, ok := named[uint8(n)]; ok && e != want || !ok && (e.Known() || e.String() != fmt.Sprintf("report error %d", n)) {
				t.Errorf("%v: %d reads as %v", d, n, e)
			}
			if again, ok := d.Code(e); !ok || int(again) != n {
				t.Errorf("%v: %d comes back as %d %v", d, n, again, ok)
			}
		}
		// What the dialect has a name for is said by it alone.
		for _, e := range []ReportError{0, unknownReportError | 255, unknownReportError, unknownReportError | 1, ReportErrors[len(ReportErrors)-1] + 1} {
			if n, ok := d.Code(e); ok {
				t.Errorf("%v: %#x is %d", d, uint16(e), n)
			}
		}
	}
	for _, e := range ReportErrors {
		if e.Outdated() != (e == OutdatedConfig || e == HpkeUnknownConfigID) {
			t.Errorf("%v: outdated %v", e, e.Outdated())
		}
	}
}

// What cannot be encoded in a dialect is refused, and the caller's bytes come back
// untouched.
func TestDialectRefuses(t *testing.T) {
	for _, d := range dialects {
		one := func(v VerifyResp) func([]byte) ([]byte, error) {
			return func(b []byte) ([]byte, error) { return d.AppendVerifyResps(b, []VerifyResp{v}) }
		}
		refused := map[string]func([]byte) ([]byte, error){
			"continue without payload": one(VerifyResp{}),
			"finish with payload":      one(VerifyResp{Type: Finish, Payload: []byte{1}}),
			"reject without error":     one(VerifyResp{Type: Reject}),
			"continue with error":      one(VerifyResp{Payload: []byte{1}, Error: InvalidMessage}),
			"type 3":                   one(VerifyResp{Type: 3}),
			"upload error 0": func(b []byte) ([]byte, error) {
				return d.AppendUploadErrors(b, []ReportUploadStatus{{id1, 0}})
			},
			"step 0": func(b []byte) ([]byte, error) {
				return d.AppendAggregationJobContinueReq(b, &AggregationJobContinueReq{})
			},
		}
		if d.Framing == Janus {
			for name, e := range map[string]Extensions{
				"unknown extension": mustExts(Extensions{}, 2, "x"), "short batch": mustExts(Extensions{}, 1, "x"),
				"two extensions": mustExts(mustExts(Extensions{}, 1, string(batch[:])), 2, "x"),
			} {
				refused[name] = func(b []byte) ([]byte, error) {
					return d.AppendAggregationJobInitReq(b, &AggregationJobInitReq{Extensions: e})
				}
			}
		}
		for name, build := range refused {
			got, err := build([]byte("before"))
			if !errors.Is(err, ErrMalformed) || string(got) != "before" {
				t.Errorf("%v, %s: %q, %v; want ErrMalformed", d, name, got, err)
			}
		}
	}
	for _, d := range []Dialect{{Version: Draft19, Framing: Janus}, {Version: 2}, {Framing: 2}} {
		if d.Validate() == nil {
			t.Errorf("there is a dialect %+v", d)
		}
	}
	for _, d := range dialects {
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// The framed messages of Janus that its own tests publish (janus_messages,
// messages/src/tests/aggregation.rs at commit 4ab28a36): each reads, says what that file
// says it says, and comes back as the same bytes.
func TestJanusPublishedMessages(t *testing.T) {
	d := Dialect{Framing: Janus}
	const (
		one    = "0102030405060708090a0b0c0d0e0f10"
		two    = "100f0e0d0c0b0a090807060504030201"
		inits1 = one + "000000000000d431" + "0000" + "00000000" + "2a" + "0006" + "303132333435" + "00000006" + "353433323130" +
			"0000000b" + "00" + "00000006" + "303132333435"
		inits2 = two + "0000000000011f46" + "0008" + "0000" + "0004" + "30313233" + "00000004" + "30313233" +
			"0d" + "0004" + "61626365" + "00000004" + "61626664" + "00000005" + "02" + "00000000"
		inits = "00000082" + inits1 + inits2
	)
	first, second := ReportID(unhex(one)), ReportID(unhex(two))
	for _, x := range []struct {
		hex   string
		key   uint8
		batch string // empty: by time
	}{
		{"07" + "00000006" + "303132333435" + "01" + "0000" + inits, 7, ""},
		{"ff" + "00000006" + "303132333435" + "02" + "0020" + strings.Repeat("02", 32) + inits, 255, strings.Repeat("02", 32)},
	} {
		r, err := d.ReadAggregationJobInitReq(unhex(x.hex))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Collect(r.VerifyInits(nil))
		if err != nil {
			t.Fatal(err)
		}
		id, selected := r.LeaderSelectedBatch()
		if r.VerificationKeyID != x.key || string(r.AggParam) != "012345" || selected != (x.batch != "") ||
			selected && hex.EncodeToString(id[:]) != x.batch {
			t.Errorf("%s reads as %+v", x.hex, r)
		}
		if len(got) != 2 || got[0].Metadata.ID != first || got[0].Metadata.Time != 54321 || got[0].Ciphertext.ConfigID != 42 ||
			string(got[0].Ciphertext.Enc) != "012345" || string(got[0].Ciphertext.Payload) != "543210" ||
			string(got[0].Payload) != "\x00\x00\x00\x00\x06012345" || got[1].Metadata.ID != second ||
			got[1].Metadata.PublicExtensions.Len() != 1 || string(got[1].PublicShare) != "0123" {
			t.Errorf("%s has the reports %+v", x.hex, got)
		}
		if again, err := d.AppendAggregationJobInitReq(nil, &r); err != nil || !bytes.Equal(again, unhex(x.hex)) {
			t.Errorf("%s comes back as %x, %v", x.hex, again, err)
		}
		if _, err := (Dialect{}).ReadAggregationJobInitReq(unhex(x.hex)); err == nil && x.batch == "" {
			t.Errorf("%s is taken for the draft's", x.hex)
		}
	}

	const cont = "a5a5" + "0000003e" + one + "0000000b" + "00" + "00000006" + "303132333435" + two + "0000000b" + "00" + "00000006" + "303132333435"
	c, err := d.ReadAggregationJobContinueReq(unhex(cont))
	if err != nil {
		t.Fatal(err)
	}
	conts, err := Collect(c.VerifyContinues(nil))
	if err != nil || c.Step != 42405 || len(conts) != 2 || conts[0].ID != first || conts[1].ID != second {
		t.Errorf("step %d of %+v, %v", c.Step, conts, err)
	}
	if again, err := d.AppendAggregationJobContinueReq(nil, &c); err != nil || !bytes.Equal(again, unhex(cont)) {
		t.Errorf("comes back as %x, %v", again, err)
	}

	const resp = "00000039" + one + "00" + "00000013" + "01" + "00000005" + "3031323334" + "00000005" + "3536373839" + two + "01"
	resps, err := Collect(d.VerifyResps(unhex(resp), nil))
	if err != nil || len(resps) != 2 || resps[0].ID != first || resps[0].Type != Continue || len(resps[0].Payload) != 0x13 ||
		resps[1].ID != second || resps[1].Type != Finish {
		t.Errorf("%+v, %v", resps, err)
	}
	if again, err := d.AppendVerifyResps(nil, resps); err != nil || !bytes.Equal(again, unhex(resp)) {
		t.Errorf("comes back as %x, %v", again, err)
	}
}

// A peer's chosen id is the same for the same bytes, one for each resource, and has one
// spelling.
func TestChosenIDs(t *testing.T) {
	task := TaskID(batch)
	seen := map[string]string{}
	for _, x := range []struct {
		task       TaskID
		c          Collection
		body, salt string
	}{
		{task, AggregationJobsResource, "body", ""}, {task, AggregateSharesResource, "body", ""},
		{task, AggregationJobsResource, "other", ""}, {TaskID{1}, AggregationJobsResource, "body", ""},
		{task, AggregationJobsResource, "body", "salt"},
	} {
		id := Janus.ChooseID(x.task, x.c, []byte(x.body), []byte(x.salt))
		if err := CheckChosenID(id); err != nil || CheckResourceID(id) != nil {
			t.Errorf("%q: %v", id, err)
		}
		if again := Janus.ChooseID(x.task, x.c, []byte(x.body), []byte(x.salt)); again != id {
			t.Errorf("%q, and again %q", id, again)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%+v has the id of %s", x, other)
		}
		seen[id] = fmt.Sprintf("%+v", x)
		if path := CreationPathOf(x.task, x.c, id); path != ResourcePath(x.task, x.c, id) || CreationPathOf(x.task, x.c, "") != CreationPath(x.task, x.c) {
			t.Errorf("created at %q", path)
		}
		if s := Standard.ChooseID(x.task, x.c, []byte(x.body), nil); s != "" {
			t.Errorf("the draft's framing chooses %q", s)
		}
	}
	for _, s := range []string{"", "AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA", strings.Repeat("A", 43), "AAAAAAAAAAAAAAAAAAAAA\n"} {
		if CheckChosenID(s) == nil {
			t.Errorf("%q may be chosen", s)
		}
	}
	if Standard.CreationMethod() != "POST" || Janus.CreationMethod() != "PUT" {
		t.Error("creation methods")
	}
}

func TestNamesOfDialects(t *testing.T) {
	for v, want := range map[Version]string{Draft18: "dap-18", Draft19: "dap-19"} {
		if v.String() != want {
			t.Errorf("%v, want %s", v, want)
		}
		if got, err := ParseVersion(v.Number()); err != nil || got != v {
			t.Errorf("%d: %v, %v", v.Number(), got, err)
		}
	}
	var v Version
	for _, w := range Versions {
		if b, err := w.MarshalText(); err != nil || v.UnmarshalText(b) != nil || v != w {
			t.Errorf("%s: %v, %v", b, v, err)
		}
	}
	if v.UnmarshalText([]byte("dap-17")) == nil || v.UnmarshalText([]byte("19")) == nil {
		t.Error("a draft that nobody speaks, or another spelling")
	}
	for _, n := range []uint16{0, 17, 20, 0xffff} {
		if _, err := ParseVersion(n); err == nil {
			t.Errorf("draft %d is spoken", n)
		}
	}
	for f, want := range map[Framing]string{Standard: "standard", Janus: "janus"} {
		var got Framing
		if b, err := f.MarshalText(); err != nil || string(b) != want || got.UnmarshalText(b) != nil || got != f {
			t.Errorf("%s: %v, %v", b, got, err)
		}
	}
	if f := Janus; f.UnmarshalText([]byte("Janus")) == nil || f != Janus {
		t.Error("framings have several spellings")
	}
}

// Targets of the messages that differ from dialect to dialect.

func FuzzTaskConfiguration19(f *testing.F)            { fuzz(f, "TaskConfiguration19") }
func FuzzTaskConfigurationJanus(f *testing.F)         { fuzz(f, "TaskConfigurationJanus") }
func FuzzUploadErrors19(f *testing.F)                 { fuzz(f, "UploadErrors19") }
func FuzzUploadErrorsJanus(f *testing.F)              { fuzz(f, "UploadErrorsJanus") }
func FuzzAggregationJobInitReq19(f *testing.F)        { fuzz(f, "AggregationJobInitReq19") }
func FuzzAggregationJobInitReqJanus(f *testing.F)     { fuzz(f, "AggregationJobInitReqJanus") }
func FuzzAggregationJobResp19(f *testing.F)           { fuzz(f, "AggregationJobResp19") }
func FuzzAggregationJobRespJanus(f *testing.F)        { fuzz(f, "AggregationJobRespJanus") }
func FuzzAggregationJobContinueReq19(f *testing.F)    { fuzz(f, "AggregationJobContinueReq19") }
func FuzzAggregationJobContinueReqJanus(f *testing.F) { fuzz(f, "AggregationJobContinueReqJanus") }
