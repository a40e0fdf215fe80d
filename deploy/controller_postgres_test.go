//go:build postgres

package deploy

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/database/databasetest"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
)

// TestControllerOnADatabase: a training on a database goes on at another machine, which has
// none of the first one's directories, in the middle of a round: its sum is asked for anew
// and no round is lost. While the first runs the second does not start, nor is the journal
// looked at from there.
func TestControllerOnADatabase(t *testing.T) {
	schema := databasetest.NewServer(t).Schema(t)
	const rounds = 6 // the second one is refused after some seconds, on a busy machine after rounds
	x := newTrained(t, 6, rounds, 2, func(c *Controller) {
		c.Engine, c.Database = Postgres, ControllerDatabase{File: service.Secret(filepath.Join(t.TempDir(), "database")), Schema: schema.Name}
		if err := os.WriteFile(string(c.Database.File), []byte(schema.Owner), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	nothing := func(*round.Controller) error { return nil }
	if err := x.controller.Stopped(t.Context(), nothing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that never ran: %v", err)
	}
	other := *x.controller
	other.Data, other.Record = service.Path(t.TempDir()), service.Path(t.TempDir())
	stop := x.serve()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	defer x.crew(ctx, cancel, t)()
	if err := other.Stopped(ctx, nothing); !errors.Is(err, round.ErrHeld) {
		t.Errorf("it is looked at while it runs: %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := service.Run(ctx, 0, nil, other.Parts(log, Listeners{})[:1]...); !errors.Is(err, round.ErrHeld) {
		t.Errorf("a second one: %v", err)
	}
	moved := false
	for s := x.status(); s.Stepped < rounds; s = x.status() {
		if s.Skipped > 0 {
			t.Fatalf("%+v", s)
		}
		if !moved && s.Stepped > 0 && s.Begun > s.Stepped { // in the middle of a round
			moved = true
			stop()
			other.Control = ""
			stop = servicetest.Serve(t, other.Parts(log, Listeners{})...)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not over in time: %+v", s)
		case <-time.After(50 * time.Millisecond):
		}
	}
	stop()
	if !moved {
		t.Fatal("it was over before it moved")
	}
	if _, err := os.Stat(filepath.Join(string(x.controller.Data), "journal")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a journal lies in its data: %v", err)
	}
	err := x.controller.Stopped(t.Context(), func(r *round.Controller) error {
		s, err := r.Status()
		if err != nil || s.Stepped != rounds || s.Skipped != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
