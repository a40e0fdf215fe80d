package leader

import (
	"context"
	"time"
)

// ConfirmClock takes the machine's clock for right, which [Leader.Standing] says is not
// plausible: what ends by time goes on. Call it before [Leader.Run].
func (l *Leader) ConfirmClock(ctx context.Context) (time.Time, error) { return l.steady.Confirm(ctx) }
