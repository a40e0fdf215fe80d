package task

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
)

// TestTableOpensOnce: readers of a task that was only noted get one and the same, which is
// opened once; what fails is tried again, and what is not there is not opened.
func TestTableOpensOnce(t *testing.T) {
	var tasks Table
	fails, opened := true, 0
	tasks.Open = func(id dap.TaskID) error {
		if fails {
			return errors.New("not now")
		}
		opened++ // one at a time
		tasks.Put(&Task{ID: id, Config: &dap.TaskConfiguration{}})
		return nil
	}
	begin, end := time.Unix(100, 0).UTC(), time.Unix(1<<40, 0).UTC()
	id := dap.TaskID{1}
	tasks.Note(id, Head{begin, end})
	tasks.Note(id, Head{})
	if h, ok := tasks.Head(id); !ok || !h.Begin.Equal(begin) || !h.End.Equal(end) || tasks.Len() != 1 || !tasks.Has(id) || tasks.IsOpen(id) {
		t.Fatalf("head %+v of %d tasks", h, tasks.Len())
	}
	if w, err := tasks.Find(id); w != nil || err == nil || tasks.Get(id) != nil || len(tasks.Opened()) != 0 {
		t.Fatalf("%v, %v", w, err)
	}
	fails = false
	var all sync.WaitGroup
	found := make([]*Task, 8)
	for i := range found {
		all.Go(func() { found[i] = tasks.Get(id) })
	}
	all.Wait()
	for _, w := range found {
		if w == nil || w != found[0] {
			t.Fatalf("readers have %p and %p", w, found[0])
		}
	}
	if w, err := tasks.Find(dap.TaskID{2}); w != nil || err != nil || opened != 1 || len(tasks.Opened()) != 1 || tasks.Len() != 1 {
		t.Errorf("opened %d, %v, %v", opened, w, err)
	}
	if tasks.Put(&Task{ID: id, Config: &dap.TaskConfiguration{}}) || tasks.Get(id) != found[0] {
		t.Error("a task that was opened is replaced")
	}
}

// TestDropAndTurn: of open tasks those are idle that nobody asked for in a turn, the longest
// unused first; one that is given up is opened again by who asks, and comes last among those
// that are open. Peek and the lists use none.
func TestDropAndTurn(t *testing.T) {
	table := new(Table)
	id := func(n byte) dap.TaskID { return dap.TaskID{n} }
	opened := 0
	table.Open = func(x dap.TaskID) error {
		opened++
		table.Put(&Task{ID: x, Config: new(dap.TaskConfiguration)})
		return nil
	}
	for n := range byte(5) {
		table.Note(id(n), Head{})
		if _, err := table.Find(id(n)); err != nil {
			t.Fatal(err)
		}
	}
	if idle := table.Turn(); len(idle) != 0 {
		t.Errorf("idle in the turn of their opening: %v", idle)
	}
	table.Get(id(1))
	table.Get(id(3))
	table.Peek(id(0))
	table.Turn()
	table.Get(id(3))
	if idle, want := table.Turn(), []dap.TaskID{id(0), id(2), id(4), id(1)}; !slices.Equal(idle, want) {
		t.Errorf("idle %v, want %v", idle, want)
	}
	var places []uint64
	for place := range table.Since(0) {
		places = append(places, place)
	}
	old := table.Opened()
	var forgot []dap.TaskID
	table.Drop([]dap.TaskID{id(0), id(1), id(9)}, func(w *Task) { forgot = append(forgot, w.ID) })
	if !slices.Equal(forgot, []dap.TaskID{id(0), id(1)}) || table.Peek(id(0)) != nil || table.IsOpen(id(1)) || !table.Has(id(1)) || table.Len() != 5 {
		t.Errorf("dropped: %v", forgot)
	}
	if len(old) != 5 || old[0].ID != id(0) {
		t.Error("a list that somebody has is another now")
	}
	if table.Get(id(1)) == nil || opened != 6 {
		t.Errorf("opened %d times", opened)
	}
	var since []dap.TaskID
	for place, w := range table.Since(places[4]) {
		if since = append(since, w.ID); place <= places[4] {
			t.Errorf("place %d after %d", place, places[4])
		}
	}
	if !slices.Equal(since, []dap.TaskID{id(1)}) || len(table.Opened()) != 4 {
		t.Errorf("opened since: %v, open %d", since, len(table.Opened()))
	}
}
