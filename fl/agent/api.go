package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/recipe"
)

const (
	// maxQuery bounds the query of a request, in bytes.
	maxQuery = 1 << 10
	// bodyTime is how long the body of one may take.
	bodyTime = time.Minute
	// leastBodies are the bytes of bodies that are held at a time, of any agent: so many, or
	// the two longest ones.
	leastBodies = 64 << 20
)

// An answered is the body of an error. JSON keys are only added to.
type answered struct {
	Error   string `json:"error"` // one of [Outcomes], "not_found", "malformed" or "method"
	Problem string `json:"problem"`
	Hint    string `json:"hint,omitempty"`
}

// accepted is the one answer to every contribution that is taken, whatever its coin says.
var accepted = []byte("{\"accepted\":true}\n")

// hints say what to do next.
var hints = map[string]string{
	"unknown_task":        "GET /v1/tasks lists what the agent answers; its file names the recipes",
	"round_over":          "GET /v1/tasks/TASK has the round that runs and its model",
	"round_not_begun":     "GET /v1/tasks/TASK has the round that runs",
	"already_contributed": "wait for the next round: GET /v1/tasks/TASK says when this one ends",
	"no_model":            "ask again: the controller has announced none for the round that runs",
	"bad_model":           "nothing can be computed on it: the training's controller or the relay hands out what was not announced; the agent's log says what",
	"contradiction":       "the controller signed two stories, and nothing more is contributed to them: the agent's log has both announcements, which prove it",
	"no_rounds":           "the recipe's guarantee covers no more rounds of this device: another recipe is another task",
	"bad_vector":          "send little-endian binary32 numbers, as many as GET /v1/tasks/TASK says, for each person",
	"policy":              "the agent's own file says so: starling check agent.toml",
	"over_budget":         "GET /v1/ledger has what was spent; the agent's file has the budget",
	"too_soon":            "the recipe keeps contributions of a device some rounds apart",
	"no_credentials":      "the device has no credentials of this epoch: its owner runs starling visit",
	"refused":             "the recipe is not answered: GET /v1/tasks/TASK says why",
	"ledger":              "the agent's ledger is damaged or was put back: docs/agent.md says what its owner does",
	"unavailable":         "ask again: relay, gateway or servers could not be reached",
}

// statuses are of outcomes that are not 503.
var statuses = map[string]int{
	"unknown_task": http.StatusNotFound, "round_over": http.StatusConflict, "round_not_begun": http.StatusConflict, "already_contributed": http.StatusConflict,
	"no_model": http.StatusConflict, "bad_model": http.StatusBadGateway, "contradiction": http.StatusBadGateway, "no_rounds": http.StatusForbidden, "bad_vector": http.StatusBadRequest, "policy": http.StatusForbidden, "over_budget": http.StatusForbidden,
	"too_soon": http.StatusConflict, "refused": http.StatusForbidden, "ledger": http.StatusInternalServerError,
}

// ServeHTTP answers processes of this machine: see docs/agent.md.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.RawQuery) > maxQuery {
		tooLong(w)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/v1/")
	if ok && r.Method != http.MethodGet && (path != "contributions" || r.Method != http.MethodPost) {
		w.Header().Set("Allow", http.MethodGet)
		answer(w, http.StatusMethodNotAllowed, answered{"method", "want GET, or POST of contributions", ""})
		return
	}
	kind, name, _ := strings.Cut(path, "/")
	switch {
	case !ok:
	case path == "contributions" && r.Method == http.MethodPost:
		a.postContribution(w, r)
		return
	case path == "contributions":
		a.getContribution(w, r)
		return
	case path == "status":
		answer(w, http.StatusOK, a.Status())
		return
	case path == "tasks":
		a.getTasks(w, r)
		return
	case path == "ledger":
		said(w)(a.Ledger())
		return
	case kind == "tasks", kind == "ledger":
		id, err := recipe.ParseID(name)
		switch {
		case err != nil:
			malformed(w, "a task is named by 64 lower-case hexadecimal digits: "+err.Error())
		case kind == "tasks":
			said(w)(a.TaskStatus(r.Context(), id))
		default:
			said(w)(a.taskLedger(id))
		}
		return
	case kind == "models":
		a.getModel(w, name)
		return
	}
	answer(w, http.StatusNotFound, answered{"not_found", "nothing is there", "docs/agent.md lists what there is"})
}

// Receipts answers a filter that runs as another user than those who contribute: whether an
// update was taken for a task in a round, as ServeHTTP does, and nothing else.
func (a *Agent) Receipts(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/v1/contributions":
		answer(w, http.StatusNotFound, answered{"not_found", "nothing but GET /v1/contributions is answered here", "docs/agent.md lists what there is at the agent's own socket"})
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		answer(w, http.StatusMethodNotAllowed, answered{"method", "want GET: nothing is contributed here", "contribute at the agent's own socket: docs/agent.md"})
	case len(r.URL.RawQuery) > maxQuery:
		tooLong(w)
	default:
		a.getContribution(w, r)
	}
}

