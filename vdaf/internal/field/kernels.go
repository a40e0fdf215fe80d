package field

import "github.com/starling-agg/starling/vdaf/internal/kernel"

// The loops that take most of the time of verification.
var (
	_ = kernel.Register("field.Field64.Columns", kernel.Go, true, nil)
	_ = kernel.Register("field.Field64.Dot", kernel.Go, true, nil)
	_ = kernel.Register("field.Field128.Columns", kernel.Go, true, nil)
	_ = kernel.Register("field.Field128.Dot", kernel.Go, true, nil)
)
