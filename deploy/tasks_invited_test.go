package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestTaskOfInvitations: a leader has a task with another helper than the one that it has
// joined, by that one's invitation, whose fingerprint was compared: both make the same keys
// and tokens of it, which are no other task's. What the invitation pins holds for ever.
func TestTaskOfInvitations(t *testing.T) {
	ada, ben := filepath.Join(t.TempDir(), "ada"), filepath.Join(t.TempDir(), "ben")
	cleo := filepath.Join(t.TempDir(), "cleo")
	collector := mustInit(t, InitOptions{Dir: ada, Role: CollectorRole, Owner: "Ada"})
	leader := mustInit(t, InitOptions{Dir: ada, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/", Proxied: true})
	answer := func(dir, owner, url string, proxied bool) *Made {
		t.Helper()
		return mustInit(t, InitOptions{Dir: dir, Role: HelperRole, Owner: owner, URL: url, Proxied: proxied,
			Join:         []string{invitationOf(ada, LeaderRole), invitationOf(ada, CollectorRole)},
			Fingerprints: []string{collector.Fingerprint, leader.Fingerprint}})
	}
	bens := answer(ben, "Ben", "https://helper.example/", true)
	cleos := answer(cleo, "Cleo", "https://cleo.example/", true)
	mustInit(t, InitOptions{Dir: ada, Join: []string{invitationOf(ben, HelperRole)}, Fingerprints: []string{bens.Fingerprint}})
	file := func(name, helper string) service.Path {
		t.Helper()
		r, err := account.New(account.Options{Name: name, Query: recipe.Count{}, Leader: "https://leader.example/", Helper: helper, MinBatch: 100,
			Epsilon: recipe.Decimal{Coefficient: 1}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := RecipeFileOf(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "a.starling")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return service.Path(path)
	}
	read := func(name string) []byte {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	aggregatorOf := func(dir, name string, role dap.Role) *Aggregator {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, RecipeFile), read(string(file("joined", "https://helper.example/"))), 0o644); err != nil {
			t.Fatal(err)
		}
		a, err := LoadAggregator(filepath.Join(dir, name), role)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	adas, cleosHelper := aggregatorOf(ada, LeaderFile, dap.RoleLeader), aggregatorOf(cleo, HelperFile, dap.RoleHelper)
	with := func(dir string) []Invited { return []Invited{{File: invitationOf(dir, HelperRole)}} }
	task := &Task{Recipe: file("with cleo", "https://cleo.example/"), Invitations: with(cleo)}
	in, err := adas.NewTask(task, "ada", strings.ToUpper(cleos.Fingerprint))
	if err != nil {
		t.Fatal(err)
	}
	mine, err := adas.provide(t.Context(), aggregator.RecipeFile, in.Made, in.Terms)
	if err != nil {
		t.Fatal(err)
	}
	hers, err := cleosHelper.NewTask(&Task{Recipe: task.Recipe}, "cleo")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := cleosHelper.provide(t.Context(), aggregator.RecipeFile, hers.Made, hers.Terms)
	if err != nil {
		t.Fatal(err)
	}
	if mine.ID != theirs.ID || mine.VerifyKeys[verifyKeyID] != theirs.VerifyKeys[verifyKeyID] || len(mine.VerifyKeys) != 1 || mine.PeerToken != theirs.PeerToken ||
		mine.PeerToken == "" || mine.CollectorToken == "" {
		t.Error("leader and helper do not make the same of it")
	}
	if other, err := adas.provide(t.Context(), aggregator.RecipeFile, in.Made, []byte("{}")); err == nil || !strings.Contains(err.Error(), "https://helper.example/") {
		t.Errorf("with the helper that was joined: %+v, %v", other.ID, err)
	}

	// The helper's side: a leader that it has not joined.
	dora := filepath.Join(t.TempDir(), "dora")
	doras := mustInit(t, InitOptions{Dir: dora, Role: LeaderRole, Owner: "Dora", URL: "https://dora.example/", Proxied: true})
	if v := (&Task{Recipe: task.Recipe, Invitations: []Invited{{File: invitationOf(dora, LeaderRole)}}}); true {
		in, err := cleosHelper.NewTask(v, "cleo", doras.Fingerprint)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cleosHelper.provide(t.Context(), aggregator.RecipeFile, in.Made, in.Terms); err == nil || !strings.Contains(err.Error(), "https://dora.example/") {
			t.Errorf("a recipe of another leader than the invitation: %v", err)
		}
	}

	eve := filepath.Join(t.TempDir(), "eve")
	eves := answer(eve, "Eve", "https://eve.example/", false) // with a certificate of her own
	for name, c := range map[string]struct {
		invitations  []Invited
		fingerprints []string
		says         string
	}{
		"no fingerprint":        {with(cleo), nil, "Cleo, its owner"},
		"another fingerprint":   {with(cleo), []string{bens.Fingerprint}, "Cleo, its owner"},
		"two of one role":       {append(with(cleo), with(ben)...), []string{cleos.Fingerprint, bens.Fingerprint}, "second of a helper"},
		"one that has no part":  {[]Invited{{File: invitationOf(ada, LeaderRole)}}, []string{leader.Fingerprint}, "it is a leader's"},
		"a certificate its own": {with(eve), []string{eves.Fingerprint}, "its certificate"},
		"no file":               {[]Invited{{File: "nowhere.invitation"}}, []string{cleos.Fingerprint}, "nowhere.invitation"},
	} {
		bad := &Task{Recipe: task.Recipe, Invitations: c.invitations}
		var of *InvitationError
		if _, err := adas.NewTask(bad, "ada", c.fingerprints...); !errors.As(err, &of) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	alone := *adas
	alone.Agreement = Agreement{}
	if _, err := alone.NewTask(task, "ada", cleos.Fingerprint); err == nil || !strings.Contains(err.Error(), "[agreement]") {
		t.Errorf("without an agreement: %v", err)
	}

	// The file is another's now.
	if err := os.WriteFile(invitationOf(cleo, HelperRole), read(invitationOf(ben, HelperRole)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := adas.provide(t.Context(), aggregator.RecipeFile, in.Made, in.Terms); err == nil || !strings.Contains(err.Error(), bens.Fingerprint) {
		t.Errorf("another invitation in its place: %v", err)
	}
}
