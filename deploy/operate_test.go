package deploy

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestOperator: what changes or tells something is done for nobody who has not the token of
// this life, and not for a page in a browser, whose requests have other media types.
func TestOperator(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer addresses.Close()
	r, err := account.New(account.Options{Name: "operator", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(),
		MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	addresses.Close() // the aggregator listens there
	a, err := LoadAggregator(filepath.Join(dir, LeaderFile), dap.RoleLeader)
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 { // lives
		stop := servicetest.Serve(t, a.Parts(slog.New(slog.DiscardHandler), Listeners{})...)
		token, err := a.OperatorToken()
		if err != nil || len(token) != 64 || token == before {
			t.Errorf("token %q after %q, %v", token, before, err)
		}
		ask := func(method, path, media, bearer string) int {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+string(a.Local.Address)+path, strings.NewReader(`{"reason": "it is looked at"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", media)
			if bearer != "" {
				req.Header.Set("Authorization", "Bearer "+bearer)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		for _, path := range []string{status.HoldPath, status.ResumePath, status.DropPath, status.BackupPath} {
			for _, x := range []struct {
				method, media, bearer string
				want                  int
			}{
				{"POST", "application/json", "", 401}, {"POST", "application/json", before + "0", 401},
				{"POST", "application/json", strings.Repeat("0", 64), 401}, {"POST", "text/plain", token, 415}, {"GET", "application/json", token, 405},
			} {
				if got := ask(x.method, path, x.media, x.bearer); got != x.want {
					t.Errorf("%s %s %s %q: status %d, want %d", x.method, path, x.media, x.bearer, got, x.want)
				}
			}
			if got := ask("POST", path, "application/json", token); got != 200 {
				t.Errorf("%s with the token: status %d", path, got)
			}
		}
		before = token
		stop()
		http.DefaultClient.CloseIdleConnections() // or the next life is asked over one of this
		if _, err := a.OperatorToken(); err == nil {
			t.Error("the token outlives its life")
		}
	}
}
