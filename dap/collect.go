package dap

// Query is what the collector asks for (section 4.6.1): in time-interval tasks the
// reports of Interval, in leader-selected ones the next batch that the leader has;
// Interval is zero then. An interval that is not Valid decodes, because it is
// batchInvalid and not invalidMessage.
type Query struct {
	Mode     BatchMode
	Interval Interval
}

func (q *Query) code(c *coder) {
	q.Mode.code(c)
	c.Nested16("query config", func() {
		if q.Mode == TimeInterval {
			q.Interval.code(c)
		}
	})
	c.Check(q.Mode == TimeInterval || q.Interval == Interval{}, "query has a field of another batch mode")
}

// Append appends the encoding.
func (q Query) Append(dst []byte) ([]byte, error) { return encode(dst, &q) }

// BatchSelector is what the leader tells the helper to aggregate (section 4.6.4):
// Interval in time-interval tasks, BatchID in leader-selected ones; the other is zero.
type BatchSelector struct {
	Mode     BatchMode
	Interval Interval
	BatchID  BatchID
}

func (s *BatchSelector) code(c *coder) {
	s.Mode.code(c)
	c.Nested16("batch selector config", func() {
		if s.Mode == TimeInterval {
			s.Interval.code(c)
		} else {
			c.Fixed(s.BatchID[:], "batch id")
		}
	})
	c.Check((s.Mode == TimeInterval || s.Interval == Interval{}) && (s.Mode == LeaderSelected || s.BatchID == BatchID{}),
		"batch selector has a field of another batch mode")
}

// Append appends the encoding.
func (s BatchSelector) Append(dst []byte) ([]byte, error) { return encode(dst, &s) }

// Consistent says whether the selector is an answer to q: of its mode and, in
// time-interval tasks, of an interval within q's, which may be narrower. If not, or if an
// interval is not Valid, the answer is batchInvalid.
func (s BatchSelector) Consistent(q Query) bool {
	return s.Mode == q.Mode && (s.Mode == LeaderSelected || q.Interval.Covers(s.Interval))
}

// CollectionJobReq is what the collector sends to the leader, and the leader to the
// helper (section 4.6.1). It is part of the additional data of the aggregate shares, as
// the collector sent it: see Bytes.
//
// A leader-selected task asks with the same bytes for each batch, and the same bytes are
// the same job (section 3.2). So such a job lives until it is deleted, and only then the
// same request opens the next batch.
type CollectionJobReq struct {
	Query      Query
	AggParam   []byte
	Extensions Extensions // not increasing: invalidExtension here, unlike in aggregation jobs

	raw []byte
}

func (r *CollectionJobReq) code(c *coder) {
	c.Raw(&r.raw, func() {
		r.Query.code(c)
		c.Vec32(&r.AggParam, 0, "agg_param")
		r.Extensions.code(c)
	})
}

// Append encodes the fields.
func (r CollectionJobReq) Append(dst []byte) ([]byte, error) { return encode(dst, &r) }

// Bytes are the bytes that the request was read from, aliasing them. Nil for one that was
// not read.
func (r CollectionJobReq) Bytes() []byte { return r.raw }

// ReadCollectionJobReq reads exactly one; it aliases b.
func ReadCollectionJobReq(b []byte) (CollectionJobReq, error) { return decode[CollectionJobReq](b) }

// CollectionJobResp is the result of a collection job, still sealed to the collector.
type CollectionJobResp struct {
	ReportCount uint64
	Interval    Interval // the tight span of the reports' times, perhaps narrower than what was asked
	Leader      HpkeCiphertext
	Helper      HpkeCiphertext
}

func (r *CollectionJobResp) code(c *coder) {
	c.Uint64(&r.ReportCount, "report_count")
	r.Interval.code(c)
	r.Leader.code(c)
	r.Helper.code(c)
}

// Append appends the encoding.
func (r CollectionJobResp) Append(dst []byte) ([]byte, error) { return encode(dst, &r) }

// ReadCollectionJobResp reads exactly one; it aliases b.
func ReadCollectionJobResp(b []byte) (CollectionJobResp, error) { return decode[CollectionJobResp](b) }

// AggregateShareReq asks the helper for its aggregate share (section 4.6.4). For a batch
// that is collected, the same bytes are the same resource and any others are
// batchOverlap.
type AggregateShareReq struct {
	CollectionJobReq CollectionJobReq
	BatchSelector    BatchSelector
	ReportCount      uint64
	Checksum         Checksum
}

func (r *AggregateShareReq) code(c *coder) {
	r.CollectionJobReq.code(c)
	r.BatchSelector.code(c)
	c.Uint64(&r.ReportCount, "report_count")
	c.Fixed(r.Checksum[:], "checksum")
}

// Append appends the encoding.
func (r AggregateShareReq) Append(dst []byte) ([]byte, error) { return encode(dst, &r) }

// ReadAggregateShareReq reads exactly one; it aliases b.
func ReadAggregateShareReq(b []byte) (AggregateShareReq, error) { return decode[AggregateShareReq](b) }

// AggregateShare is the helper's share of a batch, sealed to the collector.
type AggregateShare struct{ Ciphertext HpkeCiphertext }

func (s *AggregateShare) code(c *coder) { s.Ciphertext.code(c) }

// Append appends the encoding.
func (s AggregateShare) Append(dst []byte) ([]byte, error) { return encode(dst, &s) }

// ReadAggregateShare reads exactly one; it aliases b.
func ReadAggregateShare(b []byte) (AggregateShare, error) { return decode[AggregateShare](b) }
