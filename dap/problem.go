package dap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ProblemMedia is the Content-Type of a problem document (RFC 9457).
const ProblemMedia = "application/problem+json"

// ProblemType is one of the draft's error types (section 3.6), taskprov's, or the URI of a
// foreign one, or empty for none ("about:blank"): what a failed authentication has.
type ProblemType string

const (
	ProblemInvalidMessage              ProblemType = "invalidMessage"
	ProblemUnrecognizedTask            ProblemType = "unrecognizedTask"
	ProblemUnrecognizedAggregationJob  ProblemType = "unrecognizedAggregationJob"
	ProblemBatchInvalid                ProblemType = "batchInvalid"
	ProblemInvalidBatchSize            ProblemType = "invalidBatchSize"
	ProblemInvalidAggregationParameter ProblemType = "invalidAggregationParameter"
	ProblemBatchMismatch               ProblemType = "batchMismatch"
	ProblemStepMismatch                ProblemType = "stepMismatch"
	ProblemBatchOverlap                ProblemType = "batchOverlap"
	ProblemUnsupportedExtension        ProblemType = "unsupportedExtension"
	ProblemInvalidExtension            ProblemType = "invalidExtension"
	// ProblemInvalidTask: an aggregator does not take part in the task that was advertised
	// (draft-ietf-ppm-dap-taskprov-04, section 2; package taskprov).
	ProblemInvalidTask ProblemType = "invalidTask"
)

// ProblemTypes are all the types of the draft, and the one that taskprov adds. No others
// may be minted in its URN namespace.
var ProblemTypes = []ProblemType{
	ProblemInvalidMessage, ProblemUnrecognizedTask, ProblemUnrecognizedAggregationJob, ProblemBatchInvalid,
	ProblemInvalidBatchSize, ProblemInvalidAggregationParameter, ProblemBatchMismatch, ProblemStepMismatch,
	ProblemBatchOverlap, ProblemUnsupportedExtension, ProblemInvalidExtension, ProblemInvalidTask,
}

const problemURN = "urn:ietf:params:ppm:dap:error:"

// URI is the type member of the document.
func (t ProblemType) URI() string {
	switch {
	case t == "":
		return "about:blank"
	case slices.Contains(ProblemTypes, t):
		return problemURN + string(t)
	}
	return string(t)
}

// Problem is a problem document, as the answer of a server and as the error of a client.
// Detail is for people, from a peer it is a stranger's text, and into it goes nothing
// secret: it crosses the wire.
type Problem struct {
	Type                  ProblemType
	TaskID                *TaskID // nil where the task is not known
	Detail                string
	UnsupportedExtensions []uint16 // with ProblemUnsupportedExtension
	Status                int      // HTTP status, 400..599; zero is 400
}

// HTTPStatus is Status, or 400 where none is set.
func (p Problem) HTTPStatus() int {
	if p.Status == 0 {
		return 400
	}
	return p.Status
}

func (p *Problem) Error() string {
	s := fmt.Sprintf("dap: problem %q (status %d)", p.Type.URI(), p.HTTPStatus())
	if p.Detail != "" {
		s += fmt.Sprintf(": %.200q", p.Detail)
	}
	return s
}

// Is makes errors.Is(err, &Problem{Type: t}) ask for the type alone.
func (p *Problem) Is(target error) bool {
	t, ok := target.(*Problem)
	return ok && t.Type == p.Type
}

// problemJSON is the document; Detail and the rest are left out where empty.
type problemJSON struct {
	Type                  string   `json:"type"`
	Status                int      `json:"status"`
	Detail                string   `json:"detail,omitempty"`
	TaskID                *TaskID  `json:"taskid,omitempty"`
	UnsupportedExtensions []uint16 `json:"unsupported_extensions,omitempty"`
}

// MarshalJSON is the document. It refuses a status that is no error and a type that is
// neither the draft's nor a URI outside its namespace.
func (p Problem) MarshalJSON() ([]byte, error) {
	uri := p.Type.URI()
	if own := strings.HasPrefix(uri, problemURN); own != slices.Contains(ProblemTypes, p.Type) || !strings.Contains(uri, ":") {
		return nil, fmt.Errorf("dap: %q is no problem type", p.Type)
	}
	if s := p.HTTPStatus(); s < 400 || s > 599 {
		return nil, fmt.Errorf("dap: a problem cannot have status %d", s)
	}
	return json.Marshal(problemJSON{uri, p.HTTPStatus(), p.Detail, p.TaskID, p.UnsupportedExtensions})
}

// UnmarshalJSON reads a document of any server: members that are unknown or of the wrong
// type are passed over (RFC 9457 section 3.1), unknown types of the draft's namespace are
// kept as URIs.
func (p *Problem) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return fmt.Errorf("%w: problem document: %w", ErrMalformed, err)
	}
	var (
		uri  string
		task TaskID
		q    Problem
	)
	member(members, "type", &uri)
	if short, ok := strings.CutPrefix(uri, problemURN); ok && slices.Contains(ProblemTypes, ProblemType(short)) {
		q.Type = ProblemType(short)
	} else if uri != "about:blank" {
		q.Type = ProblemType(uri)
	}
	if member(members, "taskid", &task) {
		q.TaskID = &task
	}
	member(members, "detail", &q.Detail)
	member(members, "unsupported_extensions", &q.UnsupportedExtensions)
	if !member(members, "status", &q.Status) || q.Status < 400 || q.Status > 599 {
		q.Status = 0
	}
	*p = q
	return nil
}

// member decodes one member into v, and leaves v alone if it is missing or of another type.
func member[T any](members map[string]json.RawMessage, key string, v *T) bool {
	var got *T
	if err := json.Unmarshal(members[key], &got); err != nil || got == nil {
		return false
	}
	*v = *got
	return true
}
