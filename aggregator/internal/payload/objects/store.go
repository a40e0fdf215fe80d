package objects

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put implements [payload.Store].
func (s *Store) Put(ctx context.Context, name string, parts ...[]byte) error {
	size, err := payload.CheckPut(name, parts)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, "put "+name)
	}
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	_, err = s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.opt.Bucket, Key: s.key(name), Body: newBody(parts), ContentLength: &size, IfNoneMatch: aws.String("*"),
		ChecksumCRC32C: aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))),
	})
	return failed(ctx, "put "+name, err)
}

// ReadAt implements [payload.Store].
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, offset int64) (n int, err error) {
	if err := payload.CheckRead(name, p, offset); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "read "+name)
	}
	for attempt := 1; ; attempt++ {
		got, size, err := s.get(ctx, name, p[n:], offset+int64(n))
		n += got
		switch {
		case err == nil && n == len(p):
			return n, nil
		case err == nil && offset+int64(n) >= size:
			return n, io.EOF
		case err != nil && !errors.Is(err, errCut):
			return n, err
		case attempt >= s.opt.Attempts:
			return n, fmt.Errorf("%w: read %s: the answer ended early %d times", payload.ErrUnavailable, name, attempt)
		}
		// The SDK tries a request again, not what comes after its headers.
		if err := s.opt.wait(ctx, attempt); err != nil {
			return n, payload.Ended(ctx, "read "+name)
		}
	}
}

// errCut is an answer that ended before its time.
var errCut = errors.New("objects: the answer ended early")

// get reads a range, or its beginning, with one request, and says how large the object is.
func (s *Store) get(ctx context.Context, name string, p []byte, offset int64) (n int, size int64, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.opt.Bucket, Key: s.key(name), Range: aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+int64(len(p))-1)),
	})
	if isStatus(err, http.StatusRequestedRangeNotSatisfiable) {
		return 0, 0, nil
	}
	if err := failed(ctx, "read "+name, err); err != nil {
		return 0, 0, err
	}
	defer out.Body.Close()
	size, ok := rangeOf(aws.ToString(out.ContentRange), offset, int64(len(p)))
	if !ok {
		return 0, 0, fmt.Errorf("%w: read %s: asked for %d bytes from %d, got %q", payload.ErrCorrupt, name, len(p), offset, aws.ToString(out.ContentRange))
	}
	want := p[:min(int64(len(p)), size-offset)]
	n, err = io.ReadFull(out.Body, want)
	if n == len(want) {
		return n, size, nil
	}
	if ctx.Err() != nil {
		return n, size, payload.Ended(ctx, "read "+name)
	}
	return n, size, errCut
}

// rangeOf reads a Content-Range, which has to be the one that was asked for, or as much of it
// as there is.
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
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.opt.Bucket, Key: s.key(name)})
	if err = failed(ctx, "delete "+name, err); errors.Is(err, payload.ErrNotFound) {
		return nil // S3 itself does not say so, others do
	}
	return err
}

// Size implements [payload.Store]. It reads a byte: HEAD has no body, in which the store says
// whether it is the object that is missing or all of the S3 bucket.
func (s *Store) Size(ctx context.Context, name string) (int64, error) {
	if err := payload.CheckName(name); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, payload.Ended(ctx, "size of "+name)
	}
	_, size, err := s.get(ctx, name, make([]byte, 1), 0)
	if err != nil && !errors.Is(err, errCut) {
		return 0, err
	}
	if size == 0 {
		return 0, fmt.Errorf("%w: %s has no bytes", payload.ErrCorrupt, name)
	}
	return size, nil
}

// List implements [payload.Store].
func (s *Store) List(ctx context.Context, prefix, after string, n int) ([]payload.Object, error) {
	if err := payload.CheckList(prefix, after, n); err != nil {
		return nil, err
	}
	var page []payload.Object
	for {
		if ctx.Err() != nil {
			return nil, payload.Ended(ctx, "list "+prefix)
		}
		in := &s3.ListObjectsV2Input{Bucket: &s.opt.Bucket, Prefix: s.key(prefix), MaxKeys: aws.Int32(int32(n - len(page)))}
		if after != "" {
			in.StartAfter = s.key(after)
		}
		out, err := s.client.ListObjectsV2(ctx, in)
		if err := failed(ctx, "list "+prefix, err); err != nil {
			return nil, err
		}
		for _, o := range out.Contents {
			name, ours := strings.CutPrefix(aws.ToString(o.Key), s.opt.Prefix)
			if !ours || !strings.HasPrefix(name, prefix) || name <= after {
				return nil, fmt.Errorf("%w: list %q after %q: got %q", payload.ErrCorrupt, prefix, after, aws.ToString(o.Key))
			}
			after = name
			if payload.CheckName(name) == nil && len(page) < n {
				page = append(page, payload.Object{Name: name, Size: aws.ToInt64(o.Size)})
			}
		}
		if !aws.ToBool(out.IsTruncated) || len(page) == n {
			return page, nil
		}
		if len(out.Contents) == 0 {
			return nil, fmt.Errorf("%w: list %q after %q: an empty page that is not the last", payload.ErrCorrupt, prefix, after)
		}
	}
}

// key is what the store knows a name by.
func (s *Store) key(name string) *string { return aws.String(s.opt.Prefix + name) }

// isStatus says whether the store answered with a status of HTTP.
func isStatus(err error, status int) bool {
	var response *smithyhttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() == status
}
