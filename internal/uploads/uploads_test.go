package uploads

import (
	"bytes"
	"errors"
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

func TestCheck(t *testing.T) {
	d := DAP{MaxReports: 2}
	for n, b := range [][]byte{nil, body(t, 1), body(t, 1, 2), body(t, 1, 2, 3)} {
		if err := d.Check(b); (err == nil) != (n == 1 || n == 2) {
			t.Errorf("%d reports: %v", n, err)
		}
	}
	b := body(t, 1)
	for n := 1; n < len(b); n++ {
		if err := d.Check(b[:n]); !errors.Is(err, ErrUpload) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestJoinSplit: a joined upload holds all reports in order, and each device gets the refusals of its own.
func TestJoinSplit(t *testing.T) {
	bodies := [][]byte{body(t, 1, 2), body(t, 3), body(t, 4, 5, 6)}
	if got := bytes.Join((DAP{}).Join(bodies), nil); !bytes.Equal(got, body(t, 1, 2, 3, 4, 5, 6)) {
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
	parts, err := (DAP{}).Split(bodies, statuses(2, 4, 6))
	if err != nil || len(parts) != 3 || !bytes.Equal(parts[0], statuses(2)) || len(parts[1]) != 0 || !bytes.Equal(parts[2], statuses(4, 6)) {
		t.Errorf("split into %x, %v", parts, err)
	}
	if parts, err := (DAP{}).Split(bodies, nil); err != nil || len(parts) != 3 {
		t.Errorf("nothing refused: %x, %v", parts, err)
	}
	if _, err := (DAP{}).Split(bodies, statuses(2, 9)); err == nil {
		t.Error("a stranger was refused")
	}
	if _, err := (DAP{}).Split(bodies, statuses(2)[:5]); err == nil {
		t.Error("an answer cut short was read")
	}
}
