// Package kernel lists the implementations of the inner loops of package vdaf, so that
// every test and vector can run on each of them, and benchmarks can name the one that
// ran.
//
// The implementation called "go" is the reference: always built, always supported.
// Another one is written in files that the purego tag leaves out; it declares a
// package-level bool, which its dispatching function reads before it calls the assembly,
// sets it where the processor will do, and registers it here. (A bool and a static call,
// rather than a function variable, because what is passed through a variable escapes to
// the heap.)
package kernel

import (
	"fmt"
	"slices"
	"strings"
)

// Go is the name of the reference.
const Go = "go"

// Impl is one implementation of one kernel.
type Impl struct {
	Kernel    string // package and function, such as "xof.permute"
	Name      string
	Supported bool // by this processor
	on        *bool
}

var all []Impl

// Register adds an implementation; it is called from variable initialisers and init
// functions only. on is nil for the reference, which runs when no other is on.
func Register(kernel, name string, supported bool, on *bool) struct{} {
	if (on == nil) != (name == Go) {
		panic("kernel: internal error: " + kernel + ": only the reference has no switch")
	}
	for _, i := range all {
		if i.Kernel == kernel && i.Name == name {
			panic("kernel: internal error: " + kernel + " " + name + " registered twice")
		}
	}
	all = append(all, Impl{kernel, name, supported, on})
	slices.SortFunc(all, func(a, b Impl) int { return strings.Compare(a.Kernel+" "+a.Name, b.Kernel+" "+b.Name) })
	return struct{}{}
}

// All returns every implementation, by kernel and name.
func All() []Impl { return slices.Clone(all) }

// Use turns the named implementation of each kernel on where there is one that is
// supported, and the reference elsewhere, until restore is called. It is for tests, and
// not safe while kernels run.
func Use(name string) (restore func(), err error) {
	type saved struct {
		on  *bool
		was bool
	}
	var old []saved
	known := false
	for _, i := range all {
		known = known || i.Name == name
	}
	if !known {
		return nil, fmt.Errorf("kernel: no implementation is called %q", name)
	}
	for _, i := range all {
		if i.on != nil {
			old = append(old, saved{i.on, *i.on})
			*i.on = i.Name == name && i.Supported
		}
	}
	return func() {
		for _, s := range old {
			*s.on = s.was
		}
	}, nil
}
