// Gen writes the licences of the modules that cmd/starling is built from, on any of the
// systems it is built for.
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/starling-agg/starling/cmd/starling/internal/licenses"
)

const binary = "github.com/starling-agg/starling/cmd/starling"

// names are the files that modules keep their terms in.
var names = []string{"LICENSE", "LICENSE.md", "LICENSE.txt", "LICENSE-SIL", "LICENCE", "COPYING", "NOTICE", "NOTICE.txt", "PATENTS",
	"licenses/ftl.txt"}

// marks tell terms by a phrase of theirs.
var marks = []struct{ phrase, spdx string }{
	{"Apache License", "Apache-2.0"},
	{"SIL OPEN FONT LICENSE", "OFL-1.1"},
	{"FreeType Project LICENSE", "FTL"},
	{"Neither the name of", "BSD-3-Clause"},
	{"may not be used to endorse", "BSD-3-Clause"},
	{"Permission is hereby granted, free of charge", "MIT"},
	{"Permission to use, copy, modify, and/or distribute", "ISC"},
	{"BSD 3-Clause", "BSD-3-Clause"},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gen FILE")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(file string) error {
	found := map[string]licenses.Module{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-deps", "-json=Module", binary)
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("go list for %s: %w", system, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if p.Module == nil || p.Module.Main {
				continue
			}
			if _, ok := found[p.Module.Path]; ok {
				continue
			}
			text, spdx, err := terms(p.Module.Dir)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Module.Path, err)
			}
			found[p.Module.Path] = licenses.Module{Path: p.Module.Path, Version: p.Module.Version, License: spdx, Text: text}
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	text, spdx, err := terms(strings.TrimSpace(string(root)))
	if err != nil {
		return fmt.Errorf("standard library: %w", err)
	}
	found["std"] = licenses.Module{Path: "std", Version: runtime.Version(), License: spdx, Text: text}

	all := make([]licenses.Module, 0, len(found))
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b licenses.Module) int { return cmp.Compare(a.Path, b.Path) })
	for _, m := range all {
		fmt.Printf("%-45s %-40s %s\n", m.Path, m.Version, m.License)
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(z).Encode(all); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// terms reads what a module's root says.
func terms(dir string) (text, spdx string, err error) {
	var kinds []string
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		text += "--- " + name + "\n" + string(b) + "\n"
		for _, m := range marks {
			if bytes.Contains(b, []byte(m.phrase)) && !slices.Contains(kinds, m.spdx) && name != "NOTICE" && name != "PATENTS" {
				kinds = append(kinds, m.spdx)
				break
			}
		}
	}
	if len(kinds) == 0 {
		return "", "", fmt.Errorf("no terms recognised in %s", dir)
	}
	return text, strings.Join(kinds, " AND "), nil
}
