package payload

import "context"

// A Given is a store of objects that a service is given in place of the one that its options
// name, and the least size in bytes of what is put there.
type Given struct {
	Store
	RowBytes int64
}

// With returns a context in which leaders that have a database open with g. It is for tests
// (package aggregatortest), and for no option of a service, like the contexts of package
// rounds.
func With(ctx context.Context, g Given) context.Context {
	return context.WithValue(ctx, trial{}, g)
}

// For is what a service was given that is opened in ctx, if it was.
func For(ctx context.Context) (g Given, ok bool) {
	g, ok = ctx.Value(trial{}).(Given)
	return g, ok
}

type trial struct{}
