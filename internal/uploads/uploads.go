// Package uploads tells a gateway what an upload is, for the gateway's own code may not be
// able to read one: which requests are uploads, what names the report in one, how many become
// one, and what an answer says. It knows those of DAP (DAP-18 section 4.4.2, [DAP]), those of
// the shuffled and the direct path ([Contributions]), and both ([Both]).
package uploads

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/starling-agg/starling/dap"
)

// DAP knows uploads of DAP. It fits gateway.Protocol. The zero value is ready.
type DAP struct{}

// ErrUpload: not an upload request of one report.
var ErrUpload = errors.New("uploads: not an upload of one report")

// Route says whether path, without a slash at its start, and media type are those of an
// upload.
func (DAP) Route(path, media string) (string, error) {
	if _, err := task(path); err != nil {
		return "", err
	}
	if err := dap.CheckContentType(media, dap.MediaUploadReq); err != nil {
		return "", fmt.Errorf("%w: media type", ErrUpload)
	}
	return dap.ContentType(dap.MediaUploadReq), nil
}

// task is the task that a path is of.
func task(path string) (dap.TaskID, error) {
	rest, ok := strings.CutPrefix(path, "tasks/")
	id, what, found := strings.Cut(rest, "/")
	if !ok || !found || what != string(dap.ReportsResource) {
		return dap.TaskID{}, ErrUpload
	}
	task, err := dap.ParseTaskID(id)
	if err != nil {
		return task, ErrUpload
	}
	return task, nil
}

// Task is the task of a path of an upload.
func (DAP) Task(path string) ([32]byte, error) {
	id, err := task(path)
	return id, err
}

// Name returns what names the report of an upload: its task and its id. It fails for a
// body that is not exactly one whole report, with nothing before or behind it: reports
// that came together would be known for one device's.
func (DAP) Name(path string, body []byte) ([]byte, error) {
	t, err := task(path)
	if err != nil {
		return nil, err
	}
	limits := dap.DefaultLimits()
	limits.MaxReports = 1
	reports, err := dap.Collect(dap.Reports(body, limits))
	if err != nil || len(reports) != 1 {
		return nil, ErrUpload
	}
	return append(t[:], reports[0].Metadata.ID[:]...), nil
}

// Join makes one upload, in pieces: reports follow one another, so uploads do.
func (DAP) Join(bodies [][]byte) [][]byte { return bodies }

// Refusals counts the reports that an answer of success refuses, by reason. It fails
// where that names another report than those of the uploads, or one twice.
func (DAP) Refusals(bodies [][]byte, answer []byte) (map[string]uint64, error) {
	if len(answer) == 0 {
		return nil, nil
	}
	sent := make(map[dap.ReportID]bool, len(bodies))
	for _, body := range bodies {
		for report, err := range dap.Reports(body, nil) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUpload, err)
			}
			sent[report.Metadata.ID] = true
		}
	}
	refused := make(map[string]uint64)
	for status, err := range spoken.UploadErrors(answer, nil) {
		if err != nil {
			return nil, fmt.Errorf("uploads: answer: %w", err)
		}
		if !sent[status.ID] {
			return nil, errors.New("uploads: the answer refuses a report that was not sent, or one twice")
		}
		delete(sent, status.ID)
		refused[reason(status.Error)]++
	}
	return refused, nil
}

// spoken is a draft in which answers are read: what a number means is asked of every
// draft, for no answer says which one its task speaks.
var spoken = dap.Dialect{Version: dap.Draft18}

// other is the reason of a number without a name.
const other = "other"

// later are reasons that no upload is refused for: they are of aggregation jobs alone.
var later = []dap.ReportError{dap.TaskExpired, dap.TaskNotStarted, dap.UnknownVerificationKeyID}

// words are the reasons by number: the names that it has in the drafts.
var words = func() (w [255]string) {
	for n := range w {
		var names []string
		for _, v := range dap.Versions {
			if e := (dap.Dialect{Version: v}).ReportError(uint8(n)); e.Known() && !slices.Contains(later, e) && !slices.Contains(names, e.String()) {
				names = append(names, e.String())
			}
		}
		if w[n] = strings.Join(names, " or "); w[n] == "" {
			w[n] = other
		}
	}
	return w
}()

func reason(code dap.ReportError) string {
	n, ok := spoken.Code(code)
	if !ok {
		return other
	}
	return words[n]
}

// Reasons are the words of Refusals.
func (DAP) Reasons() []string {
	all := slices.Clone(words[:])
	slices.Sort(all)
	return slices.Compact(all)
}

// Final says whether an error answer is about the upload, not about the leader: its bytes
// are refused (400, 413).
func (DAP) Final(status int, _ []byte) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge
}

// Unknown says whether an error answer says that the leader has no such task, which may
// be a slip of its configuration.
func (DAP) Unknown(status int, answer []byte) bool {
	var p dap.Problem
	return status == http.StatusNotFound && json.Unmarshal(answer, &p) == nil && p.Type == dap.ProblemUnrecognizedTask
}
