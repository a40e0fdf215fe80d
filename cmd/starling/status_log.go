package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/witness"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
)

// outerLog is a transparency log, as status and doctor look at it.
func outerLog(path string, c *deploy.TransparencyLog) outer {
	serve := "starling serve log " + path
	read := func(ctx context.Context) (*logserver.Status, *service.Readiness, error) {
		s := new(logserver.Status)
		if err := readLocal(ctx, c.Local.Address, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, c.Local.Address)
		return s, ready, err
	}
	return outer{"log", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: the log: %w", path, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintf(w, "log %s\n  entries    %d, of which %d are shown\n  holding    %d, in a bundle of %d bytes\n", s.Origin, s.Entries, s.Shown, s.Holding, s.BundleBytes)
			if !s.ShownAt.IsZero() {
				fmt.Fprintf(w, "  signed     %s\n", s.ShownAt.Format(time.RFC3339))
			}
			for _, x := range s.Witnesses {
				fmt.Fprintf(w, "  witness    %s\n", witnessLine(x))
			}
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration, key, policy and anchors can be read"}}
		s, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: fmt.Sprintf("no: devices go on with what they have, for %v at most", tlog.MaxAge), Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
		for _, x := range s.Witnesses {
			f := finding{Check: "witness", OK: x.Error == "", Found: witnessLine(x)}
			if !f.OK {
				f.Hint = "ask who runs it: starling doctor witness.toml"
			}
			all = append(all, f)
		}
		if len(s.Witnesses) == 0 {
			all = append(all, finding{Check: "witness", Found: "none is asked: devices believe the log alone", Hint: "name witnesses with their addresses in the policy: docs/log.md"})
		}
		if s.Unread > 0 {
			all = append(all, finding{Check: "entries", Found: fmt.Sprintf("%d are understood no more, and no device gets them", s.Unread),
				Hint: "the anchors have lost an owner, or the entries are of a later version of this program"})
		}
		return append(all, readyFindings(ready)...)
	}}
}

// witnessLine is where a witness of a log stands, in words.
func witnessLine(x logserver.WitnessStatus) string {
	switch {
	case x.At.IsZero():
		return x.Name + ": not asked yet"
	case x.Error != "":
		return x.Name + ": " + x.Error
	}
	return fmt.Sprintf("%s: has signed %d entries", x.Name, x.Size)
}

// outerWitness is a witness, as status and doctor look at it.
func outerWitness(path string, c *deploy.Witness) outer {
	serve := "starling serve witness " + path
	read := func(ctx context.Context) (*witness.Status, *service.Readiness, error) {
		s := new(witness.Status)
		if err := readLocal(ctx, c.Local.Address, s); err != nil {
			return nil, nil, err
		}
		ready, err := readReady(ctx, c.Local.Address)
		return s, ready, err
	}
	return outer{"witness", path, func(ctx context.Context) (any, func(io.Writer), error) {
		s, ready, err := read(ctx)
		if err != nil {
			return nil, nil, failf(exitUnreachable, serve, "%s: the witness: %w", path, err)
		}
		return map[string]any{"status": s, "ready": ready}, func(w io.Writer) {
			fmt.Fprintln(w, "witness")
			for _, l := range s.Logs {
				fmt.Fprintf(w, "  follows    %s, %d entries\n", l.Origin, l.Size)
			}
			for _, f := range s.Forks {
				fmt.Fprintf(w, "  FORK       %s\n", f)
			}
			writeReady(w, ready)
		}, nil
	}, func(ctx context.Context) []finding {
		if err := c.Check(); err != nil {
			return []finding{{Check: "files", Found: err.Error(), Hint: hintOf(err)}}
		}
		all := []finding{{Check: "files", OK: true, Found: "configuration and keys can be read"}}
		s, ready, err := read(ctx)
		switch {
		case errors.Is(err, errStopped):
			return append(all, finding{Check: "running", Found: "no: logs that need its signature show nothing new", Hint: serve})
		case err != nil:
			return append(all, finding{Check: "running", Found: err.Error()})
		}
		all = append(all, finding{Check: "running", OK: true, Found: "it answers on its local listener"})
		if len(s.Forks) > 0 {
			all = append(all, finding{Check: "forks", Found: fmt.Sprintf("a log has shown two trees: %v prove it", s.Forks), Hint: "tell those who use the log, and show them the files: docs/log.md"})
		}
		return append(all, readyFindings(ready)...)
	}}
}
