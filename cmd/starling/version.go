package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/starling-agg/starling/cmd/starling/internal/licenses"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// build says what this binary is made of.
type build struct {
	Version string   `json:"version"`
	Commit  string   `json:"commit,omitempty"`
	Changed bool     `json:"changed"`        // built from a tree that differs from the commit
	Lean    bool     `json:"lean,omitempty"` // for agents and accountants alone
	Go      string   `json:"go"`
	System  string   `json:"system"`
	DAP     string   `json:"dap"` // what a task speaks that names no draft
	Drafts  []string `json:"dap_drafts"`
	VDAF    int      `json:"vdaf_draft"`
}

func thisBuild() build {
	b := build{Version: "unreleased", Lean: lean, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH,
		DAP: dap.Draft18.String(), VDAF: vdaf.Version}
	for _, v := range dap.Versions {
		b.Drafts = append(b.Drafts, v.String())
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

func versionCommand() *command {
	return &command{
		name: "version", args: "[--json]",
		short: "Say which build this is and which drafts it speaks",
		examples: [][2]string{
			{"starling version --json", "the same for a program to read"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			return func(_ context.Context, e *env, args []string) error {
				if err := noArgs("version", args); err != nil {
					return err
				}
				b := thisBuild()
				if *asJSON {
					return e.json(b)
				}
				commit := ""
				if b.Commit != "" {
					commit = " commit " + b.Commit
					if b.Changed {
						commit += " with changes"
					}
				}
				if b.Lean {
					commit += ", for agents and accountants"
				}
				fmt.Fprintf(e.stdout, "starling %s%s\n%s %s\nspeaks %s, VDAF drafts %d to 20\n",
					b.Version, commit, b.Go, b.System, strings.Join(b.Drafts, " and "), b.VDAF)
				return nil
			}
		},
	}
}

func licensesCommand() *command {
	return &command{
		name: "licenses", args: "[--text] [--json] [MODULE...]",
		short: "List what this binary is built from and under which terms",
		examples: [][2]string{
			{"starling licenses", "one line a module"},
			{"starling licenses --text std", "the full terms of the standard library"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			text := flags.Bool("text", false, "print the full terms")
			return func(_ context.Context, e *env, args []string) error {
				all, err := licenses.All()
				if err != nil {
					return err
				}
				if info, ok := debug.ReadBuildInfo(); lean && ok {
					all = slices.DeleteFunc(all, func(m licenses.Module) bool {
						return m.Path != "std" && !slices.ContainsFunc(info.Deps, func(d *debug.Module) bool { return d.Path == m.Path })
					})
				}
				wanted := all[:0:0]
				for _, m := range all {
					if len(args) == 0 {
						wanted = append(wanted, m)
					}
					for _, a := range args {
						if a == m.Path {
							wanted = append(wanted, m)
						}
					}
				}
				if len(wanted) < len(args) {
					return failf(exitUsage, "starling licenses", "not every module named is part of this binary: %s",
						strings.Join(args, " "))
				}
				if !*text {
					for i := range wanted {
						wanted[i].Text = ""
					}
				}
				if *asJSON {
					return e.json(map[string]any{"modules": wanted})
				}
				for _, m := range wanted {
					fmt.Fprintf(e.stdout, "%-48s %-14s %s\n", m.Path, m.License, m.Version)
					if *text {
						fmt.Fprintf(e.stdout, "\n%s\n", m.Text)
					}
				}
				return nil
			}
		},
	}
}
