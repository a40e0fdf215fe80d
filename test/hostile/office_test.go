package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/test/internal/recording"
)

// An office is a leader and a helper as `starling serve` starts them, with the tasks of
// many recipes, and the tokens of those who may ask them: of the collector at the leader,
// and of the leader at the helper.
type office struct {
	local                string // base URL of what the leader shows its operator
	leader, helper       string // base URLs
	collector, peer      string // tokens
	tasks                []*tasked
	leaderLog, helperLog recording.Bytes
}

// tasked is one recipe and what a device and a collector know of it.
type tasked struct {
	*office
	name   string
	recipe *recipe.Recipe
	id     dap.TaskID
	client *client.Client
}

// openOffice starts an office for the recipes of pose, by name. They are of one leader
// and one helper.
func openOffice(t *testing.T, pose func(leader, helper string) map[string]*recipe.Recipe) *office {
	t.Helper()
	a, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	o := &office{leader: a.LeaderURL(), helper: a.HelperURL(), local: "http://" + a.LeaderLocal.Addr().String()}
	recipes := pose(o.leader, o.helper)
	names := slices.Sorted(maps.Keys(recipes))
	dir := filepath.Join(t.TempDir(), "office")
	if err := deploy.Create(dir, recipes[names[0]], a); err != nil {
		t.Fatal(err)
	}
	for _, token := range []struct {
		file string
		into *string
	}{{"peer.token", &o.peer}, {"collector.token", &o.collector}} {
		b, err := os.ReadFile(filepath.Join(dir, "secrets", token.file))
		if err != nil {
			t.Fatal(err)
		}
		*token.into = strings.TrimSpace(string(b))
	}
	var parts []service.Part
	for _, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		file := filepath.Join(dir, role.String()+".toml")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, block, ok := strings.Cut(string(b), "[[tasks]]\n")
		if !ok {
			t.Fatalf("no task in %s", file)
		}
		for i, name := range names {
			own := fmt.Sprintf("recipe-%d.starling", i)
			head += "[[tasks]]\n" + strings.ReplaceAll(block, deploy.RecipeFile, own)
			b, err := recipes[name].Append(nil)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, own), b, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(file, []byte(head), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := deploy.LoadAggregator(file, role)
		if err != nil {
			t.Fatal(err)
		}
		open, log := deploy.Listeners{Public: a.Leader, Local: a.LeaderLocal}, &o.leaderLog
		if role == dap.RoleHelper {
			open, log = deploy.Listeners{Public: a.Helper, Local: a.HelperLocal}, &o.helperLog
		}
		parts = append(parts, c.Parts(service.NewLogger(log, slog.LevelWarn), open)...)
	}
	servicetest.Serve(t, parts...)
	for _, name := range names {
		q := &tasked{office: o, name: name, recipe: recipes[name]}
		b, err1 := q.recipe.Append(nil)
		config, err2 := q.recipe.Task()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		q.id = config.TaskID()
		if q.client, err = client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b, HTTP: http.DefaultClient, MaxEpsilon: math.Inf(1), Attempts: 1}); err != nil {
			t.Fatal(name, err)
		}
		o.tasks = append(o.tasks, q)
	}
	return o
}

// A reply is what a server said.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	problem  dap.ProblemType
	location string
}

func (a reply) String() string {
	return fmt.Sprintf("status %d %s, %d bytes, %.200q", a.status, a.problem, len(a.body), a.body)
}

// do makes one request below a base URL.
func (q *tasked) do(t *testing.T, method, base, path, token string, m dap.Media, body []byte) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(base, "/")+"/"+strings.TrimPrefix(path, "/"), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if m != "" {
		r.Header.Set("Content-Type", dap.ContentType(m))
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := reply{status: resp.StatusCode, header: resp.Header, location: resp.Header.Get("Location")}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Content-Type") == dap.ProblemMedia {
		var p dap.Problem
		if err := json.Unmarshal(a.body, &p); err != nil {
			t.Fatal(err)
		}
		a.problem = p.Type
	}
	return a
}

// encoded is the bytes of a message that has some.
func encoded(t *testing.T, m interface {
	Append([]byte) ([]byte, error)
}) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ofInterval is the collector's question about an interval.
func ofInterval(start dap.Time, length uint64) dap.CollectionJobReq {
	return dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval, Interval: dap.Interval{Start: start, Duration: dap.Duration(length)}}}
}

