package ohttp

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Errors of binary HTTP messages.
var (
	// ErrMessage: not a valid binary HTTP message.
	ErrMessage = errors.New("ohttp: malformed binary HTTP message")
	// ErrLimit: above the reader's [MessageLimits].
	ErrLimit = errors.New("ohttp: binary HTTP message above the limits")
)

// A Field is one header or trailer field. Its name is in lower case.
type Field struct{ Name, Value string }

// A Request is an HTTP request as binary HTTP carries it (RFC 9292).
type Request struct {
	Method    string
	Scheme    string
	Authority string // host and port; may be empty if Header has host
	Path      string // path and query
	Header    []Field
	Content   []byte
	Trailer   []Field
}

// A Response is a final HTTP response as binary HTTP carries it.
type Response struct {
	Status  int // 200 to 599
	Header  []Field
	Content []byte
	Trailer []Field
}

// MessageLimits bound what a message may make its reader hold. The zero fields of limits
// take the defaults.
type MessageLimits struct {
	Control int // bytes of method, scheme, authority and path together; default 4 KiB
	Fields  int // bytes of all names and values; default 16 KiB
	Lines   int // number of fields; default 64
	Interim int // informational responses, which are read and dropped; default 8
}

func (l MessageLimits) withDefaults() MessageLimits {
	for _, f := range []struct {
		n    *int
		want int
	}{{&l.Control, 4 << 10}, {&l.Fields, 16 << 10}, {&l.Lines, 64}, {&l.Interim, 8}} {
		if *f.n == 0 {
			*f.n = f.want
		}
	}
	return l
}

// Framing indicators (RFC 9292 section 3.3).
const (
	knownRequest          = 0
	knownResponse         = 1
	indeterminateRequest  = 2
	indeterminateResponse = 3
)

// Append appends the known-length encoding (RFC 9292 section 3.1) with all its lengths
// written and the shortest form of each. It fails with [ErrMessage] if the request could
// not be read back.
func (m *Request) Append(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, err
	}
	dst = appendVarint(dst, knownRequest)
	for _, s := range []string{m.Method, m.Scheme, m.Authority, m.Path} {
		dst = appendString(dst, s)
	}
	return appendRest(dst, m.Header, m.Content, m.Trailer)
}

// Append appends the known-length encoding, as [Request.Append] does.
func (m *Response) Append(dst []byte) ([]byte, error) {
	if m.Status < 200 || m.Status > 599 {
		return dst, malformed("status %d", m.Status)
	}
	dst = appendVarint(dst, knownResponse)
	dst = appendVarint(dst, uint64(m.Status))
	return appendRest(dst, m.Header, m.Content, m.Trailer)
}

func appendRest(dst []byte, header []Field, content []byte, trailer []Field) ([]byte, error) {
	start := len(dst)
	dst, err := appendFields(dst, header)
	if err != nil {
		return dst[:start], err
	}
	dst = append(appendVarint(dst, uint64(len(content))), content...)
	if dst, err = appendFields(dst, trailer); err != nil {
		return dst[:start], err
	}
	return dst, nil
}

func appendFields(dst []byte, fields []Field) ([]byte, error) {
	n := 0
	for _, f := range fields {
		if err := f.check(); err != nil {
			return dst, err
		}
		n += varintLen(uint64(len(f.Name))) + len(f.Name) + varintLen(uint64(len(f.Value))) + len(f.Value)
	}
	dst = appendVarint(dst, uint64(n))
	for _, f := range fields {
		dst = appendString(appendString(dst, f.Name), f.Value)
	}
	return dst, nil
}

// ReadRequest reads a request in either framing (RFC 9292 section 3), with or without
// padding, cut short where the format allows that. Content aliases b where it is in one
// piece. It fails with [ErrMessage] or [ErrLimit]; so does everything that the format can
// say and a report's request has no use for: pseudo-fields and fields about the
// connection.
func ReadRequest(b []byte, l MessageLimits) (*Request, error) {
	r := &reader{in: b, limits: l.withDefaults()}
	framing := r.varint()
	if r.err == nil && framing != knownRequest && framing != indeterminateRequest {
		return nil, malformed("framing indicator %d in a request", framing)
	}
	m := &Request{Method: r.control(), Scheme: r.control(), Authority: r.control(), Path: r.control()}
	if r.err == nil {
		r.err = m.check()
	}
	m.Header, m.Content, m.Trailer = r.rest(framing == knownRequest)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// ReadResponse reads a response as [ReadRequest] reads a request. Informational responses
// before it are dropped.
func ReadResponse(b []byte, l MessageLimits) (*Response, error) {
	r := &reader{in: b, limits: l.withDefaults()}
	framing := r.varint()
	if r.err == nil && framing != knownResponse && framing != indeterminateResponse {
		return nil, malformed("framing indicator %d in a response", framing)
	}
	m := &Response{}
	for interim := 0; ; interim++ {
		status := r.varint()
		if r.err != nil {
			return nil, r.err
		}
		if status >= 200 && status <= 599 {
			m.Status = int(status)
			break
		}
		if status < 100 || status > 599 {
			return nil, malformed("status %d", status)
		}
		if interim == r.limits.Interim {
			return nil, fmt.Errorf("%w: more than %d informational responses", ErrLimit, interim)
		}
		if len(r.in) == 0 {
			return nil, malformed("an informational response alone")
		}
		r.fields(framing == knownResponse)
	}
	m.Header, m.Content, m.Trailer = r.rest(framing == knownResponse)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// reader reads from in until its first error, after which it returns zero values.
type reader struct {
	in            []byte
	limits        MessageLimits
	controlBytes  int
	bytes, number int // of fields so far
	err           error
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, args...))
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.in = nil
}

