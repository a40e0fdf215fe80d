package dap

import "iter"

// AggregationJobInitReq opens an aggregation job at the helper (section 4.5.3.1).
type AggregationJobInitReq struct {
	VerificationKeyID uint8 // which of the pre-agreed keys; see Version.JudgesKey
	AggParam          []byte
	Extensions        Extensions // leader-selected tasks: see LeaderSelectedBatch

	// Inits is the encoded run of VerifyInit that ends the message; read it with
	// VerifyInits. The text's formula for its length forgets the byte of the key id; the
	// run simply ends with the body.
	Inits []byte
}

func (r *AggregationJobInitReq) code(c *coder) {
	c.Uint8(&r.VerificationKeyID, "verification_key_id")
	c.Vec32(&r.AggParam, 0, "agg_param")
	c.dialect.jobBatch(c, &r.Extensions)
	c.dialect.rest(c, &r.Inits)
}

// AppendAggregationJobInitReq appends the request.
func (d Dialect) AppendAggregationJobInitReq(dst []byte, r *AggregationJobInitReq) ([]byte, error) {
	head := 1 + 4 + len(r.AggParam) + d.jobBatchSize(r.Extensions) + d.restSize()
	return encodeIn(d, grow(dst, head+len(r.Inits)), r)
}

// ReadAggregationJobInitReq reads what stands before the reports; VerifyInits reads
// those. It aliases b.
func (d Dialect) ReadAggregationJobInitReq(b []byte) (AggregationJobInitReq, error) {
	return decodeIn[AggregationJobInitReq](d, b)
}

// VerifyInits reads the job's reports, aliasing Inits. The sequence ends after its first
// error, which refuses the job (invalidMessage). That ids are distinct is for the caller
// to check.
func (r *AggregationJobInitReq) VerifyInits(l *Limits) iter.Seq2[VerifyInit, error] {
	l = l.or()
	return run[VerifyInit](Dialect{}, r.Inits, l.MaxReports, l.verifyInit)
}

// LeaderSelectedBatch is the batch that the job's reports go to (section 5.2.2), and
// false if the extension is missing or malformed, which is invalidMessage in a
// leader-selected task.
func (r *AggregationJobInitReq) LeaderSelectedBatch() (id BatchID, ok bool) {
	data, ok := r.Extensions.Get(ExtLeaderSelectedBatchID)
	if !ok || len(data) != len(id) {
		return id, false
	}
	return BatchID(data), true
}

// WithLeaderSelectedBatch is e with the leader_selected_batch_id extension at its end.
func (e Extensions) WithLeaderSelectedBatch(id BatchID) (Extensions, error) {
	return e.With(ExtLeaderSelectedBatchID, id[:])
}

// VerifyInit is one report of a new aggregation job: the helper's share and the leader's
// first ping-pong message.
type VerifyInit struct {
	ReportShare
	Payload []byte
}

func (v *VerifyInit) code(c *coder) {
	v.ReportShare.code(c)
	c.Vec32(&v.Payload, 1, "payload")
}

// Append appends the encoding: build Inits with it.
func (v *VerifyInit) Append(dst []byte) ([]byte, error) { return encode(dst, v) }

// Size is the length of the encoding.
func (v *VerifyInit) Size() int {
	return headSize(&v.Metadata, v.PublicShare) + ciphertextSize(&v.Ciphertext) + 4 + len(v.Payload)
}

// AppendVerifyInits appends the run of a whole job with room made once.
func AppendVerifyInits(dst []byte, inits []VerifyInit) ([]byte, error) {
	n := 0
	for i := range inits {
		n += inits[i].Size()
	}
	return appendAll[VerifyInit](Dialect{}, dst, inits, n)
}

// VerifyRespType says what follows in a [VerifyResp]. It is not the type of a ping-pong
// message: the helper's only answer to a good Prio3 report is Continue, around a
// ping-pong "finish"; Finish is for rounds in which the helper has nothing left to send.
type VerifyRespType uint8

const (
	Continue VerifyRespType = 0 // Payload
	Finish   VerifyRespType = 1
	Reject   VerifyRespType = 2 // Error
)

func (t VerifyRespType) String() string {
	return name([]string{"continue", "finish", "reject"}, int(t), "verify response")
}

