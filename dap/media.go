package dap

import (
	"errors"
	"fmt"
	"mime"
)

// ErrMediaType: a body is not labelled as the message that was expected.
var ErrMediaType = errors.New("dap: wrong media type")

// Media is the message parameter of the media type application/ppm-dap: which message a
// body is (section 9.1).
type Media string

const (
	MediaHpkeConfigList            Media = "hpke-config-list"
	MediaUploadReq                 Media = "upload-req"
	MediaUploadErrors              Media = "upload-errors"
	MediaAggregationJobInitReq     Media = "aggregation-job-init-req"
	MediaAggregationJobContinueReq Media = "aggregation-job-continue-req"
	MediaAggregationJobResp        Media = "aggregation-job-resp"
	MediaAggregateShareReq         Media = "aggregate-share-req"
	MediaAggregateShare            Media = "aggregate-share"
	MediaCollectionJobReq          Media = "collection-job-req"
	MediaCollectionJobResp         Media = "collection-job-resp"
)

const mediaType = "application/ppm-dap"

// ContentType is the value of the Content-Type header for a message.
func ContentType(m Media) string { return mediaType + ";message=" + string(m) }

// CheckContentType says whether a Content-Type header names the message. Case and spacing
// are free where HTTP leaves them free, and the draft's version hint may stand beside it
// with any value; other parameters are refused with [ErrMediaType].
func CheckContentType(header string, m Media) error {
	typ, params, err := mime.ParseMediaType(header)
	if err != nil || typ != mediaType || params["message"] != string(m) {
		return fmt.Errorf("%w: %.100q is not %s", ErrMediaType, header, ContentType(m))
	}
	for p := range params {
		if p != "message" && p != "version" {
			return fmt.Errorf("%w: %.100q has an unknown parameter", ErrMediaType, header)
		}
	}
	return nil
}