// varint reads a variable-length integer (RFC 9000 section 16). Longer forms than needed
// are valid there.
func (r *reader) varint() uint64 {
	if len(r.in) == 0 {
		r.fail(malformed("cut off"))
		return 0
	}
	n := 1 << (r.in[0] >> 6)
	if len(r.in) < n {
		r.fail(malformed("cut off in an integer"))
		return 0
	}
	v := uint64(r.in[0] & 0x3f)
	for _, b := range r.in[1:n] {
		v = v<<8 | uint64(b)
	}
	r.in = r.in[n:]
	return v
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.in)) {
		r.fail(malformed("cut off"))
		return nil
	}
	b := r.in[:n:n]
	r.in = r.in[n:]
	return b
}

func (r *reader) control() string {
	b := r.take(r.varint())
	if r.controlBytes += len(b); r.controlBytes > r.limits.Control {
		r.fail(fmt.Errorf("%w: control data longer than %d bytes", ErrLimit, r.limits.Control))
		return ""
	}
	return string(b)
}

// zeros is what padding is compared with.
var zeros [1 << 10]byte

// rest reads all behind the control data. Missing parts at the end are empty; what
// follows them is padding, all zero.
func (r *reader) rest(known bool) (header []Field, content []byte, trailer []Field) {
	header = r.section(known)
	if len(r.in) > 0 {
		content = r.content(known)
	}
	trailer = r.section(known)
	for padding := r.in; len(padding) > 0; {
		n := min(len(padding), len(zeros))
		if !bytes.Equal(padding[:n], zeros[:n]) {
			r.fail(malformed("padding that is not zero"))
			break
		}
		padding = padding[n:]
	}
	return header, content, trailer
}

func (r *reader) section(known bool) []Field {
	if len(r.in) == 0 {
		return nil
	}
	return r.fields(known)
}

func (r *reader) fields(known bool) (fields []Field) {
	if known {
		whole := r.take(r.varint())
		after := r.in
		r.in = whole
		for len(r.in) > 0 && r.err == nil {
			fields = r.line(fields, r.varint())
		}
		if r.err == nil {
			r.in = after
		}
		return fields
	}
	for r.err == nil {
		n := r.varint()
		if n == 0 {
			break
		}
		fields = r.line(fields, n)
	}
	return fields
}

// line reads a field line whose name has n bytes.
func (r *reader) line(fields []Field, n uint64) []Field {
	f := Field{Name: string(r.take(n)), Value: string(r.take(r.varint()))}
	if r.err != nil {
		return fields
	}
	if err := f.check(); err != nil {
		r.fail(err)
		return fields
	}
	r.number++
	if r.bytes += len(f.Name) + len(f.Value); r.bytes > r.limits.Fields || r.number > r.limits.Lines {
		r.fail(fmt.Errorf("%w: more than %d fields or %d bytes of them", ErrLimit, r.limits.Lines, r.limits.Fields))
		return fields
	}
	return append(fields, f)
}

func (r *reader) content(known bool) (content []byte) {
	if known {
		return r.take(r.varint())
	}
	for r.err == nil {
		n := r.varint()
		if n == 0 {
			break
		}
		chunk := r.take(n)
		if content == nil {
			content = chunk
		} else {
			content = append(content, chunk...) // the first append copies: chunk's capacity is its length
		}
	}
	return content
}

func (m *Request) check() error {
	switch {
	case !isToken(m.Method):
		return malformed("method")
	case !isScheme(m.Scheme):
		return malformed("scheme")
	case !isVisible(m.Authority):
		return malformed("authority")
	case !isVisible(m.Path) || m.Path == "":
		return malformed("path")
	}
	return nil
}

// connectionFields speak about one connection, and a binary message has none.
var connectionFields = map[string]bool{"connection": true, "keep-alive": true, "proxy-connection": true,
	"transfer-encoding": true, "upgrade": true, "te": true}

func (f Field) check() error {
	if !isToken(f.Name) || strings.ToLower(f.Name) != f.Name {
		return malformed("field name") // the name may be the sender's secret: it is not quoted
	}
	if connectionFields[f.Name] {
		return malformed("field %s", f.Name)
	}
	for i := range len(f.Value) {
		if c := f.Value[i]; c == 0 || c == '\r' || c == '\n' {
			return malformed("value of field %s", f.Name)
		}
	}
	if strings.Trim(f.Value, " \t") != f.Value {
		return malformed("value of field %s begins or ends with a space", f.Name)
	}
	return nil
}

// isToken is RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// isScheme is RFC 3986 section 3.1, in lower case.
func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// maxVarint is the largest integer that the format can hold.
const maxVarint = 1<<62 - 1

func varintLen(v uint64) int {
	switch {
	case v < 1<<6:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<30:
		return 4
	}
	return 8
}

func appendVarint(dst []byte, v uint64) []byte {
	if v > maxVarint {
		panic("ohttp: internal error: integer of more than 62 bits")
	}
	n := varintLen(v)
	for i := n - 1; i >= 0; i-- {
		b := byte(v >> (8 * i))
		if i == n-1 {
			b |= byte(bits.Len(uint(n))-1) << 6
		}
		dst = append(dst, b)
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(appendVarint(dst, uint64(len(s))), s...)
}
