package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// A Session is a collector with the file in which it remembers what it has asked.
type Session struct {
	config    *Collector
	collector *collector.Collector
	recipe    *recipe.Recipe
	file      stateFile
	state     sessionState
	view      recipe.Granularity // that is asked for; none where the recipe has no views
	fresh     bool               // there was no state, and nothing was heard of the leader's releases yet
	notice    string
}

// Open reads the collector's files. Its HTTP client, polling and progress come from o;
// Checked, Token, Key and Save are filled in.
func (c *Collector) Open(o collector.Options) (*Session, error) {
	s := &Session{config: c}
	var err error
	if o.Checked, o.Token, o.Key, err = c.Read(); err != nil {
		return nil, err
	}
	o.Framing = c.Framing
	if client, err := c.client(); err != nil {
		return nil, err
	} else if client != nil && o.HTTP == nil {
		o.HTTP = client
	}
	s.file.path = string(c.State)
	if err := s.file.read(&s.state); err != nil {
		return nil, err
	}
	public, err := dap.NewHpkeConfig(o.Key).Append(nil)
	if err != nil {
		return nil, fmt.Errorf("hpke_key: %w", err)
	}
	key := digestOf(public)
	s.notice, s.fresh = s.file.notice, s.file.now == ""
	if s.Pending() && s.state.Key != key {
		s.notice = fmt.Sprintf("hpke_key is another than the one with which the pending question of %s was asked: an answer that is sealed to that one does not open", c.State)
	}
	o.Save = func(job collector.State) error {
		if s.fresh && !job.Unsure {
			s.fresh = false
			if job.Releases != "" {
				s.notice = fmt.Sprintf("%s is new, and the leader has released results of this task before: if the file was lost, what this collector had seen of them is not known here", c.State)
			}
		}
		s.state.Job, s.state.Done, s.state.Key = &job, false, key
		return s.save()
	}
	if s.state.Job != nil {
		o.Releases = s.state.Job.Releases
	}
	if s.collector, err = collector.New(o); err != nil {
		return nil, err
	}
	s.recipe = s.collector.Recipe()
	if views := s.recipe.Granularities(); len(views) > 0 {
		s.view = views[0]
	}
	return s, nil
}

// AskView has the session ask for batches of a view, instead of rounds. It fails with a
// *[recipe.ViewError] where the recipe has none of that name, and with [ErrPending] where a
// question about another view is pending.
func (s *Session) AskView(name string) error {
	g, err := s.recipe.View(name)
	if err != nil {
		return err
	}
	if s.Pending() && s.state.View != name {
		return fmt.Errorf("%w, about the view %s", ErrPending, s.state.View)
	}
	s.view = g
	return nil
}

// Units is how many of the recipe's time units are asked for at once, or a multiple of it.
func (s *Session) Units() uint64 { return max(1, uint64(s.view.Rounds)) * s.recipe.BatchUnits() }

// next is the end of what was collected of the view.
func (s *Session) next() time.Time {
	if s.view.Rounds > 1 {
		return s.state.Views[s.view.Name]
	}
	return s.state.Next
}

// moved has what is asked for next in a view begin at a time.
func (s *Session) moved(view string, to time.Time) {
	if s.recipe.Views == nil || view == s.recipe.Views.Round {
		s.state.Next = to
		return
	}
	if s.state.Views == nil {
		s.state.Views = make(map[string]time.Time)
	}
	s.state.Views[view] = to
}

// A CollectorStanding is what a collector's state file says, without what it has asked
// for or got.
type CollectorStanding struct {
	Pending bool      `json:"pending"` // a result is asked for
	Done    bool      `json:"done"`    // the last one was read
	To      time.Time `json:"to,omitzero"`
	Next    time.Time `json:"next,omitzero"` // results are read up to then
}

// Standing reads the state file alone.
func (c *Collector) Standing() (*CollectorStanding, error) {
	var s sessionState
	if err := (&stateFile{path: string(c.State)}).read(&s); err != nil {
		return nil, err
	}
	return &CollectorStanding{Pending: s.Job != nil && !s.Done, Done: s.Done, To: s.To, Next: s.Next}, nil
}

// Recipe is what is collected; not to be changed.
func (s *Session) Recipe() *recipe.Recipe { return s.recipe }

// ErrNothingNew: everything up to now has been collected.
var ErrNothingNew = errors.New("everything up to now has been collected")