// askLeader asks for a collection as the collector does.
func (q *tasked) askLeader(t *testing.T, r dap.CollectionJobReq) reply {
	t.Helper()
	return q.do(t, "POST", q.leader, dap.CreationPath(q.id, dap.CollectionJobsResource), q.collector, dap.MediaCollectionJobReq, encoded(t, r))
}

// poll asks for a collection job that was made.
func (q *tasked) poll(t *testing.T, made reply) reply {
	t.Helper()
	return q.do(t, "GET", q.leader, made.location, q.collector, "", nil)
}

// forget deletes a collection job that was made.
func (q *tasked) forget(t *testing.T, made reply) {
	t.Helper()
	if a := q.do(t, "DELETE", q.leader, made.location, q.collector, "", nil); a.status != http.StatusNoContent {
		t.Errorf("%s: delete: %v", q.name, a)
	}
}

// askHelper asks the helper alone for its share, as a leader does: of a question, for a
// batch, with a count and a checksum.
func (q *tasked) askHelper(t *testing.T, r dap.CollectionJobReq, batch dap.Interval, reports []dap.Report) reply {
	t.Helper()
	req := dap.AggregateShareReq{CollectionJobReq: r, ReportCount: uint64(len(reports))}
	req.BatchSelector = dap.BatchSelector{Mode: r.Query.Mode, Interval: batch}
	for i := range reports {
		req.Checksum.Add(reports[i].Metadata.ID)
	}
	return q.do(t, "POST", q.helper, dap.CreationPath(q.id, dap.AggregateSharesResource), q.peer, dap.MediaAggregateShareReq, encoded(t, req))
}

// waiting is what the leader's status says of the collections of the task that wait.
func (q *tasked) waiting(t *testing.T) (why []string) {
	t.Helper()
	resp, err := http.Get(q.local + "/statusz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s status.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	for _, task := range s.Tasks {
		if task.ID == q.id.Base64() {
			for _, w := range task.Collections {
				why = append(why, w.Why)
			}
		}
	}
	return why
}

// at is the beginning of a time unit of the recipe.
func (q *tasked) at(t *testing.T, unit dap.Time) time.Time {
	t.Helper()
	begin, err := q.recipe.TimePrecision.Begin(unit)
	if err != nil {
		t.Fatal(err)
	}
	return begin
}

// unit is the time unit of the recipe in which an instant lies.
func (q *tasked) unit(t *testing.T, at time.Time) dap.Time {
	t.Helper()
	unit, err := q.recipe.TimePrecision.At(at)
	if err != nil {
		t.Fatal(err)
	}
	return unit
}

// value is an answer to the recipe.
func (q *tasked) value() client.Value {
	switch query := q.recipe.Query.(type) {
	case recipe.Count:
		return client.Bool(true)
	case recipe.Sum, recipe.Mean:
		return client.Number(1)
	case recipe.Histogram:
		return client.Bucket(1)
	case recipe.Multihot:
		return client.Vector(make([]uint64, query.Length))
	case recipe.SumVec:
		return client.Vector(make([]uint64, query.Length))
	}
	return client.Reals(make([]float64, q.recipe.Query.Aggregates()))
}

// reports makes honest reports of devices that answer at an instant.
func (q *tasked) reports(t *testing.T, n uint64, at time.Time) []dap.Report {
	t.Helper()
	if err := q.client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := make([]dap.Report, n)
	for i := range list {
		var err error
		if list[i], err = q.client.Prepare(q.value(), at); err != nil {
			t.Fatal(q.name, err)
		}
	}
	return list
}

// accept uploads reports, all of which the leader has to acknowledge.
func (q *tasked) accept(t *testing.T, reports []dap.Report) {
	t.Helper()
	if refused, err := q.client.Upload(t.Context(), reports); err != nil || len(refused) > 0 {
		t.Fatalf("%s: %d reports are refused: %v, %v", q.name, len(refused), refused, err)
	}
}

// released waits for a collection's answer.
func (q *tasked) released(t *testing.T, made reply) (dap.CollectionJobResp, []byte) {
	t.Helper()
	if made.status != http.StatusCreated {
		t.Fatalf("%s: a batch that may be released: %v", q.name, made)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // or it never comes
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		a := q.poll(t, made)
		if a.status != http.StatusOK {
			t.Fatalf("%s: a batch that may be released: %v", q.name, a)
		}
		if len(a.body) > 0 {
			resp, err := dap.ReadCollectionJobResp(a.body)
			if err != nil {
				t.Fatal(err)
			}
			return resp, a.body
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s: nothing is released; the leader says %s, the helper %s", q.name, q.leaderLog.Copy(), q.helperLog.Copy())
		}
	}
}
