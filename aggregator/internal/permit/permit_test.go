package permit

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestBoard: sources do not take back one another's reasons, and what is freed is what no
// reason stops any more.
func TestBoard(t *testing.T) {
	const person Source = "person"
	var b Board
	one, two := dap.TaskID{1}, dap.TaskID{2}
	if err := b.May(one, All); err != nil {
		t.Errorf("an empty board: %v", err)
	}
	if freed := b.Put(one, Agreement, Reason{Release, "not compared", "wait"}); freed != 0 {
		t.Errorf("freed %b by a reason", freed)
	}
	b.Put(one, person, Reason{All, "held", "let go"})
	if err := b.May(two, All); err != nil {
		t.Errorf("another task: %v", err)
	}
	var stopped *Stopped
	if err := b.May(one, Take); !errors.As(err, &stopped) || err.Error() != "held" {
		t.Errorf("take: %v", err)
	}
	if err := b.May(one, Release); !errors.As(err, &stopped) || err.Error() != "not compared; held" {
		t.Errorf("release: %v", err)
	}
	if got := b.Without(Take); !slices.Equal(got, []dap.TaskID{one}) {
		t.Errorf("without take: %v", got)
	}
	if stops := b.Status(one); len(stops) != 2 || stops[0].From != "agreement" || !slices.Equal(stops[0].Stops, []string{"release"}) ||
		!slices.Equal(stops[1].Stops, []string{"take", "verify", "release"}) || stops[1].Do != "let go" {
		t.Errorf("status %+v", stops)
	}
	if freed := b.Put(one, person); freed != Take|Verify {
		t.Errorf("freed %b, where one reason still stops releases", freed)
	}
	if freed := b.Put(one, Agreement); freed != Release || b.May(one, All) != nil {
		t.Errorf("freed %b at the end", freed)
	}
}
