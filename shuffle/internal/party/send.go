package party

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/shuffle/onion"
)

// Waits between two attempts to hand a batch over.
const (
	firstWait   = time.Second
	longestWait = 5 * time.Minute
	maxAnswer   = 4 << 10
)

// handOver hands a batch to the next party until that has signed for it, or the time is over.
func (p *Party) handOver(ctx context.Context, r *round, over time.Time) {
	end := sent{round: r}
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := p.attempt(ctx, r)
		if err == nil {
			end.taken = true
			end.err = p.o.Failpoints.Hit(failAfterReceipt)
			break
		}
		if ctx.Err() != nil {
			break
		}
		if own := new(diskError); errors.As(err, &own) {
			end.err = err
			break
		}
		p.troubled(r, fmt.Errorf("the next party: %w", err))
		now := p.o.Clock.Now()
		if !now.Before(over) {
			break
		}
		timer := p.o.Clock.NewTimer(min(wait, over.Sub(now)))
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
	select {
	case p.done <- end:
	case <-ctx.Done():
	}
}

// diskError is the own disk's, not the next party's.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// attempt announces a batch, sends the pieces that are wanted, and returns nil once the next
// party has signed for all of it.
func (p *Party) attempt(ctx context.Context, r *round) error {
	x := r.shuffle
	url := strings.TrimRight(x.Next.URL, "/") + "/" + onion.BatchPath(x.Recipe, r.number)
	f, err := r.fs.Open(outFile)
	if err != nil {
		return &diskError{err}
	}
	defer f.Close()
	size := x.Shape(r.number).Record(after(p.o.Role))
	per := uint64(max(1, p.o.Limits.Piece/size))
	records := r.out.Records()
	progress, err := p.post(ctx, url, onion.ManifestMedia, x.Next.Token, r.manifest)
	for err == nil && progress.Receipt == nil {
		if progress.Have >= records {
			return errors.New("it has all records and does not sign for them")
		}
		b := make([]byte, min(per, records-progress.Have)*uint64(size))
		if err := readAt(f, b, int64(progress.Have)*int64(size)); err != nil {
			return &diskError{err}
		}
		had := progress.Have
		progress, err = p.post(ctx, url+"/"+strconv.FormatUint(had, 10), onion.RecordsMedia, x.Next.Token, b)
		if err == nil && progress.Receipt == nil && progress.Have <= had {
			return errors.New("it takes pieces and has no more than before")
		}
	}
	if err != nil {
		return err
	}
	return onion.OpenReceipt(progress.Receipt, &x.Shuffle.Shuffle, after(p.o.Role), r.number, r.manifest)
}

// post makes one request. A refusal of the next party is a *[RefusedError].
func (p *Party) post(ctx context.Context, url, media, token string, b []byte) (progress Progress, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := p.o.Clock.NewTimer(p.o.Limits.AnswerTimeout)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return progress, err
	}
	q.Header = http.Header{"Content-Type": {media}, "User-Agent": nil, "Authorization": {"Bearer " + token}}
	resp, err := p.o.Transport.RoundTrip(q)
	if err != nil {
		return progress, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return progress, err
	}
	if resp.StatusCode != http.StatusOK {
		var problem Problem
		if json.Unmarshal(answer, &problem) == nil {
			if word, ok := strings.CutPrefix(problem.Type, onion.ProblemPrefix); ok && reasonOf(word) != nil {
				return progress, &RefusedError{word}
			}
		}
		return progress, fmt.Errorf("status %d", resp.StatusCode)
	}
	return progress, json.Unmarshal(answer, &progress)
}

// A RefusedError is the next party's refusal; it matches the error that the party had
// (errors.Is).
type RefusedError struct{ Word string }

func (e *RefusedError) Error() string { return "refused: " + e.Word }

// Unwrap is the error that the word stands for.
func (e *RefusedError) Unwrap() error { return reasonOf(e.Word) }
