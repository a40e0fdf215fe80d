package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-agg/starling/aggregator/status"
)

// examineDatabase runs the checks of a database that processes share: they may run, and are
// not disturbed. Where this one is stopped, the findings about all of them come from there.
func examineDatabase(ctx context.Context, f aggregatorFile, stopped bool) (all []finding) {
	add := func(check string, err error, found, hint string) {
		if err != nil {
			found = err.Error()
		} else {
			hint = ""
		}
		all = append(all, finding{Check: check, OK: err == nil, Found: found, Hint: hint})
	}
	found, err := f.config.InspectDatabase(ctx)
	if err != nil {
		hint := "see that database.file leads to the server, and that it answers"
		if known := hintOf(err); known != "" {
			hint = known
		}
		add("database", err, "", hint)
		return all
	}
	if len(found.Faults) > 0 {
		err = errors.New(strings.Join(found.Faults, "; "))
	}
	switch {
	case found.Objects != nil:
		add("objects", found.Objects, "", "see [database.objects] in "+f.path+", and the credentials that are named there")
	default:
		add("database", err, "all invariants hold, as of one moment", "keep the database as it is and report this")
	}
	how := "encrypted, and the server is verified"
	if !found.Encrypted {
		how = "not encrypted, which is taken for a server on this machine alone"
	}
	add("connection", nil, how, "")
	var rights []string
	for _, r := range []struct {
		has  bool
		what string
	}{{found.Super, "is a superuser"}, {found.Server, "may make roles or databases, replicate, or pass rules by rows"},
		{found.Owns && f.config.Database.Owner != "", "owns the schema, or is of the role that does"}, {found.Rewrites, "may change or delete rows of the ledger"},
		{found.Unissues, "may lower how many requests an issuer has answered"}} {
		if r.has {
			rights = append(rights, r.what)
		}
	}
	err = nil
	if len(rights) > 0 {
		err = fmt.Errorf("the role in database.file has rights that serving does not need: it %s", strings.Join(rights, "; it "))
	}
	words := "the role that serves can neither change nor delete a row of the ledger, nor lower how many requests an issuer has answered"
	if found.Owns {
		words += "; it owns the tables, though, and could give itself the right: a role in database.owner keeps the two apart"
	}
	add("rights", err, words, `make it by CREATE ROLE ... LOGIN alone, and starling migrate as another role, the one in database.owner (docs/operating.md, "Several processes")`)
	switch {
	case found.Marks != nil:
		hint := "see that [database.marks] in " + f.path + " names the place where this aggregator's marks have always been, and that it is reached"
		if known := hintOf(found.Marks); known != "" {
			hint = known
		}
		add("marks", found.Marks, "", hint)
	case !f.config.Database.Marks.None:
		add("marks", nil, "the database is as far as they say that it has been", "")
	}
	s := &status.Status{Role: f.config.Role.String(), Now: found.Now, NoMarks: f.config.Database.Marks.None}
	s.AddReplicas(found.Replicas)
	live := 0
	for i := range s.Replicas {
		if s.Replicas[i].State == status.ReplicaLive {
			live++
		}
	}
	add("replicas", nil, counted(live, "live one", "live ones")+", of "+counted(len(s.Replicas), "process", "processes")+" within a day", "")
	if stopped { // else the one that runs has said so
		all = append(all, standingFound(s)...)
	}
	return all
}
