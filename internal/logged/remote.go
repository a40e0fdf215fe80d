package logged

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/starling-agg/starling/anonymity/tlog"
)

// A Remote is a log that is reached over HTTP. Nothing that it says is believed here.
type Remote struct {
	// URL is the log's, below which its files are.
	URL string
	// Client makes requests; nil is http.DefaultClient. It is told to follow no redirects:
	// whoever answers could lead it elsewhere.
	Client *http.Client
}

// maxFile bounds a file of a log, in bytes: a tile of entries is the longest but for the
// bundle.
const maxFile = 256 * (tlog.MaxEntry + 2)

// A StatusError is an answer of a log that is no file.
type StatusError struct {
	Path   string
	Status int
}

func (e *StatusError) Error() string {
	if e.Status == http.StatusServiceUnavailable {
		return fmt.Sprintf("the log has nothing yet that enough witnesses have signed (%s: status %d)", e.Path, e.Status)
	}
	return fmt.Sprintf("the log answered %s with status %d", e.Path, e.Status)
}

// A RefusedError is a log's that does not take an entry.
type RefusedError struct {
	Outcome string // of the log's closed set
	Detail  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the log refused the entry (%s): %s", e.Outcome, e.Detail)
}

func (r Remote) do(ctx context.Context, method, path, media string, body []byte, limit int64) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(r.URL, "/")+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	client := r.Client
	if client == nil {
		client = http.DefaultClient
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := own.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return resp, b, err
}

// get reads one file of the log.
func (r Remote) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	resp, b, err := r.do(ctx, http.MethodGet, path, "", nil, limit)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &StatusError{path, resp.StatusCode}
	}
	return b, nil
}

// Checkpoint reads the signed checkpoint.
func (r Remote) Checkpoint(ctx context.Context) ([]byte, error) {
	return r.get(ctx, "checkpoint", tlog.MaxNote)
}

// Bundle reads the bundle.
func (r Remote) Bundle(ctx context.Context) ([]byte, error) {
	return r.get(ctx, "bundle", tlog.MaxBundle)
}

// Files reads tiles, as [tlog.NewTree] wants them.
func (r Remote) Files(ctx context.Context) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) { return r.get(ctx, path, maxFile) }
}

// Add sends an entry and returns its place; known says that it was there before. It fails
// with *[RefusedError].
func (r Remote) Add(ctx context.Context, media string, entry []byte) (index int64, known bool, err error) {
	resp, b, err := r.do(ctx, http.MethodPost, "add", media, entry, 1<<20)
	if err != nil {
		return 0, false, err
	}
	if resp.StatusCode != http.StatusOK {
		var p struct{ Type, Detail string }
		if json.Unmarshal(b, &p) == nil && strings.HasPrefix(p.Type, problemPrefix) {
			return 0, false, &RefusedError{strings.TrimPrefix(p.Type, problemPrefix), p.Detail}
		}
		return 0, false, &StatusError{"add", resp.StatusCode}
	}
	var a struct {
		Index *int64
		Known bool
	}
	if err := json.Unmarshal(b, &a); err != nil || a.Index == nil || *a.Index < 0 {
		return 0, false, errors.New("the log's answer cannot be read")
	}
	return *a.Index, a.Known, nil
}

const problemPrefix = "urn:starling:log:"
