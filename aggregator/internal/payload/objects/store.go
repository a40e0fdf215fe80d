package objects

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put implements [payload.Store].
func (s *Store) Put(ctx context.Context, name string, parts ...[]byte) error {
	if _, err := payload.CheckPut(name, parts); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, "put "+name)
	}
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	return s.do(ctx, "put "+name, &request{
		method: http.MethodPut, name: name, parts: parts, read: drained,
		header: http.Header{
			"If-None-Match":         {"*"},
			"Content-Type":          {"application/octet-stream"},
			"X-Amz-Checksum-Crc32c": {base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))},
		},
		broken: func() error { return s.taken(ctx, name) },
	})
}

// taken is ErrExists where a put of a name whose connection broke can be settled: a store
// that refuses the condition need not read the body first, and where it closes the
// connection on a client that still writes, no refusal is ever heard, however often the
// put is sent again.
func (s *Store) taken(ctx context.Context, name string) error {
	one := *s
	one.opt.Attempts = 1
	if _, _, err := one.get(ctx, "", name, make([]byte, 1), 0); err != nil {
		return nil // not there, or not known: the put's own outcome stands
	}
	return fmt.Errorf("%w: put %s", payload.ErrExists, name)
}

// ReadAt implements [payload.Store].
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, offset int64) (n int, err error) {
	if err := payload.CheckRead(name, p, offset); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "read "+name)
	}
	n, _, err = s.get(ctx, "read "+name, name, p, offset)
	return n, err
}

// get reads a range, and says how large the object is. An answer that ends early is asked
// for again from there.
func (s *Store) get(ctx context.Context, what, name string, p []byte, offset int64) (n int, size int64, err error) {
	r := &request{method: http.MethodGet, name: name, header: make(http.Header)}
	ask := func() {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset+int64(n), offset+int64(len(p))-1))
	}
	r.read = func(response *http.Response) error {
		at, length := offset+int64(n), int64(len(p)-n)
		got, ok := rangeOf(response.Header.Get("Content-Range"), at, length)
		if response.StatusCode != http.StatusPartialContent || !ok || size != 0 && got != size {
			return fmt.Errorf("%w: asked for %d bytes from %d, got %q", payload.ErrCorrupt, length, at, response.Header.Get("Content-Range"))
		}
		size = got
		m, err := io.ReadFull(response.Body, p[n:n+int(min(length, size-at))])
		n += m
		ask()
		return err
	}
	ask()
	err = s.do(ctx, what, r)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusRequestedRangeNotSatisfiable && n == 0:
		return 0, 0, io.EOF
	case err == nil && n < len(p):
		return n, size, io.EOF
	}
	return n, size, err
}

// rangeOf reads a Content-Range, which has to be the one that was asked for, or as much
// of it as there is.
func rangeOf(s string, offset, length int64) (size int64, ok bool) {
	s, unit := strings.CutPrefix(s, "bytes ")
	span, total, found := strings.Cut(s, "/")
	first, last, dashed := strings.Cut(span, "-")
	if !unit || !found || !dashed {
		return 0, false
	}
	var n [3]int64
	for i, digits := range []string{first, last, total} {
		v, err := strconv.ParseUint(digits, 10, 62)
		if err != nil {
			return 0, false
		}
		n[i] = int64(v)
	}
	return n[2], n[0] == offset && n[2] > offset && n[1] == min(offset+length, n[2])-1
}

// Delete implements [payload.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := payload.CheckName(name); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, "delete "+name)
	}
	err := s.do(ctx, "delete "+name, &request{method: http.MethodDelete, name: name, read: drained})
	if errors.Is(err, payload.ErrNotFound) {
		return nil // S3 itself does not say so, others do
	}
	return err
}

// Size implements [payload.Store]. It reads a byte: HEAD has no body, in which the store
// says whether it is the object that is missing or all of the S3 bucket.
func (s *Store) Size(ctx context.Context, name string) (int64, error) {
	if err := payload.CheckName(name); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "size of "+name)
	}
	_, size, err := s.get(ctx, "size of "+name, name, make([]byte, 1), 0)
	if err == io.EOF {
		return 0, fmt.Errorf("%w: %s has no bytes", payload.ErrCorrupt, name)
	}
	return size, err
}

// listed is a page of keys.
type listed struct {
	XMLName     xml.Name `xml:"ListBucketResult"`
	IsTruncated bool
	Contents    []struct {
		Key  string
		Size int64
	}
}

// List implements [payload.Store].
func (s *Store) List(ctx context.Context, prefix, after string, n int) ([]payload.Object, error) {
	if err := payload.CheckList(prefix, after, n); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("list %q after %q", prefix, after)
	var page []payload.Object
	for {
		if ctx.Err() != nil {
			return nil, payload.Ended(ctx, what)
		}
		answer, err := s.list(ctx, what, prefix, after, n-len(page))
		if err != nil {
			return nil, err
		}
		for _, o := range answer.Contents {
			name, ours := strings.CutPrefix(o.Key, s.opt.Prefix)
			if !ours || !strings.HasPrefix(name, prefix) || name <= after {
				return nil, fmt.Errorf("%w: %s: got %.300q", payload.ErrCorrupt, what, o.Key)
			}
			after = name
			if payload.CheckName(name) == nil && len(page) < n {
				page = append(page, payload.Object{Name: name, Size: o.Size})
			}
		}
		if !answer.IsTruncated || len(page) == n {
			return page, nil
		}
		if len(answer.Contents) == 0 {
			return nil, fmt.Errorf("%w: %s: an empty page that is not the last", payload.ErrCorrupt, what)
		}
	}
}

// list asks for a page.
func (s *Store) list(ctx context.Context, what, prefix, after string, n int) (answer *listed, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {s.opt.Prefix + prefix}, "max-keys": {strconv.Itoa(n)}}
	if after != "" {
		query.Set("start-after", s.opt.Prefix+after)
	}
	err = s.do(ctx, what, &request{method: http.MethodGet, query: query, read: func(response *http.Response) error {
		b, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return err
		}
		answer = new(listed)
		if err := xml.Unmarshal(b, answer); err != nil {
			return fmt.Errorf("%w: %d bytes that are no list of keys", payload.ErrCorrupt, len(b))
		}
		return nil
	}})
	return answer, err
}
