package deploy

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// inBand is a deployment whose leader brings a count of others to the helper.
type inBand struct {
	dir string
	kit *aggregatortest.Task
}

const taskprovPolicy = `
[[taskprov]]
name = "the office's leader"
leader = "%s"
verify_key_init = "secrets/init.key"
peer_token = "secrets/peer.token"
collector_hpke = "theirs.hpke"
vdafs = ["Prio3Count"]
min_batch_size = 10
`

func newInBand(t *testing.T) *inBand {
	t.Helper()
	dir, a := create(t, dap.TimeInterval)
	now := dap.Time(time.Now().Unix() / 60)
	window, err := dap.Extensions{}.WithTaskInterval(dap.Interval{Start: now - 60, Duration: 24 * 60})
	if err != nil {
		t.Fatal(err)
	}
	config, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		TaskInfo: []byte("theirs"), Leader: []byte(a.LeaderURL()), Helper: []byte(a.HelperURL()), TimePrecision: 60, MinBatchSize: 10,
		BatchMode: dap.LeaderSelected, VDAFType: dap.TypePrio3Count, Extensions: window,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &inBand{dir: dir}
	if w.kit, err = aggregatortest.NewTask(config, dap.Standard); err != nil {
		t.Fatal(err)
	}
	collector, err := dap.NewHpkeConfig(w.kit.Collector).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"theirs.task": config.Bytes(), "theirs.hpke": collector, "secrets/init.key": []byte(strings.Repeat("1a", 32) + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, HelperFile, fmt.Sprintf(taskprovPolicy, a.LeaderURL()))
	w.write(t, LeaderFile, `
[[tasks]]
configuration = "theirs.task"
advertise = true
verify_key_init = "secrets/init.key"
peer_token = "secrets/peer.token"
collector_token = "secrets/collector.token"
collector_hpke = "theirs.hpke"
`)
	a.Close() // the aggregators listen there
	return w
}

