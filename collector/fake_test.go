package collector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

const token = "collector-token"

// leader plays the leader's side of collection jobs: a job lives until it is deleted, the
// same body is the same job, and each new job gets the next batch.
type leader struct {
	t    testing.TB
	task *dap.TaskConfiguration
	v    vdaf.VDAF
	key  *sealed.KeyPair

	batches  [][2][]int64 // what the leader and the helper hold of each batch
	defers   int          // answers "not yet" of each job
	location string       // printf format of the Location, of the path from the base on
	change   func(*dap.CollectionJobResp)
	// intercept may answer in the leader's place.
	intercept func(http.ResponseWriter, *http.Request) bool

	jobs     map[string]*job // by body
	made     int
	framing  dap.Framing
	requests []string // method and last path element
}

type job struct {
	id     string
	batch  int
	asked  int
	answer []byte
}

var start = dap.Time(480000)

func testRecipe(q recipe.Query, n recipe.Noise, mode dap.BatchMode) *recipe.Recipe {
	r := &recipe.Recipe{
		Name: "test", Query: q, Randomizer: recipe.NoRandomizer{}, Participation: recipe.Always{},
		Path:  recipe.TwoServer{Leader: "https://leader.example/v1/", Helper: "https://helper.example/", BatchMode: mode},
		Noise: n, Claim: recipe.NoClaim{}, DAP: speaks, MinBatch: 10, TimePrecision: 3600, Window: recipe.NoWindow{},
	}
	if n != (recipe.NoNoise{}) {
		r.Claim = recipe.ApproxDP{
			Epsilon: recipe.Decimal{Coefficient: 1000}, Delta: recipe.Decimal{Coefficient: 1, Scale: 9},
			Neighbours: release.ReplaceOne, HonestServers: 1, Rounds: 1,
		}
	}
	return r
}

var histogram = recipe.Histogram{Length: 3, Chunk: 2}

func encode(t testing.TB, r *recipe.Recipe) []byte {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newLeader(t testing.TB, r *recipe.Recipe, batches ...[2][]int64) *leader {
	t.Helper()
	task, err := r.Task()
	if err != nil {
		t.Fatal(err)
	}
	v, err := task.VDAF()
	if err != nil {
		t.Fatal(err)
	}
	key, err := sealed.Generate(5, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	return &leader{t: t, task: task, v: v, key: key, batches: batches, location: "/v1/%s", jobs: map[string]*job{}}
}

func (l *leader) collector(r *recipe.Recipe, change func(*Options)) *Collector {
	l.t.Helper()
	o := Options{Recipe: encode(l.t, r), Token: token, Key: l.key, HTTP: l}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

func (l *leader) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w.Result(), nil
}

func (l *leader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.requests = append(l.requests, r.Method+" "+r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	if r.URL.Host != "leader.example" || r.Header.Get("Authorization") != "Bearer "+token {
		l.t.Errorf("asked %s with %q", r.URL, r.Header.Get("Authorization"))
	}
	if l.intercept != nil && l.intercept(w, r) {
		return
	}
	create := "/v1/" + dap.CreationPath(l.task.TaskID(), dap.CollectionJobsResource)
	if r.URL.Path == create && r.Method == "POST" && l.framing == dap.Standard {
		l.create(w, r)
		return
	}
	if id, ok := strings.CutPrefix(r.URL.Path, create+"/"); ok && r.Method == "PUT" && l.framing == dap.Janus && dap.CheckChosenID(id) == nil {
		l.create(w, r)
		return
	}
	for body, j := range l.jobs {
		if r.URL.Path != create+"/"+j.id {
			continue
		}
		switch r.Method {
		case "GET":
			l.answer(w, j)
		case "DELETE":
			delete(l.jobs, body)
			fmt.Fprint(w, "deleted")
		}
		return
	}
	w.WriteHeader(http.StatusNotFound)
}

func (l *leader) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		l.t.Error(err)
	}
	req, err := dap.ReadCollectionJobReq(body)
	if err != nil || dap.CheckContentType(r.Header.Get("Content-Type"), dap.MediaCollectionJobReq) != nil {
		l.t.Errorf("bad request %x, %v", body, err)
		return
	}
	name, id := string(body), fmt.Sprintf("job-%d", l.made)
	if l.framing == dap.Janus { // the collector chose
		id = r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		name = id
	}
	j := l.jobs[name]
	if j == nil {
		if l.made >= len(l.batches) {
			problem(w, &dap.Problem{Type: dap.ProblemInvalidBatchSize})
			return
		}
		j = &job{id: id, batch: l.made}
		l.made++
		l.jobs[name] = j
		j.answer = l.seal(req.Query, body, j.batch)
	}
	if l.framing == dap.Janus {
		l.answer(w, j)
		return
	}
	w.Header().Set("Location", fmt.Sprintf(l.location, dap.ResourcePath(l.task.TaskID(), dap.CollectionJobsResource, j.id)))
	l.answer(w, j)
}

func (l *leader) answer(w http.ResponseWriter, j *job) {
	if j.asked++; j.asked <= l.defers {
		w.Header().Set("Retry-After", "3")
		if j.asked == l.defers {
			w.Header().Set(releases.WaitingHeader, string(releases.ForReports))
		} else if j.asked == 2 {
			w.Header().Set(releases.WaitingHeader, "what nobody knows")
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", dap.ContentType(dap.MediaCollectionJobResp))
	w.Write(j.answer)
}

func (l *leader) seal(q dap.Query, body []byte, batch int) []byte {
	resp := dap.CollectionJobResp{ReportCount: 100, Interval: dap.Interval{Start: start, Duration: 2}}
	aad := dap.AggregateShareAAD(l.task.TaskID(), l.task.Bytes(), body)
	for i, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		share := l.v.NewAggShare()
		if err := share.AddSigned(l.batches[batch][i]); err != nil {
			l.t.Fatal(err)
		}
		c, err := dap.Seal(dap.NewHpkeConfig(l.key), l.task.Version.AggregateShareInfo(role), aad, share.Append(nil))
		if err != nil {
			l.t.Fatal(err)
		}
		*[]*dap.HpkeCiphertext{&resp.Leader, &resp.Helper}[i] = c
	}
	if l.change != nil {
		l.change(&resp)
	}
	b, err := resp.Append(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return bytes.Clone(b)
}

func problem(w http.ResponseWriter, p *dap.Problem) {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", dap.ProblemMedia)
	w.WriteHeader(p.HTTPStatus())
	w.Write(b)
}

func day(c *Collector) dap.Query {
	from := time.Unix(int64(start)*3600, 0)
	q, err := c.Interval(from, from.Add(24*time.Hour))
	if err != nil {
		panic(err)
	}
	return q
}
