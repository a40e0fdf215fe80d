package dap

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
)

// TaskID names a task; globally unique (section 4.2).
type TaskID [32]byte

// BatchID names a batch of a leader-selected task; unique in the task (section 5.2).
type BatchID [32]byte

// ReportID names a report and is its VDAF nonce (section 4.1). It belongs to one person's
// device and must not reach a log, so everything that prints or marshals it says
// "redacted"; only [ReportID.Base64] gives it away. (Package fmt calls no methods on
// unexported struct fields: do not print structs that hide one.)
type ReportID [16]byte

// text is base64url without padding that refuses stray bits and line breaks, so each id
// has one spelling.
var text = base64.RawURLEncoding.Strict()

// ParseTaskID reads the text form of [TaskID.Base64]; it accepts nothing else.
func ParseTaskID(s string) (id TaskID, err error) { return id, parseID(id[:], s, "task id") }

// ParseBatchID reads the text form of [BatchID.Base64]; it accepts nothing else.
func ParseBatchID(s string) (id BatchID, err error) { return id, parseID(id[:], s, "batch id") }

// ParseReportID reads the text form of [ReportID.Base64]; it accepts nothing else.
func ParseReportID(s string) (id ReportID, err error) { return id, parseID(id[:], s, "report id") }

// Base64 is the form that stands in paths and problem documents: base64url, unpadded.
func (id TaskID) Base64() string   { return text.EncodeToString(id[:]) }
func (id BatchID) Base64() string  { return text.EncodeToString(id[:]) }
func (id ReportID) Base64() string { return text.EncodeToString(id[:]) }

func (id TaskID) String() string  { return id.Base64() }
func (id BatchID) String() string { return id.Base64() }

func (id TaskID) MarshalText() ([]byte, error)   { return []byte(id.Base64()), nil }
func (id BatchID) MarshalText() ([]byte, error)  { return []byte(id.Base64()), nil }
func (id *TaskID) UnmarshalText(b []byte) error  { return parseID(id[:], string(b), "task id") }
func (id *BatchID) UnmarshalText(b []byte) error { return parseID(id[:], string(b), "batch id") }
func (id TaskID) LogValue() slog.Value           { return slog.StringValue(id.Base64()) }
func (id BatchID) LogValue() slog.Value          { return slog.StringValue(id.Base64()) }
func (ReportID) String() string                  { return redacted }
func (ReportID) Format(f fmt.State, _ rune)      { io.WriteString(f, redacted) }
func (ReportID) LogValue() slog.Value            { return slog.StringValue(redacted) }
func (ReportID) MarshalText() ([]byte, error)    { return []byte(redacted), nil }

const redacted = "redacted"

func parseID(dst []byte, s, what string) error {
	if len(s) == text.EncodedLen(len(dst)) {
		// Decode skips line breaks even when strict; one then leaves the id short.
		if n, err := text.Decode(dst, []byte(s)); err == nil && n == len(dst) {
			return nil
		}
	}
	clear(dst)
	return fmt.Errorf("%w: not a %s", ErrMalformed, what)
}

// MaxResourceID bounds, in characters, the ids that servers choose for aggregation jobs,
// collection jobs and aggregate shares. The draft gives no size; no one needs more than a
// 64-byte hash.
const MaxResourceID = 86

// CheckResourceID says whether s may be the id of an aggregation job, a collection job or
// an aggregate share: base64url, unpadded, of 1 to [MaxResourceID] characters. The ids
// are opaque: whoever did not choose one only hands it back.
func CheckResourceID(s string) error {
	if len(s) < 1 || len(s) > MaxResourceID {
		return fmt.Errorf("%w: not a resource id", ErrMalformed)
	}
	for _, c := range []byte(s) {
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("%w: not a resource id", ErrMalformed)
		}
	}
	return nil
}

// Checksum is the XOR of the SHA-256 of every report id in a batch, by which leader and
// helper compare the sets they aggregated (section 4.5.4.3). The zero value is the empty
// set. It finds accidents, not malice.
type Checksum [sha256.Size]byte

// Add adds one report; adding it again takes it out.
func (c *Checksum) Add(id ReportID) { c.Merge(sha256.Sum256(id[:])) }

// Merge adds all the reports of another set.
func (c *Checksum) Merge(o Checksum) { subtle.XORBytes(c[:], c[:], o[:]) }
