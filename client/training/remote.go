package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// ErrTooLarge: an answer is longer than what is asked for can be.
var ErrTooLarge = errors.New("training: the answer is too large")

// ErrNotYet: there is nothing there yet, or not any more.
var ErrNotYet = errors.New("training: nothing is there")

// A StatusError is another answer than a file.
type StatusError struct {
	Path   string
	Status int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("training: %s was answered with status %d", e.Path, e.Status)
}

// A Remote is a relay or a controller, as a place of files. Nothing that it says is believed
// here.
type Remote struct {
	// URL is below which session.Dir is: that of the recipe's relay, or of the controller.
	URL string
	// Client makes requests; nil is http.DefaultClient. No redirects are followed.
	Client *http.Client
	// Recipe is whose training is asked about.
	Recipe recipe.ID
}

// get reads one file of a length at most. A longer one is [ErrTooLarge].
func (r Remote) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.URL, "/")+"/"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	req.Header["User-Agent"] = nil // none is sent
	client := r.Client
	if client == nil {
		client = http.DefaultClient
	}
	own := *client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := own.Do(req)
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s", ErrNotYet, path)
	case resp.StatusCode != http.StatusOK:
		return nil, &StatusError{path, resp.StatusCode}
	case resp.ContentLength > limit:
		return nil, fmt.Errorf("%w: %s has %d bytes, want at most %d", ErrTooLarge, path, resp.ContentLength, limit)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("training: %s: %w", path, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, path, limit)
	}
	return b, nil
}

// Session reads the session's bytes.
func (r Remote) Session(ctx context.Context) ([]byte, error) {
	return r.get(ctx, session.SessionPath(r.Recipe), session.MaxSession)
}

// Announcement reads the bytes of the newest announcement.
func (r Remote) Announcement(ctx context.Context) ([]byte, error) {
	return r.get(ctx, session.AnnouncementPath(r.Recipe), session.AnnouncementBytes)
}

// Model reads a blob of a length at most, and holds it to its name. It fails with
// *[session.BlobError].
func (r Remote) Model(ctx context.Context, h session.Hash, limit int) ([]byte, error) {
	b, err := r.get(ctx, session.ModelPath(r.Recipe, h), int64(limit))
	if err != nil {
		return nil, err
	}
	if got := session.BlobHash(b); got != h {
		return nil, &session.BlobError{Want: h, Got: got}
	}
	return b, nil
}
