package dap

import "iter"

// Reports reads an UploadRequest (section 4.4.2): reports up to the end of the body. They
// alias it; nothing is copied. The sequence ends after its first error ([ErrMalformed],
// [ErrLimit]), which refuses the whole request (invalidMessage), so gather all before
// acting on any. An unknown extension or HPKE config is no such error: it refuses one
// report.
func Reports(body []byte, l *Limits) iter.Seq2[Report, error] {
	l = l.or()
	return run[Report](Dialect{}, body, l.MaxReports, l.report)
}

// AppendUploadRequest appends an UploadRequest with room made once.
func AppendUploadRequest(dst []byte, reports []Report) ([]byte, error) {
	n := 0
	for i := range reports {
		n += reports[i].Size()
	}
	return appendAll[Report](Dialect{}, dst, reports, n)
}

// ReportUploadStatus is the refusal of one uploaded report.
type ReportUploadStatus struct {
	ID    ReportID
	Error ReportError
}

func (s *ReportUploadStatus) code(c *coder) {
	c.Fixed(s.ID[:], "report id")
	s.Error.code(c)
}

const uploadStatusSize = 17

// AppendUploadErrors appends an UploadErrors message: the refused reports only, in the
// order of the request, under a success status. If none was refused the body is empty,
// and has no media type.
func (d Dialect) AppendUploadErrors(dst []byte, refused []ReportUploadStatus) ([]byte, error) {
	return appendAll[ReportUploadStatus](d, dst, refused, uploadStatusSize*len(refused))
}

// UploadErrors reads an UploadErrors message; at most l.MaxReports.
func (d Dialect) UploadErrors(body []byte, l *Limits) iter.Seq2[ReportUploadStatus, error] {
	return run[ReportUploadStatus](d, body, l.or().MaxReports, nil)
}

// appendAll appends messages one after another, whose encodings take n bytes together.
func appendAll[T any, P message[T]](d Dialect, dst []byte, all []T, n int) ([]byte, error) {
	c := writer(d, grow(dst, n))
	for i := range all {
		P(&all[i]).code(&c)
	}
	if err := c.Err(); err != nil {
		return dst, err
	}
	return c.Bytes(), nil
}

// grow returns dst with room for exactly n more bytes: bodies live long enough that slack
// would count.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, len(dst)+n), dst...)
}
