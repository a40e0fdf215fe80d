package uploads

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dap"
)

func body(t testing.TB, ids ...byte) []byte {
	t.Helper()
	var reports []dap.Report
	for _, id := range ids {
		share := dap.HpkeCiphertext{ConfigID: 1, Enc: []byte{1}, Payload: []byte{id}}
		reports = append(reports, dap.Report{Metadata: dap.ReportMetadata{ID: dap.ReportID{id}}, Leader: share, Helper: share})
	}
	b, err := dap.AppendUploadRequest(nil, reports)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoute(t *testing.T) {
	media := dap.ContentType(dap.MediaUploadReq)
	good := dap.CreationPath(dap.TaskID{7}, dap.ReportsResource)
	if got, err := (DAP{}).Route(good, media+" ; version=18"); err != nil || got != media {
		t.Errorf("got %q, %v", got, err)
	}
	for _, path := range []string{"", "/" + good, good + "/", good + "/x", "tasks/x/reports", "tasks//reports", "x/" + good,
		dap.CreationPath(dap.TaskID{7}, dap.CollectionJobsResource), "hpke_config", "tasks/../tasks/reports", good + "?a"} {
		if _, err := (DAP{}).Route(path, media); !errors.Is(err, ErrUpload) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, m := range []string{"", "text/plain", dap.ContentType(dap.MediaUploadErrors), media + "; device=7"} {
		if _, err := (DAP{}).Route(good, m); !errors.Is(err, ErrUpload) {
			t.Errorf("%q: %v", m, err)
		}
	}
}

// TestName: an upload is one whole report and nothing else, named by its task and its id.
func TestName(t *testing.T) {
	path := dap.CreationPath(dap.TaskID{7}, dap.ReportsResource)
	name, err := (DAP{}).Name(path, body(t, 1))
	want := append(append([]byte{}, (&dap.TaskID{7})[:]...), (&dap.ReportID{1})[:]...)
	if err != nil || !bytes.Equal(name, want) {
		t.Errorf("%x, %v", name, err)
	}
	b := body(t, 1)
	for n := range len(b) {
		if _, err := (DAP{}).Name(path, b[:n]); !errors.Is(err, ErrUpload) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	for _, b := range [][]byte{body(t, 1, 2), append(body(t, 1), 0)} {
		if _, err := (DAP{}).Name(path, b); !errors.Is(err, ErrUpload) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	if _, err := (DAP{}).Name("elsewhere", b); !errors.Is(err, ErrUpload) {
		t.Errorf("another path: %v", err)
	}
}

// TestRefusals: a joined upload holds all reports in order, and an answer counts if it
// names reports of it, each once.
func TestRefusals(t *testing.T) {
	bodies := [][]byte{body(t, 1), body(t, 3), body(t, 4)}
	if got := bytes.Join((DAP{}).Join(bodies), nil); !bytes.Equal(got, body(t, 1, 3, 4)) {
		t.Errorf("joined to %x", got)
	}
	statuses := func(ids ...byte) []byte {
		var list []dap.ReportUploadStatus
		for _, id := range ids {
			list = append(list, dap.ReportUploadStatus{ID: dap.ReportID{id}, Error: dap.ReportDropped})
		}
		b, err := dap.Dialect{}.AppendUploadErrors(nil, list)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	refused, err := (DAP{}).Refusals(bodies, statuses(1, 4))
	if err != nil || len(refused) != 1 || refused[dap.ReportDropped.String()] != 2 {
		t.Errorf("%v, %v", refused, err)
	}
	if refused, err := (DAP{}).Refusals(bodies, nil); err != nil || len(refused) != 0 {
		t.Errorf("nothing refused: %v, %v", refused, err)
	}
	for name, answer := range map[string][]byte{
		"a stranger": statuses(1, 9), "one twice": statuses(1, 1), "cut short": statuses(1)[:5], "rubbish": []byte("taken, thank you"),
	} {
		if refused, err := (DAP{}).Refusals(bodies, answer); err == nil {
			t.Errorf("%s: %v", name, refused)
		}
	}
	words := (DAP{}).Reasons()
	for reason := range refused {
		if !slices.Contains(words, reason) {
			t.Errorf("%q is not among the words", reason)
		}
	}
}

// TestReasons: a number that means one thing in one draft and another in the next is
// called by both names.
func TestReasons(t *testing.T) {
	for number, want := range map[byte]string{
		1: "batch_collected", 3: "report_dropped", 4: "hpke_unknown_config_id", 7: "invalid_message",
		8: "invalid_message or report_too_early", 9: "report_too_early", 10: "unsupported_extension", 11: "outdated_config", 200: "other",
	} {
		id := dap.ReportID{1}
		refused, err := (DAP{}).Refusals([][]byte{body(t, 1)}, append(id[:], number))
		if err != nil || len(refused) != 1 || refused[want] != 1 || !slices.Contains((DAP{}).Reasons(), want) {
			t.Errorf("%d: %v, %v; want %s", number, refused, err, want)
		}
	}
}

// TestFinal: what says that the upload is at fault ends it; what may be the leader's own
// state does not, and that it has no such task is told apart.
func TestFinal(t *testing.T) {
	unknown := []byte(`{"type":"urn:ietf:params:ppm:dap:error:unrecognizedTask","status":404}`)
	for _, c := range []struct {
		status         int
		answer         []byte
		final, unknown bool
	}{
		{400, nil, true, false}, {413, nil, true, false}, {404, unknown, false, true}, {404, nil, false, false}, {404, []byte("<html>"), false, false},
		{400, unknown, true, false}, {401, nil, false, false}, {403, nil, false, false}, {405, nil, false, false}, {408, nil, false, false},
		{429, nil, false, false}, {500, unknown, false, false}, {503, nil, false, false},
	} {
		if final, unknown := (DAP{}).Final(c.status, c.answer), (DAP{}).Unknown(c.status, c.answer); final != c.final || unknown != c.unknown {
			t.Errorf("%d %s: final %v, unknown %v", c.status, c.answer, final, unknown)
		}
	}
}
