// Package door takes in requests for relay and gateway: it reads bodies under limits of
// size, time and memory, and refuses from a closed set of reasons, each a problem
// document of one size, so that a refusal tells nothing but its reason.
package door

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Reason is why a request was refused; a closed set, fit for a metrics label.
type Reason string

// The reasons, and who gives them.
const (
	Path         Reason = "path"         // relay, gateway: not the one resource there is
	Method       Reason = "method"       // relay, gateway: not POST
	Media        Reason = "media"        // relay, gateway: not an encapsulated request
	Oversized    Reason = "oversized"    // relay, gateway: body above the limit
	Slow         Reason = "slow"         // relay, gateway: body not there in time
	Broken       Reason = "broken"       // relay, gateway: the body broke off
	Busy         Reason = "busy"         // relay, gateway: too much at one time; try again
	Rate         Reason = "rate"         // relay, gateway: too many requests at one time from one part of the network or relay
	Unreachable  Reason = "unreachable"  // relay: no usable answer from the gateway
	Unauthorized Reason = "unauthorized" // gateway: the request does not come from its relay
	Truncated    Reason = "truncated"    // gateway: too short to be an encapsulated request
	Key          Reason = "key"          // gateway: the key is unknown or no longer in use
	Sealed       Reason = "sealed"       // gateway: it does not open; it was altered, or sealed to another key or header
	Replayed     Reason = "replayed"     // gateway: seen before under this key
	Full         Reason = "full"         // gateway: it holds as much as it may, of all kinds; try again
	Spent        Reason = "spent"        // gateway: the key has opened as many requests as it may; the other one has not
	Message      Reason = "message"      // gateway, told to nobody: it opens, and is no binary HTTP request
	Target       Reason = "target"       // gateway, told to nobody: meant for somebody whom the gateway does not serve
	Upload       Reason = "upload"       // gateway, told to nobody: not an upload of one report
)

// All lists the reasons.
var All = []Reason{Path, Method, Media, Oversized, Slow, Broken, Busy, Rate, Unreachable, Unauthorized, Truncated, Key,
	Sealed, Replayed, Full, Spent, Message, Target, Upload}

// Labels are the reasons as metrics want them.
func Labels() []string {
	s := make([]string, len(All))
	for i, r := range All {
		s[i] = string(r)
	}
	return s
}

// Status is the HTTP status that goes with the reason.
func (r Reason) Status() int {
	switch r {
	case Path:
		return http.StatusNotFound
	case Method:
		return http.StatusMethodNotAllowed
	case Media:
		return http.StatusUnsupportedMediaType
	case Oversized:
		return http.StatusRequestEntityTooLarge
	case Slow:
		return http.StatusRequestTimeout
	case Busy, Full, Spent:
		return http.StatusServiceUnavailable
	case Rate:
		return http.StatusTooManyRequests
	case Unreachable:
		return http.StatusBadGateway
	case Unauthorized:
		return http.StatusUnauthorized
	case Replayed:
		return http.StatusConflict
	}
	return http.StatusBadRequest
}

// Problem types: the one that RFC 9458 section 5.3 registers, and what ours begin with.
const (
	KeyType    = "https://iana.org/assignments/http-problem-types#ohttp-key"
	typePrefix = "urn:starling:ohttp:"
)

// Type is the problem type (RFC 9457 section 3.1.1) that stands for the reason.
func (r Reason) Type() string {
	if r == Key {
		return KeyType
	}
	return typePrefix + string(r)
}

// OfType is the reason that a problem type stands for.
func OfType(t string) (Reason, bool) {
	for _, r := range All {
		if r.Type() == t {
			return r, true
		}
	}
	return "", false
}

// An Error is a refusal. It matches another Error of the same reason (errors.Is).
type Error struct{ Reason Reason }

func (e *Error) Error() string { return "refused: " + string(e.Reason) }

// Is compares reasons.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

const (
	// ProblemMedia is the media type of refusals.
	ProblemMedia = "application/problem+json"
	// ProblemSize is the length of every refusal's document, in bytes.
	ProblemSize = 256
)

// Document is the problem document of a refusal, [ProblemSize] bytes.
func Document(r Reason) []byte {
	b := fmt.Appendf(nil, `{"type":%q,"status":%d,"title":%q}`, r.Type(), r.Status(), "refused: "+string(r))
	return append(b, bytes.Repeat([]byte{' '}, ProblemSize-len(b))...)
}

// Refuse answers with a refusal.
func Refuse(w http.ResponseWriter, r Reason) {
	h := w.Header()
	h.Set("Content-Type", ProblemMedia)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(r.Status())
	w.Write(Document(r))
}

// Read finds the reason in an answer's body. The writer of the body is not trusted: only
// the closed set comes out.
func Read(body io.Reader) (Reason, bool) {
	b, err := io.ReadAll(io.LimitReader(body, 4*ProblemSize))
	if err != nil {
		return "", false
	}
	var document struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(b, &document) != nil {
		return "", false
	}
	return OfType(document.Type)
}
