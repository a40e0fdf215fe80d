// Package uploads tells a gateway what a DAP upload is, for the gateway's own code may not be able to read one: which
// requests are uploads, how many become one, and which part of the answer is whose (DAP-18 section 4.4.2).
package uploads

import (
	"errors"
	"fmt"
	"strings"

	"github.com/starling-agg/starling/dap"
)

// DefaultMaxReports is how many reports a device may send in one upload. Reports that come together are one device's, so
// few should.
const DefaultMaxReports = 16

// DAP knows uploads of DAP. It fits gateway.Protocol. The zero value is ready.
type DAP struct {
	// MaxReports in one device's upload; zero is DefaultMaxReports.
	MaxReports int
}

// ErrUpload: not an upload request.
var ErrUpload = errors.New("uploads: not an upload request")

func (d DAP) limits() *dap.Limits {
	l := dap.DefaultLimits()
	if l.MaxReports = d.MaxReports; l.MaxReports == 0 {
		l.MaxReports = DefaultMaxReports
	}
	return l
}

// Route says whether path, without a slash at its start, and media type are those of an upload.
func (DAP) Route(path, media string) (string, error) {
	rest, ok := strings.CutPrefix(path, "tasks/")
	id, what, found := strings.Cut(rest, "/")
	if !ok || !found {
		return "", ErrUpload
	}
	_, err := dap.ParseTaskID(id)
	if err != nil || what != string(dap.ReportsResource) {
		return "", ErrUpload
	}
	if err := dap.CheckContentType(media, dap.MediaUploadReq); err != nil {
		return "", fmt.Errorf("%w: media type", ErrUpload)
	}
	return dap.ContentType(dap.MediaUploadReq), nil
}

// Check says whether the body is one or more whole reports, with nothing before, between or behind them.
func (d DAP) Check(body []byte) error {
	n := 0
	for _, err := range dap.Reports(body, d.limits()) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUpload, err)
		}
		n++
	}
	if n == 0 {
		return fmt.Errorf("%w: no report", ErrUpload)
	}
	return nil
}

// Join makes one upload, in pieces: reports follow one another, so uploads do.
func (DAP) Join(bodies [][]byte) [][]byte { return bodies }

// asItIs reads and writes the reasons of a refusal: whatever draft the task speaks, they leave as the numbers that they came as.
var asItIs dap.Dialect

// Split deals the refusals of a joined upload to whose reports they name; who has none gets an empty body, as from a leader.
func (d DAP) Split(bodies [][]byte, answer []byte) ([][]byte, error) {
	parts := make([][]byte, len(bodies))
	if len(answer) == 0 {
		return parts, nil
	}
	refused := make(map[dap.ReportID]dap.ReportError)
	limits := dap.DefaultLimits()
	for status, err := range asItIs.UploadErrors(answer, limits) {
		if err != nil {
			return nil, fmt.Errorf("uploads: answer: %w", err)
		}
		refused[status.ID] = status.Error
	}
	found := make(map[dap.ReportID]bool)
	for i, body := range bodies {
		var mine []dap.ReportUploadStatus
		for report, err := range dap.Reports(body, d.limits()) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUpload, err)
			}
			id := report.Metadata.ID
			if code, ok := refused[id]; ok {
				mine = append(mine, dap.ReportUploadStatus{ID: id, Error: code})
				found[id] = true
			}
		}
		var err error
		if parts[i], err = asItIs.AppendUploadErrors(nil, mine); err != nil {
			return nil, err
		}
	}
	if len(found) != len(refused) {
		return nil, errors.New("uploads: the answer refuses reports that were not sent")
	}
	return parts, nil
}
