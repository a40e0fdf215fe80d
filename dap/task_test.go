package dap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-agg/starling/sealed"
)

func fixture(t testing.TB) *TaskConfiguration {
	t.Helper()
	c, err := ReadTaskConfiguration(Draft18, unhex(hexTask))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The fixture was encoded by other programs too; the id and the key were computed by
// another program from the formulas.
func TestTaskConfigurationFixture(t *testing.T) {
	c := fixture(t)
	if n := len(unhex(hexTask)); n != 106 {
		t.Fatalf("the fixture has %d bytes", n)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if iv, ok := c.Interval(); !ok || iv != (Interval{1000000, 28}) {
		t.Errorf("task interval %v, %v", iv, ok)
	}
	fields := *c
	fields.raw = nil
	made, err := NewTaskConfiguration(fields)
	if err != nil || hex.EncodeToString(made.Bytes()) != hexTask {
		t.Errorf("made %x, %v", made.Bytes(), err)
	}
	id := c.TaskID()
	if want := "c722da532d2d221c09358e46dde8061d491b9bdf29fb310529605ac4910a4b9d"; hex.EncodeToString(id[:]) != want {
		t.Errorf("task id %x, want %s", id[:], want)
	}
	seed := make([]byte, 32)
	for i := range seed {
		seed[i] = byte(i)
	}
	key, err := DeriveVerifyKey(seed, id)
	if want := "699d80a28a426ce9805b5a89281953d99d9fdebe1f6ece44d0e9018b2a0add68"; err != nil || hex.EncodeToString(key[:]) != want {
		t.Errorf("verification key %x, %v, want %s", key, err, want)
	}
	if _, err := DeriveVerifyKey(seed[:31], id); err == nil {
		t.Error("a short seed makes a key")
	}
	for _, v := range Versions {
		if want := append([]byte(v.String()), id[:]...); !bytes.Equal(v.VDAFContext(id), want) {
			t.Errorf("VDAF context %x", v.VDAFContext(id))
		}
	}
}

// What is bound are the bytes that were provisioned, whatever happens to the input and to
// the fields.
func TestTaskConfigurationKeepsItsBytes(t *testing.T) {
	b := unhex(hexTask)
	c, err := ReadTaskConfiguration(Draft18, b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	c.MinBatchSize = 1
	if hex.EncodeToString(c.Bytes()) != hexTask {
		t.Error("the bytes have changed")
	}
	defer func() {
		if recover() == nil {
			t.Error("the bytes of a configuration that has none")
		}
	}()
	(&TaskConfiguration{}).TaskID()
}

func TestTaskConfigurationValidate(t *testing.T) {
	iv := func(iv Interval) Extensions {
		e, err := Extensions{}.WithTaskInterval(iv)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, change := range map[string]func(*TaskConfiguration){
		"precision 0":            func(c *TaskConfiguration) { c.TimePrecision = 0 },
		"batch size 0":           func(c *TaskConfiguration) { c.MinBatchSize = 0 },
		"leader without host":    func(c *TaskConfiguration) { c.Leader = []byte("https:///x") },
		"helper is no URL":       func(c *TaskConfiguration) { c.Helper = []byte("https://[") },
		"leader by ftp":          func(c *TaskConfiguration) { c.Leader = []byte("ftp://example.com/") },
		"leader with user":       func(c *TaskConfiguration) { c.Leader = []byte("https://a:b@example.com/") },
		"leader with query":      func(c *TaskConfiguration) { c.Leader = []byte("https://example.com/?a") },
		"leader with empty one":  func(c *TaskConfiguration) { c.Leader = []byte("https://example.com/?") },
		"leader with fragment":   func(c *TaskConfiguration) { c.Leader = []byte("https://example.com/#a") },
		"batch configuration":    func(c *TaskConfiguration) { c.BatchConfig = []byte{0} },
		"unknown VDAF":           func(c *TaskConfiguration) { c.VDAFType = 0x1000 },
		"VDAF configuration":     func(c *TaskConfiguration) { c.VDAFConfig = []byte{0} },
		"unknown extension":      func(c *TaskConfiguration) { c.Extensions = mustExts(c.Extensions, 2, "") },
		"extensions not ordered": func(c *TaskConfiguration) { c.Extensions.b = append(slices.Clone(c.Extensions.b), c.Extensions.b...) },
		"short task interval":    func(c *TaskConfiguration) { c.Extensions = mustExts(Extensions{}, 1, "x") },
		"empty task interval":    func(c *TaskConfiguration) { c.Extensions = iv(Interval{1, 0}) },
		"endless task interval":  func(c *TaskConfiguration) { c.Extensions = iv(Interval{last, 1}) },
	} {
		c := *fixture(t)
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s: valid", name)
		}
		if _, err := NewTaskConfiguration(c); err == nil {
			t.Errorf("%s: NewTaskConfiguration makes it", name)
		}
		if iv, ok := c.Interval(); name == "short task interval" && (!ok || iv.Contains(0)) {
			t.Error("a malformed task interval lets reports in")
		}
	}
	c := *fixture(t)
	c.Extensions = Extensions{}
	if _, ok := c.Interval(); ok || c.Validate() != nil {
		t.Error("a task interval out of nothing")
	}
}

func TestExtensions(t *testing.T) {
	e := mustExts(mustExts(mustExts(Extensions{}, 0, ""), 7, "seven"), 65535, "last")
	if e.Len() != 3 || !e.Increasing() || e.Unknown(0, 7, 65535) != nil || !slices.Equal(e.Unknown(7, 8), []uint16{0, 65535}) {
		t.Errorf("%d extensions, increasing %v, unknown %v", e.Len(), e.Increasing(), e.Unknown(7, 8))
	}
	if d, ok := e.Get(7); !ok || string(d) != "seven" {
		t.Errorf("Get(7) = %q, %v", d, ok)
	}
	if _, ok := e.Get(8); ok {
		t.Error("Get(8) finds one")
	}
	for _, typ := range []uint16{0, 7, 65535} {
		if _, err := e.With(typ, nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("%d after 65535: %v", typ, err)
		}
	}
	if _, err := (Extensions{}).With(1, make([]byte, 65532)); !errors.Is(err, ErrMalformed) {
		t.Errorf("too long: %v", err)
	}
	if full, err := (Extensions{}).With(1, make([]byte, 65531)); err != nil || full.Len() != 1 {
		t.Errorf("just fits: %v", err)
	}
	base := mustExts(Extensions{}, 1, "oneone") // 10 bytes, which the allocator rounds up to 16
	a, b := mustExts(base, 2, "aa"), mustExts(base, 3, "bb")
	if d, _ := a.Get(2); string(d) != "aa" || base.Len() != 1 || b.Len() != 2 {
		t.Error("two lists grown from one share memory")
	}
	if a.Disjoint(b) || !mustExts(Extensions{}, 2, "").Disjoint(b) || !e.Disjoint(Extensions{}) || !(Extensions{}).Disjoint(e) ||
		mustExts(Extensions{}, 3, "").Disjoint(b) || b.Disjoint(mustExts(mustExts(Extensions{}, 2, ""), 3, "")) {
		t.Error("Disjoint is wrong")
	}
	for _, types := range []string{"00020000" + "00020000", "00030000" + "00020000"} {
		e := Extensions{unhex(types)}
		if e.Increasing() {
			t.Errorf("%s is increasing", types)
		}
	}
	if !(Extensions{}).Increasing() {
		t.Error("the empty list is not increasing")
	}
}

func TestLeaderSelectedBatch(t *testing.T) {
	e, err := Extensions{}.WithLeaderSelectedBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := (&AggregationJobInitReq{Extensions: e}).LeaderSelectedBatch(); !ok || id != batch {
		t.Errorf("%v, %v", id, ok)
	}
	for name, e := range map[string]Extensions{
		"none":  {},
		"short": mustExts(Extensions{}, 1, string(batch[1:])),
		"long":  mustExts(Extensions{}, 1, string(batch[:])+"x"),
	} {
		if id, ok := (&AggregationJobInitReq{Extensions: e}).LeaderSelectedBatch(); ok {
			t.Errorf("%s: %v", name, id)
		}
	}
}

func TestConsistent(t *testing.T) {
	q := Query{TimeInterval, Interval{5, 5}}
	for _, c := range []struct {
		s    BatchSelector
		q    Query
		want bool
	}{
		{BatchSelector{Mode: TimeInterval, Interval: Interval{5, 5}}, q, true},
		{BatchSelector{Mode: TimeInterval, Interval: Interval{6, 2}}, q, true},
		{BatchSelector{Mode: TimeInterval, Interval: Interval{4, 2}}, q, false},
		{BatchSelector{Mode: TimeInterval, Interval: Interval{9, 2}}, q, false},
		{BatchSelector{Mode: TimeInterval, Interval: Interval{6, 0}}, q, false},
		{BatchSelector{Mode: TimeInterval, Interval: Interval{6, last}}, q, false},
		{BatchSelector{Mode: LeaderSelected, BatchID: batch}, q, false},
		{BatchSelector{Mode: LeaderSelected, BatchID: batch}, Query{Mode: LeaderSelected}, true},
	} {
		if c.s.Consistent(c.q) != c.want {
			t.Errorf("%+v with %+v: %v", c.s, c.q, !c.want)
		}
	}
}

// The strings and bytes that are bound, spelled out from sections 4.4.2.1 and 4.6.7.
func TestBinding(t *testing.T) {
	id, config := TaskID(batch), unhex(hexTask)
	for name, c := range map[string]struct{ got, want []byte }{
		"input share info, leader":     {Draft18.InputShareInfo(RoleLeader), []byte("dap-18 input share\x01\x02")},
		"input share info, helper":     {Draft18.InputShareInfo(RoleHelper), []byte("dap-18 input share\x01\x03")},
		"aggregate share info, leader": {Draft18.AggregateShareInfo(RoleLeader), []byte("dap-18 aggregate share\x02\x00")},
		"aggregate share info, helper": {Draft18.AggregateShareInfo(RoleHelper), []byte("dap-18 aggregate share\x03\x00")},
		"19, input share, leader":      {Draft19.InputShareInfo(RoleLeader), []byte("dap-19 input share\x01\x02")},
		"19, input share, helper":      {Draft19.InputShareInfo(RoleHelper), []byte("dap-19 input share\x01\x03")},
		"19, aggregate share, leader":  {Draft19.AggregateShareInfo(RoleLeader), []byte("dap-19 aggregate share\x02\x00")},
		"19, aggregate share, helper":  {Draft19.AggregateShareInfo(RoleHelper), []byte("dap-19 aggregate share\x03\x00")},
		"input share AAD":              {InputShareAAD(id, config, &meta, unhex("5051")), unhex(hexBatch + hexTask + hexMeta + hexPub)},
		"aggregate share AAD":          {AggregateShareAAD(id, config, unhex(hexColl)), unhex(hexBatch + hexTask + hexColl)},
	} {
		if !bytes.Equal(c.got, c.want) {
			t.Errorf("%s: %x, want %x", name, c.got, c.want)
		}
	}
	dst := append(make([]byte, 0, 4096), "before"...)
	if got := AppendInputShareAAD(dst, id, config, &meta, nil); &got[0] != &dst[0] || len(got) != 6+32+106+len(hexMeta)/2+4 {
		t.Errorf("AAD of %d bytes", len(got))
	}
}

func TestSealToConfig(t *testing.T) {
	k, err := sealed.Generate(9, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	cfg := NewHpkeConfig(k)
	if cfg.ID != 9 || cfg.KEM != 0x20 || cfg.KDF != 1 || cfg.AEAD != 1 || len(cfg.Key) != 32 {
		t.Errorf("%+v", cfg)
	}
	ct, err := Seal(cfg, []byte("info"), []byte("aad"), []byte("message"))
	if err != nil || ct.ConfigID != 9 {
		t.Fatal(ct.ConfigID, err)
	}
	if got, err := k.Open(ct.Enc, []byte("info"), []byte("aad"), ct.Payload); err != nil || string(got) != "message" {
		t.Errorf("%q, %v", got, err)
	}
	foreign, broken := HpkeConfig{1, 0x9999, 1, 1, []byte{1}}, HpkeConfig{2, 0x20, 1, 1, []byte{1}}
	if got, err := (HpkeConfigList{foreign, broken, cfg}).Choose(); err != nil || !reflect.DeepEqual(got, cfg) {
		t.Errorf("chose %+v, %v", got, err)
	}
	if _, err := (HpkeConfigList{foreign, broken}).Choose(); !errors.Is(err, sealed.ErrSuite) {
		t.Errorf("nothing to choose from: %v", err)
	}
	for want, cfg := range map[error]HpkeConfig{sealed.ErrSuite: foreign, sealed.ErrKey: broken} {
		if ct, err := Seal(cfg, nil, nil, nil); !errors.Is(err, want) {
			t.Errorf("%+v, %v, want %v", ct, err, want)
		}
	}
}

func TestReadVDAFConfigUnknown(t *testing.T) {
	for _, typ := range []uint32{0, 6, 0x1000, 1 << 31} {
		if c, err := ReadVDAFConfig(typ, nil); !errors.Is(err, ErrMalformed) || c != nil {
			t.Errorf("%#x: %v, %v", typ, c, err)
		}
	}
	for i, c := range []VDAFConfig{
		CountConfig{}, SumConfig{1}, SumVecConfig{1, 1, 1}, HistogramConfig{1, 1}, MultihotCountVecConfig{1, 1, 1}, nil, L1BoundSumConfig{1, 1, 1},
	} {
		if c == nil { // Poplar1
			continue
		}
		b, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ReadVDAFConfig(c.Type(), b); err != nil || got != c || c.Type() != uint32(i+1) {
			t.Errorf("%v, %v, want %v of type %d", got, err, c, i+1)
		}
	}
}

func TestShares(t *testing.T) {
	if !reflect.DeepEqual(report.HelperShare(), share) {
		t.Error("the helper's share is not its own")
	}
	if want := (ReportShare{meta, unhex("5051"), ct}); !reflect.DeepEqual(report.LeaderShare(), want) {
		t.Error("the leader's share is not its own")
	}
	if fmt.Sprint(ReportReplayed.Error()) != "dap: report refused: report_replayed" {
		t.Error(ReportReplayed.Error())
	}
}
