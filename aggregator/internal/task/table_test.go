package task

import (
	"errors"
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