// write appends text to a configuration file.
func (w *inBand) write(t *testing.T, file, text string) {
	t.Helper()
	path := filepath.Join(w.dir, file)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(b, text...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ask makes one request of a client or a collector, and fails unless it is served.
func (w *inBand) ask(t *testing.T, method, url string, m dap.Media, token string, body []byte) (string, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if m != "" {
		req.Header.Set("Content-Type", dap.ContentType(m))
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s, %v", method, url, resp.StatusCode, b, err)
	}
	return resp.Header.Get("Location"), b
}

// key is the key that an aggregator offers.
func (w *inBand) key(t *testing.T, base []byte) dap.HpkeConfig {
	t.Helper()
	_, b := w.ask(t, "GET", string(base)+dap.HpkeConfigPath, "", "", nil)
	list, err := dap.ReadHpkeConfigList(b)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// TestTaskprov: a leader with a task of others, and a helper that was never told of it, count
// what clients upload: over sockets, from configuration files, as starling serve runs them.
func TestTaskprov(t *testing.T) {
	w := newInBand(t)
	helper, leader := load(t, w.dir, dap.RoleHelper), load(t, w.dir, dap.RoleLeader)
	quiet := slog.New(slog.DiscardHandler)
	stopHelper := servicetest.Serve(t, helper.Parts(quiet, Listeners{})...)
	servicetest.Serve(t, leader.Parts(quiet, Listeners{})...)
	token, err := leader.Tasks[1].CollectorToken.Text()
	if err != nil {
		t.Fatal(err)
	}
	count, err := prio3.NewCount(2)
	if err != nil {
		t.Fatal(err)
	}
	conf := w.kit.Config
	to := []dap.HpkeConfig{w.key(t, conf.Leader), w.key(t, conf.Helper)}
	at, err := conf.TimePrecision.At(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var reports []dap.Report
	for i := range 25 {
		r, err := w.kit.Report(at, func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			return count.Shard(ctx, i%5 == 0, nonce)
		}, aggregatortest.Spoil{To: to})
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	body, err := dap.AppendUploadRequest(nil, reports)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs := w.ask(t, "POST", string(conf.Leader)+dap.CreationPath(w.kit.ID, dap.ReportsResource), dap.MediaUploadReq, "", body); len(errs) > 0 {
		t.Fatalf("refused reports: %x", errs)
	}
	asked := dap.CollectionJobReq{Query: dap.Query{Mode: dap.LeaderSelected}}
	if body, err = asked.Append(nil); err != nil {
		t.Fatal(err)
	}
	location, answer := w.ask(t, "POST", string(conf.Leader)+dap.CreationPath(w.kit.ID, dap.CollectionJobsResource), dap.MediaCollectionJobReq, token, body)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for len(answer) == 0 {
		<-ticker.C
		_, answer = w.ask(t, "GET", strings.TrimSuffix(string(conf.Leader), "/")+location, "", token, nil)
	}
	if resp, sum, err := w.kit.Open(&asked, answer); err != nil || resp.ReportCount != 25 || sum[0] != 5 {
		t.Errorf("%+v, sum %v, %v", resp, sum, err)
	}
	peer, err := leader.Tasks[1].PeerToken.Text()
	if err != nil {
		t.Fatal(err)
	}
	other := *conf
	other.TaskInfo = []byte("another")
	another, err := dap.NewTaskConfiguration(other)
	if err != nil {
		t.Fatal(err)
	}
	advert, err := taskprov.Value(dap.Standard, another.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token  string
		values []string
		want   int
	}{
		"of a stranger": {token, []string{advert}, http.StatusNotFound},
		"twice":         {peer, []string{advert, advert}, http.StatusNotFound},
		"very long":     {peer, []string{advert + strings.Repeat(";a", 40<<10)}, http.StatusRequestHeaderFieldsTooLarge},
		"long":          {peer, []string{advert + strings.Repeat(";a", 5<<10)}, http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", string(conf.Helper)+"tasks/"+another.TaskID().Base64()+"/starling_progress", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header[taskprov.Header] = c.values
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != c.want {
			t.Errorf("an advertisement %s: status %d, want %d", name, resp.StatusCode, c.want)
		}
	}
	for range 2 { // and with the helper stopped, from its store
		tasks, err := helper.Registered(t.Context())
		tasks = slices.DeleteFunc(tasks, func(r status.Registered) bool { return r.Source == "imported" })
		if err == nil && len(tasks) == 1 && tasks[0].Task == w.kit.ID.Base64() && tasks[0].Source == "in band" && tasks[0].By == "the office's leader" {
			return
		}
		if err == nil {
			t.Fatalf("the helper has %+v", tasks)
		}
		stopHelper()
	}
	t.Error("the helper cannot be asked")
}

// TestTaskprovConfiguration: what a policy, or a task that is advertised, cannot be is said
// with its place in the file, before anything starts.
func TestTaskprovConfiguration(t *testing.T) {
	w := newInBand(t)
	for _, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		if _, err := load(t, w.dir, role).read(); err != nil {
			t.Fatalf("%v: %v", role, err)
		}
	}
	for name, c := range map[string]struct{ file, change, to, want string }{
		"at a leader":      {LeaderFile, "[[tasks]]\nconfiguration", "[[taskprov]]\nname = \"x\"\n[[tasks]]\nconfiguration", "only a helper"},
		"no name":          {HelperFile, `name = "the office's leader"`, "", "taskprov[0].name: required"},
		"no leader":        {HelperFile, "leader = \"http", "# leader = \"http", "taskprov[0].leader: required"},
		"no VDAF":          {HelperFile, `["Prio3Count"]`, "[]", "taskprov[0].vdafs"},
		"an unknown VDAF":  {HelperFile, `["Prio3Count"]`, `["Prio4"]`, "Prio3SumVec"},
		"less than none":   {HelperFile, "min_batch_size = 10", "tasks = -1", "taskprov[0].tasks: negative"},
		"a short secret":   {HelperFile, `"secrets/init.key"`, `"secrets/peer.token"`, "64 hexadecimal digits"},
		"no secret":        {HelperFile, `verify_key_init = "secrets/init.key"`, "", "verify_key_init: required"},
		"Janus's draft 19": {HelperFile, "min_batch_size = 10", "framing = \"janus\"\ndap = \"dap-19\"", "draft 18"},
		"an id of its own": {LeaderFile, "advertise = true", "advertise = true\nid = \"" + dap.TaskID{7}.Base64() + "\"", "without an id"},
		"a recipe":         {LeaderFile, `configuration = "theirs.task"`, `recipe = "recipe.starling"`, "comes with its recipe"},
		"two keys":         {LeaderFile, "advertise = true", `verify_keys = [{ id = 0, file = "secrets/verify.key" }]`, "the task has verify_keys"},
	} {
		path := filepath.Join(w.dir, c.file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.LastIndex(b, []byte(c.change))
		if at < 0 {
			t.Fatalf("%s: %s has no %q", name, c.file, c.change)
		}
		if err := os.WriteFile(path, []byte(string(b[:at])+c.to+string(b[at+len(c.change):])), 0o600); err != nil {
			t.Fatal(err)
		}
		role := map[string]dap.Role{HelperFile: dap.RoleHelper, LeaderFile: dap.RoleLeader}[c.file]
		a, err := LoadAggregator(path, role)
		if err == nil {
			_, err = a.read()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTaskprovAgreed: where leader and helper have an agreement, the policy needs no files:
// token, verification key and collector's key are those that the leader derives too, of
// each task its own, and no other leader's.
func TestTaskprovAgreed(t *testing.T) {
	w := newInBand(t)
	party := func(role string) (*invitation.Key, *invitation.Invitation) {
		k, err := invitation.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		return k, &invitation.Invitation{Role: role, Owner: "The " + role, URL: "https://" + role + ".example/", Key: k.Public()}
	}
	leaderKey, leader := party("leader")
	helperKey, helper := party("helper")
	leader.URL, helper.URL = string(w.kit.Config.Leader), string(w.kit.Config.Helper)
	there, err := leaderKey.Agree("leader", helper)
	if err != nil {
		t.Fatal(err)
	}
	here := &shared{other: leader}
	if here.peer, err = helperKey.Agree("helper", leader); err != nil {
		t.Fatal(err)
	}
	if here.collectorConfig, err = dap.NewHpkeConfig(w.kit.Collector).Append(nil); err != nil {
		t.Fatal(err)
	}
	p := &Taskprov{Name: "the leader", VDAFs: []VDAF{VDAF(dap.TypePrio3Count)}}
	if err := p.validate(true); err != nil {
		t.Fatal(err)
	}
	policy, err := p.policy(&Aggregator{}, here)
	if err != nil || policy.Leader != leader.URL {
		t.Fatalf("%+v, %v", policy.Leader, err)
	}
	made, _, err := p.task().make(aggregator.Configuration, w.kit.Config.Bytes(), nil, dap.RoleHelper, here)
	if err != nil {
		t.Fatal(err)
	}
	key, err := there.VerifyKey(w.kit.ID)
	if err != nil || len(made.VerifyKeys) != 1 || made.VerifyKeys[verifyKeyID] != key {
		t.Errorf("the verification keys differ: %v", err)
	}
	want, err := there.Token(w.kit.ID)
	if got, fails := policy.Token(w.kit.ID); err != nil || fails != nil || got != want || made.PeerToken != want {
		t.Errorf("the tokens differ: %v, %v", err, fails)
	}
	if other, err := policy.Token(dap.TaskID{1}); err != nil || other == want {
		t.Errorf("two tasks have one token: %v", err)
	}
	p.Leader = "https://other.example/"
	if _, err := p.policy(&Aggregator{}, here); err == nil || !strings.Contains(err.Error(), "leader: ") {
		t.Errorf("another leader than the invitation's: %v", err)
	}
}
