package edge

import (
	"context"
	"net/http"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// HandleAgreement routes the private resources by which leaders compare themselves with
// this helper: the message about all tasks of the token that the request bears, and one
// part of a task's ledger.
func (s *Server) HandleAgreement(book *agreement.Book, answer func(context.Context, []dap.TaskID, *agreement.Message) (*agreement.Message, error)) {
	s.handle("POST", "/"+peer.AgreementPath, "POST "+peer.AgreementPath, func(w http.ResponseWriter, r *http.Request) (*dap.TaskID, error) {
		borne := task.Borne(r)
		var ids []dap.TaskID
		// Opens one of the leader's tasks, where none was asked about in this life.
		if id, err := dap.ParseTaskID(r.Header.Get(peer.TaskHeader)); err == nil {
			if _, err := s.Tasks.Find(id); err != nil {
				return nil, err
			}
		}
		for _, t := range s.Tasks.Opened() {
			if borne(Peer(t)) {
				ids = append(ids, t.ID)
			}
		}
		if len(ids) == 0 {
			return nil, Unauthorized()
		}
		req := &Request{Request: r, W: w, srv: s}
		body, release, err := req.Body(peer.MediaAgreement, agreement.MaxMessage)
		defer release()
		if err != nil {
			return nil, err
		}
		in, err := agreement.ReadMessage(body)
		if err != nil {
			return nil, plain(http.StatusBadRequest, err.Error())
		}
		// One that another replica has just taken is not to be missed: uploads would wait.
		if slices.ContainsFunc(in.Entries, func(e agreement.Entry) bool { return !s.Tasks.Has(e.Task) }) {
			if err := s.Follow(r.Context()); err != nil {
				return nil, err
			}
		}
		opened := len(ids)
		for i := range in.Entries { // tasks rise, so none is there twice
			id := in.Entries[i].Task
			t, err := s.Tasks.Find(id)
			if err != nil {
				return nil, err
			}
			if t != nil && borne(Peer(t)) && !slices.Contains(ids[:opened], id) {
				ids = append(ids, id)
			}
		}
		out, err := answer(r.Context(), ids, in)
		if err != nil {
			return nil, err
		}
		b, err := out.Append(nil)
		if err != nil {
			return nil, err
		}
		return nil, req.Reply(http.StatusOK, peer.MediaAgreement, b)
	})
	s.Handle("POST", peer.LedgerPath, Peer, func(r *Request) error {
		body, release, err := r.Body(peer.MediaLedger, agreement.MaxMessage)
		defer release()
		if err != nil {
			return err
		}
		in, err := agreement.ReadPart(body)
		if err != nil {
			return plain(http.StatusBadRequest, err.Error())
		}
		out, err := book.Part(r.Context(), r.Task.ID, in)
		if err != nil {
			return err
		}
		b, err := out.Append(nil)
		if err != nil {
			return err
		}
		return r.Reply(http.StatusOK, peer.MediaLedger, b)
	})
}

// Fenced is h for requests whose leader holds the same of the task as we do, or of which
// nothing is known; the others get 412 before anything of them is read.
func Fenced(book *agreement.Book, h Handler) Handler {
	return func(r *Request) error {
		if !book.Pass(r.Task.ID, r.Header.Values(agreement.FenceHeader)) {
			return plain(http.StatusPreconditionFailed, "leader and helper do not hold the same of this task: starling why, at both, says what")
		}
		return h(r)
	}
}

// Stopped answers 503 to what a task does not do now; see package permit.
func Stopped(err error, what string) error {
	if err == nil {
		return nil
	}
	e := Later(what+"; come again, nothing is lost", retryStopped)
	e.cause = err
	return e
}