// Batches cuts a time into what is asked for one after the other: each round where the
// recipe's are released alone, and else the whole. It fails with an error that says what
// to ask for where the time is not of whole rounds.
func (s *Session) Batches(from, to time.Time) ([][2]time.Time, error) {
	query, err := s.collector.Interval(from, to)
	if err != nil {
		return nil, err
	}
	var cut []dap.Interval
	if s.view.Rounds > 0 {
		cut, err = s.recipe.BatchesOf(s.view, query.Interval)
	} else {
		cut, err = s.recipe.Batches(query.Interval)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", collector.ErrQuery, err)
	}
	list := make([][2]time.Time, len(cut))
	for i, b := range cut {
		end, _ := b.End()
		var err1, err2 error
		list[i][0], err1 = s.recipe.TimePrecision.Begin(b.Start)
		list[i][1], err2 = s.recipe.TimePrecision.Begin(end)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Interval is what Collect asks for by default in a time-interval recipe: from the end of
// the last interval collected, or the beginning of the recipe's window, up to the end of
// the last round that is over. The one that runs is asked for too where it and its grace
// end within patience, or where no other is left. Of a wider view it is whole spans, and
// where nothing of it was collected and the recipe has no window the last one that is over.
func (s *Session) Interval(now time.Time, patience time.Duration) (from, to time.Time, err error) {
	w, bounded := s.recipe.Window.(recipe.Between)
	units := dap.Time(s.Units())
	if from = s.next(); from.IsZero() {
		if !bounded && s.view.Rounds > 1 {
			return s.lastSpan(now)
		}
		if !bounded {
			return from, to, errors.New("the recipe has no window, and nothing of it was collected yet: say from when to when")
		}
		if from, err = s.recipe.TimePrecision.Begin(w.Start); err != nil {
			return from, to, err
		}
	}
	unit, err := s.recipe.TimePrecision.At(now)
	if err != nil {
		return from, to, err
	}
	round := unit - unit%units
	if to, err = s.recipe.TimePrecision.Begin(round); err != nil {
		return from, to, err
	}
	end, err := s.recipe.TimePrecision.Begin(round + units)
	if err != nil {
		return from, to, err
	}
	if !from.Before(to) || end.Add(s.recipe.Grace()).Sub(now) <= patience {
		to = end
	}
	if bounded {
		end, err := s.recipe.TimePrecision.Begin(w.End)
		if err != nil {
			return from, to, err
		}
		if end.Before(to) {
			to = end
		}
	}
	if !from.Before(to) {
		return from, to, fmt.Errorf("%w: the next interval begins at %s", ErrNothingNew, from.Format(time.RFC3339))
	}
	return from, to, nil
}

// lastSpan is the last span of the view that is over.
func (s *Session) lastSpan(now time.Time) (from, to time.Time, err error) {
	unit, err := s.recipe.TimePrecision.At(now.Add(-s.recipe.Grace()))
	if err != nil {
		return from, to, err
	}
	units := dap.Time(s.Units())
	last := unit - unit%units
	if last < units {
		return from, to, ErrNothingNew
	}
	from, err1 := s.recipe.TimePrecision.Begin(last - units)
	to, err2 := s.recipe.TimePrecision.Begin(last)
	return from, to, errors.Join(err1, err2)
}

// Collect goes on with a collection that was interrupted, or begins one: of the reports
// from one time up to another in a time-interval recipe, of the next batch in a
// leader-selected one, where the times are not looked at. It waits for the answer and
// remembers it.
func (s *Session) Collect(ctx context.Context, from, to time.Time) (*collector.Result, error) {
	var job *collector.Job
	var err error
	if s.Pending() {
		job, err = s.collector.Resume(*s.state.Job)
	} else {
		query := s.collector.NextBatch()
		if !s.leaderSelected() {
			if query, err = s.collector.Interval(from, to); err != nil {
				return nil, err
			}
			s.state.To, s.state.View = to.UTC(), s.view.Name
		}
		job, err = s.collector.Start(ctx, query)
	}
	if ended(err) && s.Pending() { // a question that was saved before the leader refused it
		s.state.Done = true
		return nil, errors.Join(err, s.save())
	}
	if err != nil {
		return nil, err
	}
	result, err := job.Wait(ctx)
	if ended(err) {
		// The leader has ended the job for good; the same question may be asked anew once
		// what it lacked is there.
		s.state.Done = true
		return nil, errors.Join(err, job.Delete(ctx), s.save())
	}
	if err != nil {
		return nil, err
	}
	s.state.Done = true
	if s.leaderSelected() {
		if err := job.Delete(ctx); err != nil {
			return nil, err
		}
	} else {
		s.moved(s.state.View, s.state.To)
	}
	return result, s.save()
}

// ended says whether the leader answered that the job itself has failed, or that there is
// none. All else may pass: the leader may be busy, it or a proxy may not know our token,
// and a job that is deleted then takes its answer with it.
func ended(err error) bool {
	var passing *collector.UnavailableError
	var p *dap.Problem
	if errors.As(err, &passing) || !errors.As(err, &p) {
		return false
	}
	if p.Type == "" {
		return p.HTTPStatus() == http.StatusNotFound
	}
	return p.Type != dap.ProblemUnrecognizedTask && slices.Contains(dap.ProblemTypes, p.Type)
}

func (s *Session) leaderSelected() bool {
	path, ok := s.recipe.Path.(recipe.TwoServer)
	return ok && path.BatchMode == dap.LeaderSelected
}

// Pending says whether a question has been asked whose answer has not been read; Collect
// goes on with it.
func (s *Session) Pending() bool { return s.state.Job != nil && !s.state.Done }

// ErrPending: another question is pending, which [Session.Collect] would go on with.
var ErrPending = errors.New("another question is pending")

// PendingFor returns [ErrPending] if a question is pending and it is another than for the
// reports from one time up to another.
func (s *Session) PendingFor(from, to time.Time) error {
	if !s.Pending() {
		return nil
	}
	query, err := s.collector.Interval(from, to)
	if err != nil {
		return err
	}
	asked, err := dap.CollectionJobReq{Query: query}.Append(nil)
	if err != nil {
		return err
	}
	if !bytes.Equal(asked, s.state.Job.Request) {
		return ErrPending
	}
	return nil
}

// Drop gives up the pending question, if there is one, at the leader too. If the answer
// became ready meanwhile, it is lost: its reports are never released again.
func (s *Session) Drop(ctx context.Context) error {
	if !s.Pending() {
		return nil
	}
	job, err := s.collector.Resume(*s.state.Job)
	if err != nil {
		return err
	}
	if err := job.Delete(ctx); err != nil {
		return err
	}
	s.state.Done = true
	return s.save()
}

// Withdraw gives up a pending question that has no answer, so that another can be asked.
// It is false if the answer became ready meanwhile: then the question stays, and
// [Session.Collect] returns its answer.
func (s *Session) Withdraw(ctx context.Context) (bool, error) {
	if !s.Pending() {
		return true, nil
	}
	job, err := s.collector.Resume(*s.state.Job)
	if err != nil {
		return false, err
	}
	if gone, err := job.Withdraw(ctx); !gone || err != nil {
		return false, err
	}
	s.state.Done = true
	return true, s.save()
}

// Skip withdraws the pending question, as [Session.Withdraw] does, and has
// [Session.Interval] begin behind it: nothing of its time is released unless somebody
// asks for it again.
func (s *Session) Skip(ctx context.Context) (bool, error) {
	if !s.Pending() {
		return true, nil
	}
	// As Withdraw saves it.
	before, views := s.state.Next, maps.Clone(s.state.Views)
	last := s.state.Next
	if s.recipe.Views != nil && s.state.View != s.recipe.Views.Round {
		last = s.state.Views[s.state.View]
	}
	if s.state.To.After(last) {
		s.moved(s.state.View, s.state.To)
	}
	gone, err := s.Withdraw(ctx)
	if !gone {
		s.state.Next, s.state.Views = before, views
	}
	return gone, err
}

// Over says whether a round that ended at a time may be released by a clock that shows
// now, as far as the recipe tells; the servers' clocks may be a little behind.
func (s *Session) Over(end, now time.Time) bool {
	return !now.Before(end.Add(s.recipe.Grace()))
}

// Asked is the end of what the pending question asks for; zero where none is pending.
func (s *Session) Asked() (end time.Time) {
	if s.Pending() {
		end = s.state.To
	}
	return end
}

// Notice is what a person should know of the state file and is no error, once; "" is
// nothing.
func (s *Session) Notice() string {
	defer func() { s.notice = "" }()
	return s.notice
}

// save replaces the state file in one step.
func (s *Session) save() error { return s.file.write(&s.state) }