// VerifyResp is the helper's answer for one report (section 4.5.3.2). Of Payload and
// Error, what the type does not name is zero.
type VerifyResp struct {
	ID      ReportID
	Type    VerifyRespType
	Payload []byte
	Error   ReportError
}

func (v *VerifyResp) code(c *coder) {
	c.Fixed(v.ID[:], "report id")
	c.Uint8((*uint8)(&v.Type), "verify_resp_type")
	switch v.Type {
	case Continue:
		c.Vec32(&v.Payload, 1, "payload")
	case Finish:
	case Reject:
		v.Error.code(c)
	default:
		c.Fail("unknown verify_resp_type")
	}
	c.Check((v.Type == Continue || len(v.Payload) == 0) && (v.Type == Reject || v.Error == 0),
		"verify_resp has a field of another type")
}

// Size is the length of the encoding.
func (v *VerifyResp) Size() int {
	return len(v.ID) + 1 + [...]int{Continue: 4 + len(v.Payload), Finish: 0, Reject: 1}[min(v.Type, Reject)]
}

// VerifyResps reads an AggregationJobResp: answers up to the end of the body, which they
// alias. That they have the ids of the request in its order is for the leader to check;
// if not, it abandons the job.
func (d Dialect) VerifyResps(body []byte, l *Limits) iter.Seq2[VerifyResp, error] {
	l = l.or()
	all, err := decodeIn[verifyResps](d, body)
	if err != nil {
		return func(yield func(VerifyResp, error) bool) { yield(VerifyResp{}, err) }
	}
	return run[VerifyResp](d, all.items, l.MaxReports, func(v *VerifyResp) error { return l.payload(v.Payload) })
}

// AppendVerifyResps appends an AggregationJobResp with room made once.
func (d Dialect) AppendVerifyResps(dst []byte, resps []VerifyResp) ([]byte, error) {
	n := 0
	for i := range resps {
		n += resps[i].Size()
	}
	out, err := d.appendRestSize(grow(dst, d.restSize()+n), n)
	if err != nil {
		return dst, err
	}
	if out, err = appendAll[VerifyResp](d, out, resps, n); err != nil {
		return dst, err
	}
	return out, nil
}

// verifyResps is what an AggregationJobResp is before its answers are read.
type verifyResps struct{ items []byte }

func (v *verifyResps) code(c *coder) { c.dialect.rest(c, &v.items) }

// AggregationJobContinueReq takes an aggregation job one step further (section 4.5.4.1).
// Steps count from 1; 0 is the init request, and refused here as invalidMessage. Reports
// of the last step that are missing were dropped by the leader.
type AggregationJobContinueReq struct {
	Step uint16

	// Continues is the encoded run of VerifyContinue that ends the message; read it with
	// VerifyContinues.
	Continues []byte
}

func (r *AggregationJobContinueReq) code(c *coder) {
	c.Uint16(&r.Step, "step")
	c.Check(r.Step > 0, "step is zero")
	c.dialect.rest(c, &r.Continues)
}

// AppendAggregationJobContinueReq appends the request.
func (d Dialect) AppendAggregationJobContinueReq(dst []byte, r *AggregationJobContinueReq) ([]byte, error) {
	return encodeIn(d, grow(dst, 2+d.restSize()+len(r.Continues)), r)
}

// ReadAggregationJobContinueReq reads the step; VerifyContinues reads the rest. It
// aliases b.
func (d Dialect) ReadAggregationJobContinueReq(b []byte) (AggregationJobContinueReq, error) {
	return decodeIn[AggregationJobContinueReq](d, b)
}

// VerifyContinues reads the job's remaining reports, aliasing Continues. The sequence
// ends after its first error.
func (r *AggregationJobContinueReq) VerifyContinues(l *Limits) iter.Seq2[VerifyContinue, error] {
	l = l.or()
	return run[VerifyContinue](Dialect{}, r.Continues, l.MaxReports, func(v *VerifyContinue) error { return l.payload(v.Payload) })
}

// VerifyContinue is the leader's next ping-pong message for one report.
type VerifyContinue struct {
	ID      ReportID
	Payload []byte
}

func (v *VerifyContinue) code(c *coder) {
	c.Fixed(v.ID[:], "report id")
	c.Vec32(&v.Payload, 1, "payload")
}

// Append appends the encoding: build Continues with it.
func (v *VerifyContinue) Append(dst []byte) ([]byte, error) { return encode(dst, v) }
