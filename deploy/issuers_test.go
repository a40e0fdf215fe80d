//go:build postgres

package deploy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/database/databasetest"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// A twoProcesses is a deployment one of whose aggregators is two processes on a database,
// one.toml and two.toml, each with directories of its own.
type twoProcesses struct {
	*countedWorld
	role   dap.Role
	schema *databasetest.Schema
}

func newTwoProcesses(t *testing.T, role dap.Role, file string) *twoProcesses {
	t.Helper()
	w := &twoProcesses{newCountedWorld(t), role, databasetest.NewServer(t).Schema(t)}
	if _, err := database.AddWrappingKey(w.in("wrapping"), time.Now()); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(w.in(file))
	if err != nil {
		t.Fatal(err)
	}
	name := role.String()
	for _, own := range []string{"one", "two"} {
		w.write("secrets/database."+own, w.schema.Owner)
		file := fmt.Sprintf(".issuer/%d.issuer", w.next.Epoch)
		key, err := os.ReadFile(w.in(name + file))
		if err == nil {
			err = os.Mkdir(w.in(own+".issuer"), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.write(own+file, string(key))
		w.write(own+".toml", "engine = \"postgres\"\n"+
			strings.NewReplacer(`data = "`+name+`"`, `data = "`+own+`"`, `"`+name+`.record"`, `"`+own+`.record"`, `"`+name+`.issuer"`, `"`+own+`.issuer"`).Replace(string(made))+
			fmt.Sprintf("[database]\nfile = \"secrets/database.%s\"\nschema = %q\nwrapping_keys = \"wrapping\"\n[database.marks]\nnone = true\n", own, w.schema.Name))
	}
	return w
}

// order is one of a device, which keeps the rest.
func (w *twoProcesses) order() (*visit.Order, *arc.Pending) {
	w.t.Helper()
	order := &visit.Order{Role: signed.Role(w.role), Deployment: w.next.Deployment, Epoch: w.next.Epoch}
	pending := arc.NewPending(arc.NewRequestContext(arc.Role(w.role), w.next.Deployment, uint64(w.next.Epoch), w.public().ID()))
	order.Request = [arc.RequestSize]byte(pending.Request().Append(nil))
	now := time.Now()
	if err := order.Sign(signedtest.Signer(w.t, w.owners.Attester, now.Add(-time.Hour), 24*time.Hour), now); err != nil {
		w.t.Fatal(err)
	}
	return order, pending
}

func (w *twoProcesses) public() *arc.PublicKey {
	w.t.Helper()
	b := w.next.Issuers.Helper
	if w.role == dap.RoleLeader {
		b = w.next.Issuers.Leader
	}
	public, err := arc.ReadPublicKey(b[:])
	if err != nil {
		w.t.Fatal(err)
	}
	return public
}

// entered demands so many requests of the deployment's next epoch in the database.
func (w *twoProcesses) entered(want int) {
	w.t.Helper()
	c, err := pgx.Connect(w.t.Context(), w.schema.Owner)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close(w.t.Context())
	var counted, there int
	err = c.QueryRow(w.t.Context(), fmt.Sprintf("SELECT requests, (SELECT count(*) FROM %[1]s.issued) FROM %[1]s.issuance WHERE deployment = $1 AND epoch = $2", w.schema.Name),
		w.next.Deployment[:], int64(w.next.Epoch)).Scan(&counted, &there)
	if err != nil || counted != want || there != want {
		w.t.Errorf("%d requests are counted and %d there, %v, want %d", counted, there, err, want)
	}
}

// openFile opens an aggregator from its file.
func openFile(ctx context.Context, t *testing.T, file string, role dap.Role) *opened {
	t.Helper()
	c, err := LoadAggregator(file, role)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	o, err := c.open(ctx, service.NewLogger(t.Output(), 99), aggregator.Observer{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// TestIssuersOnADatabase: an issuer beside each of two processes of a helper, from their
// files: what one has answered the other knows, up to what the manifest says in all, either
// verifies by the manifest's key, and no register lies in either's data.
func TestIssuersOnADatabase(t *testing.T) {
	w := newTwoProcesses(t, dap.RoleHelper, HelperFile)
	var both []*opened
	for _, name := range []string{"one", "two"} {
		both = append(both, openFile(t.Context(), t, w.in(name+".toml"), w.role))
		if _, err := fs.Stat(os.DirFS(w.in(name)), registerDir); err == nil {
			t.Errorf("%s: a register lies in its data", name)
		}
	}
	for range 2 { // as many as the manifest says
		order, _ := w.order()
		for i, o := range both {
			if _, repeated, err := o.issuer.Issue(t.Context(), order); err != nil || repeated != (i > 0) {
				t.Errorf("process %d: repeated %v, %v", i, repeated, err)
			}
		}
	}
	late, _ := w.order()
	for i, o := range both {
		if _, _, err := o.issuer.Issue(t.Context(), late); err == nil || !strings.Contains(err.Error(), "full") {
			t.Errorf("process %d: a third of two: %v", i, err)
		}
		beside := issued{o.issuer}
		if _, key, err := beside.Verifier(t.Context(), w.next.Deployment, uint64(w.next.Epoch)); err != nil || key != w.public().ID() {
			t.Errorf("process %d verifies by another key, %v", i, err)
		}
		if _, _, err := beside.Verifier(t.Context(), w.next.Deployment, uint64(w.next.Epoch+5)); !errors.Is(err, aggregator.ErrNoIssuerKey) {
			t.Errorf("process %d: of an epoch of which nothing was given out: %v", i, err)
		}
		if _, err := beside.Issued(t.Context(), w.next.Deployment, uint64(w.next.Epoch)); err == nil {
			t.Errorf("process %d has counted an epoch that has not begun", i)
		}
	}
	w.entered(2)
}

// processFile says to a run of this test binary which aggregator's file it is to open, and
// answer the order that lies beside it.
const processFile = "STARLING_TEST_ISSUER"

// TestIssuerProcess is the process that [TestIssuersKilled] kills; by itself it does nothing.
func TestIssuerProcess(t *testing.T) {
	file := os.Getenv(processFile)
	if file == "" {
		return
	}
	b, err := os.ReadFile(file + ".order")
	if err != nil {
		t.Fatal(err)
	}
	order, err := visit.ReadOrder(b)
	if err != nil {
		t.Fatal(err)
	}
	o := openFile(t.Context(), t, file, dap.RoleHelper)
	_, _, err = o.issuer.Issue(t.Context(), &order)
	t.Fatalf("it was answered, or refused: %v", err)
}

// TestIssuersKilled: a process is killed, as by kill -9, when its request is entered and
// before it knows: the device comes again, to another process and to the first one once it
// is started again, has a credential, and counts once.
func TestIssuersKilled(t *testing.T) {
	w := newTwoProcesses(t, dap.RoleHelper, HelperFile)
	two := openFile(t.Context(), t, w.in("two.toml"), w.role) // which makes the tables
	order, pending := w.order()
	w.write("one.toml.order", string(order.Append(nil)))
	var mu sync.Mutex
	entering, lost, reached := false, false, make(chan struct{})
	line := databasetest.NewLine(t, w.schema.Owner, func(sql string) databasetest.Fate {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case lost: // it looks what became of it, and never hears
			select {
			case <-reached:
			default:
				close(reached)
			}
			return databasetest.LostBefore
		case strings.Contains(sql, "INSERT INTO issued"):
			entering = true
		case entering && strings.HasPrefix(sql, "COMMIT"):
			lost = true
			return databasetest.LostAfter
		}
		return databasetest.Arrives
	}, nil)
	w.write("secrets/database.one", line.Connection)
	process := exec.Command(os.Args[0], "-test.run=^TestIssuerProcess$")
	process.Env = append(os.Environ(), processFile+"="+w.in("one.toml"))
	out := new(strings.Builder)
	process.Stdout, process.Stderr = out, out
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	select {
	case <-reached:
		_ = process.Process.Kill()
		<-ended
	case err := <-ended:
		t.Fatalf("%v: %s", err, out)
	}
	w.entered(1)
	w.write("secrets/database.one", w.schema.Owner)
	one := openFile(t.Context(), t, w.in("one.toml"), w.role)
	for i, o := range []*opened{two, one} {
		b, repeated, err := o.issuer.Issue(t.Context(), order)
		if err != nil || !repeated {
			t.Fatalf("process %d: repeated %v, %v", i, repeated, err)
		}
		response, err := arc.ReadCredentialResponse(b)
		if err == nil {
			_, err = pending.Finalize(w.public(), response)
		}
		if err != nil {
			t.Errorf("process %d gives no credential: %v", i, err)
		}
	}
	w.entered(1)
}

// TestIssuersOfALeader: devices visit, through their attester, a leader that is two processes
// on a database, the one after the other: each device has its credentials, one that comes
// again has the same, and there are no more than the manifest says.
func TestIssuersOfALeader(t *testing.T) {
	w := newTwoProcesses(t, dap.RoleLeader, LeaderFile)
	w.serve(w.countedWorld.aggregator(HelperFile, dap.RoleHelper, Listeners{Public: w.servers.Helper, Local: w.servers.HelperLocal}))
	w.others()
	at := Listeners{Public: w.servers.Leader, Local: w.servers.LeaderLocal}
	var wallets []*credentials.Wallet
	for i, name := range []string{"one", "two", "one"} {
		parts := w.countedWorld.aggregator(name+".toml", dap.RoleLeader, at)
		at = Listeners{} // whoever comes next opens the addresses again
		ctx, stop := context.WithCancel(t.Context())
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- service.Run(ctx, 0, func() { close(started) }, parts...) }()
		select {
		case <-started:
		case err := <-ended:
			t.Fatal(err)
		}
		x := w.wallet(uint64(i))
		if err := x.Enrol(t.Context(), []byte(w.codes[i])); err != nil {
			t.Fatal(err)
		}
		var refused *credentials.RefusedError
		switch err := x.Visit(t.Context(), w.next); {
		case i < 2 && err != nil:
			t.Fatal(err)
		case i == 2 && (!errors.As(err, &refused) || refused.Word != "full"):
			t.Errorf("a third of two devices: %v", err)
		}
		for _, before := range wallets {
			if err := before.Visit(t.Context(), w.next); err != nil {
				t.Errorf("again, at %s: %v", name, err)
			}
		}
		wallets = append(wallets, x)
		w.entered(min(i+1, 2))
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
