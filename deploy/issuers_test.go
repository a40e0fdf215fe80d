//go:build postgres

package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/database/databasetest"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// TestIssuersOnADatabase: an issuer beside each of two processes of a helper, from their
// files: what one has answered the other knows, and no register lies in either's data.
func TestIssuersOnADatabase(t *testing.T) {
	w := newCountedWorld(t)
	schema := databasetest.NewServer(t).Schema(t)
	w.write("secrets/database", schema.Owner)
	if _, err := database.AddWrappingKey(w.in("wrapping"), time.Now()); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(w.in(HelperFile))
	if err != nil {
		t.Fatal(err)
	}
	where := fmt.Sprintf("[database]\nfile = \"secrets/database\"\nschema = %q\nwrapping_keys = \"wrapping\"\n[database.marks]\nnone = true\n", schema.Name)
	for _, name := range []string{"one", "two"} {
		file := fmt.Sprintf(".issuer/%d.issuer", w.next.Epoch)
		key, err := os.ReadFile(w.in("helper" + file))
		if err == nil {
			err = os.Mkdir(w.in(name+".issuer"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.write(name+file, string(key))
		w.write(name+".toml", "engine = \"postgres\"\n"+strings.NewReplacer("data = \"helper\"", "data = \""+name+"\"", "\"helper.record\"", "\""+name+".record\"", "\"helper.issuer\"", "\""+name+".issuer\"").Replace(string(made))+where)
	}
	order := &visit.Order{Role: signed.Helper, Deployment: w.next.Deployment, Epoch: w.next.Epoch}
	public, err := arc.ReadPublicKey(w.next.Issuers.Helper[:])
	if err != nil {
		t.Fatal(err)
	}
	pending := arc.NewPending(arc.NewRequestContext(arc.Helper, w.next.Deployment, uint64(w.next.Epoch), public.ID()))
	order.Request = [arc.RequestSize]byte(pending.Request().Append(nil))
	now := time.Now()
	if err := order.Sign(signedtest.Signer(t, w.owners.Attester, now.Add(-time.Hour), 24*time.Hour), now); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one.toml", "two.toml"} {
		c, err := LoadAggregator(w.in(name), dap.RoleHelper)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		o, err := c.open(t.Context(), service.NewLogger(t.Output(), 99), aggregator.Observer{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
		if _, repeated, err := o.issuer.Issue(t.Context(), order); err != nil || repeated != (i > 0) {
			t.Errorf("%s: repeated %v, %v", name, repeated, err)
		}
		if _, err := fs.Stat(os.DirFS(string(c.Data)), registerDir); err == nil {
			t.Errorf("%s: a register lies in %s", name, c.Data)
		}
	}
}
