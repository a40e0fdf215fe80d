package objects

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/starling-agg/starling/aggregator/internal/payload"
)

// Codes of S3's errors, and of stores that speak S3.
var (
	codesGone   = []string{"NoSuchKey"}
	codesFull   = []string{"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "InsufficientCapacity"}
	codesDenied = []string{
		"AccessDenied", "AllAccessDisabled", "AccountProblem", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "InvalidSecurity",
		"NotSignedUp", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired",
	}
	// two puts of one name at once, of which the store cannot tell yet which was first
	codesConflict = []string{"ConditionalRequestConflict", "OperationAborted"}
	// credentials that were good yesterday
	codesRotated = []string{"AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"}
)

// failed says what an error of the SDK is for the caller; the store's own message is in it.
func failed(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return payload.Ended(ctx, what)
	}
	code := ""
	if api := smithy.APIError(nil); errors.As(err, &api) {
		code = api.ErrorCode()
	}
	kind := payload.ErrUnavailable
	switch {
	case isStatus(err, http.StatusPreconditionFailed):
		kind = payload.ErrExists
	case slices.Contains(codesGone, code):
		kind = payload.ErrNotFound
	case slices.Contains(codesFull, code) || isStatus(err, http.StatusInsufficientStorage):
		kind = payload.ErrFull
	case slices.Contains(codesDenied, code) || isStatus(err, http.StatusForbidden) || isStatus(err, http.StatusUnauthorized):
		kind = payload.ErrDenied
	}
	return fmt.Errorf("%w: %s: %w", kind, what, err)
}

// retryer makes requests again that the store did not answer, or asked to have again.
func retryer(opt *Options, creds *credentials) aws.Retryer {
	pause := *opt
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = opt.Attempts
		o.RateLimiter = ratelimit.None // a bound of attempts for each request is enough
		o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) { return pause.pause(attempt), nil })
		o.Retryables = append(o.Retryables, retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			api := smithy.APIError(nil)
			switch {
			case isStatus(err, http.StatusTooManyRequests):
				return aws.TrueTernary
			case !errors.As(err, &api):
				return aws.UnknownTernary
			case slices.Contains(codesConflict, api.ErrorCode()):
				return aws.TrueTernary
			case slices.Contains(codesRotated, api.ErrorCode()) && creds.changed():
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		}))
	})
}

// pause is how long to wait after an attempt, from 1: at random, so that replicas that failed
// together do not come back together.
func (o *Options) pause(attempt int) time.Duration {
	longest := o.Pause << min(attempt, 5)
	var random [8]byte
	rand.Read(random[:]) // never fails
	return longest/4 + time.Duration(binary.BigEndian.Uint64(random[:])%uint64(max(1, 3*longest/4)))
}

// wait waits for the pause after an attempt.
func (o *Options) wait(ctx context.Context, attempt int) error {
	timer := time.NewTimer(o.pause(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
