package dap

import (
	"fmt"
	"io"
	"log/slog"
)

// ReportMetadata is what both aggregators, and whoever forwards a report, see of it
// (section 4.4.2).
type ReportMetadata struct {
	ID               ReportID
	Time             Time // of the measurement, in the task's precision
	PublicExtensions Extensions
}

func (m *ReportMetadata) code(c *coder) {
	c.Fixed(m.ID[:], "report id")
	c.Uint64((*uint64)(&m.Time), "report time")
	m.PublicExtensions.code(c)
}

// Append appends the encoding.
func (m ReportMetadata) Append(dst []byte) ([]byte, error) { return encode(dst, &m) }

// Report is what a client uploads: one measurement, shared and sealed.
type Report struct {
	Metadata    ReportMetadata
	PublicShare []byte
	Leader      HpkeCiphertext
	Helper      HpkeCiphertext

	raw []byte
}

func (r *Report) code(c *coder) {
	c.Raw(&r.raw, func() {
		r.Metadata.code(c)
		c.Vec32(&r.PublicShare, 0, "public_share")
		r.Leader.code(c)
		r.Helper.code(c)
	})
}

// Append encodes the fields.
func (r *Report) Append(dst []byte) ([]byte, error) { return encode(dst, r) }

// Bytes are the bytes that the report was read from, an alias of the body: what a segment
// stores. Nil for one that was not read.
func (r *Report) Bytes() []byte { return r.raw }

// Size is the length of the encoding.
func (r *Report) Size() int {
	return headSize(&r.Metadata, r.PublicShare) + ciphertextSize(&r.Leader) + ciphertextSize(&r.Helper)
}

// ReadReport reads exactly one report; it aliases b.
func ReadReport(b []byte) (Report, error) { return decode[Report](b) }

// HelperShare is the part of the report that the leader sends to the helper, aliasing r.
func (r *Report) HelperShare() ReportShare {
	return ReportShare{r.Metadata, r.PublicShare, r.Helper}
}

// LeaderShare is the part of the report that the leader opens itself, aliasing r.
func (r *Report) LeaderShare() ReportShare {
	return ReportShare{r.Metadata, r.PublicShare, r.Leader}
}

// ReportShare is one aggregator's part of a report (section 4.5.3.1).
type ReportShare struct {
	Metadata    ReportMetadata
	PublicShare []byte
	Ciphertext  HpkeCiphertext
}

func (s *ReportShare) code(c *coder) {
	s.Metadata.code(c)
	c.Vec32(&s.PublicShare, 0, "public_share")
	s.Ciphertext.code(c)
}

// Append appends the encoding.
func (s *ReportShare) Append(dst []byte) ([]byte, error) { return encode(dst, s) }

// PlaintextInputShare is what a client seals to one aggregator.
type PlaintextInputShare struct {
	PrivateExtensions Extensions // together with the public ones, no type may stand twice
	Payload           []byte     // the VDAF's input share
}

func (p *PlaintextInputShare) code(c *coder) {
	p.PrivateExtensions.code(c)
	c.Vec32(&p.Payload, 1, "input share")
}

// Append appends the encoding.
func (p PlaintextInputShare) Append(dst []byte) ([]byte, error) { return encode(dst, &p) }

// ReadPlaintextInputShare reads exactly one; it aliases b. A failure is the report error
// [InvalidMessage].
func ReadPlaintextInputShare(b []byte) (PlaintextInputShare, error) {
	return decode[PlaintextInputShare](b)
}

// Format and LogValue keep the share out of every print and log.
func (p PlaintextInputShare) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }
func (p PlaintextInputShare) LogValue() slog.Value       { return slog.StringValue(redacted) }

func headSize(m *ReportMetadata, publicShare []byte) int {
	return len(m.ID) + 8 + 2 + len(m.PublicExtensions.b) + 4 + len(publicShare)
}

func ciphertextSize(m *HpkeCiphertext) int { return 1 + 2 + len(m.Enc) + 4 + len(m.Payload) }