func (a *Agent) getTasks(w http.ResponseWriter, r *http.Request) {
	list := []*TaskStatus{}
	for _, id := range a.order {
		s, err := a.TaskStatus(r.Context(), id)
		if err != nil {
			refuse(w, err)
			return
		}
		list = append(list, s)
	}
	answer(w, http.StatusOK, list)
}

// getModel gives a model's parameters as little-endian binary32, after its clipping norm in
// a header.
func (a *Agent) getModel(w http.ResponseWriter, name string) {
	h, err := session.ParseHash(name)
	if err != nil {
		malformed(w, err.Error())
		return
	}
	m, err := a.Model(h)
	if err != nil {
		answer(w, http.StatusNotFound, answered{"no_model", "it is not the model of the round that runs, or GET /v1/tasks/TASK was not asked yet", hints["no_model"]})
		return
	}
	b := session.AppendFloats(nil, m.Parameters)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Header().Set("Starling-Round", strconv.FormatUint(m.Round, 10))
	w.Header().Set("Starling-Clip", strconv.FormatFloat(m.Clip, 'g', -1, 64))
	w.Write(b)
}

// which reads the task and the round of a query.
func which(q url.Values) (recipe.ID, uint64, error) {
	id, err := recipe.ParseID(q.Get("task"))
	if err != nil {
		return id, 0, fmt.Errorf("task: %w", err)
	}
	round, err := strconv.ParseUint(q.Get("round"), 10, 64)
	if err != nil {
		return id, 0, errors.New("round: want the number that GET /v1/tasks/TASK says")
	}
	return id, round, nil
}

// getContribution says whether something was contributed to a round. A filter between a
// training process and the network asks, so that it need not believe the process.
func (a *Agent) getContribution(w http.ResponseWriter, r *http.Request) {
	id, round, err := which(r.URL.Query())
	if err != nil {
		malformed(w, err.Error())
		return
	}
	was, err := a.contributed(id, round)
	said(w)(struct {
		Accepted bool `json:"accepted"`
	}{was}, err)
}

// postContribution takes little-endian binary32 numbers: one update, or "persons" of them
// one after the other.
func (a *Agent) postContribution(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id, round, err := which(q)
	if err != nil {
		malformed(w, err.Error())
		return
	}
	persons := 1
	if s := q.Get("persons"); s != "" {
		if persons, err = strconv.Atoi(s); err != nil || persons < 1 || persons > maxPersons {
			malformed(w, fmt.Sprintf("persons: want 1 to %d", maxPersons))
			return
		}
	}
	t := a.tasks[id]
	if t == nil {
		refuse(w, ErrUnknown)
		return
	}
	if most := t.Policy.persons(); persons > most { // before as much is read
		refuse(w, &PolicyError{"persons", fmt.Sprintf("a contribution of %d, and at most %d are allowed", persons, most)})
		return
	}
	limit := int64(persons) * 4 * int64(t.entries(nil)) // a session's updates are no longer
	b, release, err := a.bodies.Read(w, r, limit, bodyTime)
	defer release()
	switch {
	case errors.Is(err, body.ErrLarge):
		refuse(w, &VectorError{0, fmt.Sprintf("is longer than the %d numbers of a person", t.entries(nil))})
		return
	case errors.Is(err, body.ErrFull):
		refuse(w, err)
		return
	case err != nil:
		malformed(w, "the body: "+err.Error())
		return
	}
	list, err := session.ReadFloats(b)
	if err != nil || len(list)%persons != 0 {
		refuse(w, &VectorError{0, fmt.Sprintf("is no run of numbers of four bytes: %d bytes of %d persons", len(b), persons)})
		return
	}
	c := &Contribution{Round: round, Data: q.Get("data")}
	for n := len(list) / persons; len(c.Updates) < persons; list = list[n:] {
		c.Updates = append(c.Updates, list[:n])
	}
	if err := a.give(r.Context(), id, c); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(accepted)))
	w.Write(accepted)
}

func tooLong(w http.ResponseWriter) { malformed(w, "the query is too long") }

func malformed(w http.ResponseWriter, problem string) {
	answer(w, http.StatusBadRequest, answered{"malformed", problem, "docs/agent.md has each request"})
}

// refuse answers with the name of an error.
func refuse(w http.ResponseWriter, err error) {
	name := outcomeOf(err)
	status, ok := statuses[name]
	if !ok {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, answered{name, err.Error(), hints[name]})
}

// said answers with a value, or refuses.
func said(w http.ResponseWriter) func(any, error) {
	return func(v any, err error) {
		if err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"internal","problem":"the answer has no form"}`)
	}
	b = append(b, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
