package dap

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestMedia(t *testing.T) {
	if got := ContentType(MediaUploadReq); got != "application/ppm-dap;message=upload-req" {
		t.Error(got)
	}
	for _, good := range []string{
		ContentType(MediaUploadReq), "application/ppm-dap; message=upload-req", "Application/PPM-DAP;Message=upload-req",
		`application/ppm-dap;message="upload-req"`, "application/ppm-dap;message=upload-req;version=18",
		"application/ppm-dap;version=09;message=upload-req", "application/ppm-dap;message=upload-req;version=\"\"",
	} {
		if err := CheckContentType(good, MediaUploadReq); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "application/ppm-dap", "application/dap;message=upload-req", "application/ppm-dap;message=upload-errors",
		"application/ppm-dap;message=UPLOAD-REQ", "application/ppm-dap;message=upload-req;message=upload-errors",
		"application/ppm-dap;message=upload-req;charset=utf-8", "application/ppm-dap;message=",
		"application/ppm-dap;message=upload-req;x",
		"application/octet-stream", "application/ppm-dap;message=upload-req, application/ppm-dap",
	} {
		if err := CheckContentType(bad, MediaUploadReq); !errors.Is(err, ErrMediaType) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The draft's own example (section 3).
func TestResourceURL(t *testing.T) {
	task := TaskID(unhex("f0163447364ccf1bc0e3affcca6873c9c381f64acdf9020662f83f46c07219e7"))
	const want = "https://example.com/api/dap/tasks/8BY0RzZMzxvA46_8ymhzycOB9krN-QIGYvg_RsByGec/aggregation_jobs/lc7aUeGpdSNosNlh-UZhKA"
	for _, endpoint := range []string{"https://example.com/api/dap", "https://example.com/api/dap/"} {
		base, err := BaseURL([]byte(endpoint))
		if err != nil {
			t.Fatal(err)
		}
		if got := ResourceURL(base, ResourcePath(task, AggregationJobsResource, "lc7aUeGpdSNosNlh-UZhKA")).String(); got != want {
			t.Errorf("%s: %s, want %s", endpoint, got, want)
		}
		if got := ResourceURL(base, HpkeConfigPath).String(); got != "https://example.com/api/dap/hpke_config" {
			t.Error(got)
		}
	}
	root, _ := url.Parse("https://example.com")
	if got := ResourceURL(root, HpkeConfigPath).String(); got != "https://example.com/hpke_config" {
		t.Error(got)
	}

	path := ResourcePath(task, AggregationJobsResource, "abc")
	for _, good := range []string{
		path, "/" + path, "/api/dap/" + path, want[:len(want)-22] + "abc", path + "?" + StepQuery(0),
		"https://elsewhere.example/" + path + "?step=1",
	} {
		if id, err := LocationID(good, task, AggregationJobsResource); err != nil || id != "abc" {
			t.Errorf("%s: %q, %v", good, id, err)
		}
	}
	for _, bad := range []string{
		"", "abc", "/abc", "/" + CreationPath(task, AggregationJobsResource), path + "/", path + "/x", "x" + path,
		"/" + ResourcePath(task, CollectionJobsResource, "abc"), "/" + ResourcePath(TaskID{}, AggregationJobsResource, "abc"),
		path + "%2f", path + "%41", "%zz", path + strings.Repeat("x", MaxResourceID),
	} {
		if id, err := LocationID(bad, task, AggregationJobsResource); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %q, %v", bad, id, err)
		}
	}
	for step, s := range map[uint16]string{0: "0", 7: "7", 65535: "65535"} {
		if got, err := ParseStep(s); err != nil || got != step || StepQuery(step) != "step="+s {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "-1", "+1", "01", "65536", "1 ", "0x1", "1_0"} {
		if got, err := ParseStep(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %d, %v", bad, got, err)
		}
	}
}

func TestProblem(t *testing.T) {
	if len(ProblemTypes) != 12 {
		t.Errorf("%d types", len(ProblemTypes))
	}
	task := TaskID(batch)
	full := &Problem{ProblemUnsupportedExtension, &task, "no such thing", []uint16{7, 65535}, 422}
	b, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	const doc = `{"type":"urn:ietf:params:ppm:dap:error:unsupportedExtension","status":422,"detail":"no such thing",` +
		`"taskid":"sLGys7S1tre4ubq7vL2-v7CxsrO0tba3uLm6u7y9vr8","unsupported_extensions":[7,65535]}`
	if string(b) != doc {
		t.Errorf("%s, want %s", b, doc)
	}
	if b, err := json.Marshal(*full); err != nil || string(b) != doc {
		t.Errorf("by value: %s, %v", b, err)
	}
	for _, p := range []*Problem{full, {Status: 401}, {Type: "https://example.com/full", Status: 503}} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Problem
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(&got, p) {
			t.Errorf("%s reads as %+v, %v", b, got, err)
		}
	}
	for _, typ := range ProblemTypes {
		var got Problem
		b, err := json.Marshal(&Problem{Type: typ})
		if err != nil || json.Unmarshal(b, &got) != nil || got.Type != typ || got.Status != 400 ||
			!strings.Contains(string(b), `"`+problemURN+string(typ)+`"`) {
			t.Errorf("%s: %s, %+v, %v", typ, b, got, err)
		}
	}
	for _, p := range []*Problem{
		{Type: "unauthorized"}, {Type: problemURN + "unauthorized"}, {Type: problemURN + "batchInvalid"}, {Status: 200}, {Status: 600},
	} {
		if b, err := json.Marshal(p); err == nil {
			t.Errorf("%+v is written as %s", p, b)
		}
	}
	err = fmt.Errorf("ask: %w", full)
	var p *Problem
	if !errors.As(err, &p) || !errors.Is(err, &Problem{Type: ProblemUnsupportedExtension}) ||
		errors.Is(err, &Problem{Type: ProblemBatchOverlap}) {
		t.Error("errors.Is and As do not find the type")
	}
	got := (&Problem{Type: ProblemBatchOverlap, Detail: "a\nb"}).Error()
	if strings.Contains(got, "\n") || !strings.Contains(got, "batchOverlap") {
		t.Errorf("%q", got)
	}
}

// Documents of strangers (RFC 9457 section 3.1): what has the wrong type is passed over.
func TestProblemFromStrangers(t *testing.T) {
	for doc, want := range map[string]Problem{
		`{}`:                                 {},
		`{"type":"about:blank"}`:             {},
		`{"type":7,"status":"x"}`:            {},
		`{"status":99}`:                      {},
		`{"status":1e99}`:                    {},
		`{"Type":"about:x"}`:                 {},
		`{"taskid":"short"}`:                 {},
		`{"taskid":null}`:                    {},
		`{"detail":["x"],"z":{}}`:            {},
		`{"detail":"d","z":{}}`:              {Detail: "d"},
		`{"type":"batchInvalid"}`:            {Type: "batchInvalid"},
		`{"status":503,"title":7}`:           {Status: 503},
		`{"unsupported_extensions":[65536]}`: {},
		`{"unsupported_extensions":[1]}`:     {UnsupportedExtensions: []uint16{1}},
		`{"type":"urn:ietf:params:ppm:dap:error:fromDraft99"}`: {Type: "urn:ietf:params:ppm:dap:error:fromDraft99"},
	} {
		got := Problem{Type: "old", Detail: "old", Status: 500}
		if err := json.Unmarshal([]byte(doc), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", doc, got, err, want)
		}
	}
	for _, doc := range []string{`[]`, `7`, `"x"`} {
		if err := json.Unmarshal([]byte(doc), &Problem{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// What a stranger's document reads as, and can be written, reads the same again.
func FuzzProblem(f *testing.F) {
	seeds := []string{
		`{}`, `[]`, `{"type":"about:blank","detail":"x","unsupported_extensions":[1,2]}`,
		`{"type":"urn:ietf:params:ppm:dap:error:batchInvalid","status":400,"taskid":"sLGys7S1tre4ubq7vL2-v7CxsrO0tba3uLm6u7y9vr8"}`,
	}
	if len(seeds) == 0 {
		f.Fatal("empty seed corpus")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q Problem
		if json.Unmarshal(b, &p) != nil {
			return
		}
		doc, err := json.Marshal(&p)
		if err != nil {
			return
		}
		p.Status = p.HTTPStatus()
		if len(p.UnsupportedExtensions) == 0 {
			p.UnsupportedExtensions = nil
		}
		if err := json.Unmarshal(doc, &q); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%s reads as %+v, then %+v (%v)", b, p, q, err)
		}
	})
}
