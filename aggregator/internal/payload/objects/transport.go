package objects

import (
	"errors"
	"io"
	"net/http"
)

// maxAnswer bounds answers that are not ranges of objects, in bytes: a page of 1,000 keys has
// some 300 KiB.
const maxAnswer = 4 << 20

// limited refuses answers that are larger than any that was asked for, which the SDK would
// read to their end.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err == nil && response.StatusCode != http.StatusPartialContent {
		response.Body = &limitedBody{response.Body, maxAnswer}
	}
	return response, err
}

var errLargeAnswer = errors.New("objects: the store's answer is too large")

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errLargeAnswer
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// body reads parts one after the other, as often as the SDK wants: for the signature, and for
// each attempt.
type body struct {
	parts [][]byte
	size  int64
	at    int64
}

func newBody(parts [][]byte) *body {
	b := &body{parts: parts}
	for _, part := range parts {
		b.size += int64(len(part))
	}
	return b
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (n int, err error) {
	skip := b.at
	for _, part := range b.parts {
		if skip >= int64(len(part)) {
			skip -= int64(len(part))
			continue
		}
		m := copy(p[n:], part[skip:])
		n, skip = n+m, 0
		if n == len(p) {
			break
		}
	}
	b.at += int64(n)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Seek implements [io.Seeker].
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("objects: seek before the beginning")
	}
	b.at = offset
	return offset, nil
}
