package helper

import (
	"context"
	"time"
)

// ConfirmClock takes the machine's clock for right, which [Helper.Standing] says is not
// plausible: what ends by time goes on. Call it before [Helper.Run].
func (h *Helper) ConfirmClock(ctx context.Context) (time.Time, error) { return h.steady.Confirm(ctx) }
