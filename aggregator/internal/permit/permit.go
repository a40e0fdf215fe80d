// Package permit says what a task may do now: take uploads, verify reports, release
// batches. Each source of reasons against it (what the two aggregators do not agree on, a
// person who holds a task) writes its own on one [Board] and takes back none but these;
// code that is about to do one of the three asks the board first.
//
// A reason is for now. Nothing is refused for good because of one: uploads are answered
// with a problem after which a client comes again, jobs and collections wait.
package permit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// An Act is what a task may be kept from, or several of these.
type Act uint8

// Acts.
const (
	Take    Act = 1 << iota // acknowledge uploads
	Verify                  // run aggregation jobs
	Release                 // drain, close and hand out batches
)

// All is every act.
const All = Take | Verify | Release

// Names are the acts of a, as [status.Stop] has them.
func (a Act) Names() []string {
	var names []string
	for i, name := range []string{status.Take, status.Verify, status.Release} {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// A Source is who gives reasons.
type Source string

// Sources.
const (
	Agreement Source = "agreement"     // what was compared with the other aggregator
	Restore   Source = "restore"       // the store was restored from a backup
	Hold      Source = status.FromHold // what a person holds, or has to look at
)

// A Reason is one thing that keeps a task from acts, and what a person does about it.
type Reason struct {
	Stops   Act
	Why, Do string
}

// Stopped says that a task may not do something now. Its text is for operators; strangers
// are told that they come again.
type Stopped struct{ Reasons []Reason }

func (e *Stopped) Error() string {
	why := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		why[i] = r.Why
	}
	return strings.Join(why, "; ")
}

// A Board holds the reasons of all tasks of a service. The zero value holds none. Safe for
// concurrent use.
type Board struct {
	mu sync.RWMutex
	m  map[dap.TaskID]map[Source][]Reason
}

// Put replaces what a source has said of a task, and returns the acts that the task may do
// now and might not before.
func (b *Board) Put(task dap.TaskID, from Source, reasons ...Reason) (freed Act) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.stopped(task)
	if b.m == nil {
		b.m = make(map[dap.TaskID]map[Source][]Reason)
	}
	if b.m[task] == nil {
		b.m[task] = make(map[Source][]Reason)
	}
	if len(reasons) == 0 {
		delete(b.m[task], from)
	} else {
		b.m[task][from] = slices.Clone(reasons)
	}
	return before &^ b.stopped(task)
}

// Forget takes back what a source has said of a task that is given up: it says it again when
// the task is taken up, before anybody can ask.
func (b *Board) Forget(task dap.TaskID, from Source) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.m[task], from); len(b.m[task]) == 0 {
		delete(b.m, task)
	}
}

// stopped is all that a task may not do; the lock is held.
func (b *Board) stopped(task dap.TaskID) (acts Act) {
	for _, reasons := range b.m[task] {
		for _, r := range reasons {
			acts |= r.Stops
		}
	}
	return acts
}

// May is nil, or a *[Stopped] with the reasons why the task may not do any of the acts.
func (b *Board) May(task dap.TaskID, acts Act) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var e Stopped
	b.each(task, func(_ Source, r Reason) {
		if r.Stops&acts != 0 {
			e.Reasons = append(e.Reasons, r)
		}
	})
	if e.Reasons == nil {
		return nil
	}
	return &e
}

// Kept counts the tasks that each source keeps from an act.
func (b *Board) Kept(act Act) map[Source]int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	kept := make(map[Source]int)
	for _, sources := range b.m {
		for from, reasons := range sources {
			if slices.ContainsFunc(reasons, func(r Reason) bool { return r.Stops&act != 0 }) {
				kept[from]++
			}
		}
	}
	return kept
}

// Without lists the tasks that may not do any of the acts.
func (b *Board) Without(acts Act) (tasks []dap.TaskID) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for task := range b.m {
		if b.stopped(task)&acts != 0 {
			tasks = append(tasks, task)
		}
	}
	slices.SortFunc(tasks, func(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) })
	return tasks
}

// Status lists the reasons of a task for its operator.
func (b *Board) Status(task dap.TaskID) (stops []status.Stop) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	b.each(task, func(from Source, r Reason) {
		stops = append(stops, status.Stop{From: string(from), Stops: r.Stops.Names(), Why: r.Why, Do: r.Do})
	})
	return stops
}

// each calls f with the reasons of a task, by source; the lock is held.
func (b *Board) each(task dap.TaskID, f func(Source, Reason)) {
	for _, from := range slices.SortedFunc(maps.Keys(b.m[task]), cmp.Compare[Source]) {
		for _, r := range b.m[task][from] {
			f(from, r)
		}
	}
}
