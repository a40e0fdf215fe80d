package deploy

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var configurationUpdate = flag.Bool("configuration.update", false, "write docs/configuration.md anew from the comments")

// comments are those of the fields of all structs of a directory, by
// "package.Type.Field".
func comments(t *testing.T, into map[string]string, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range fields.Fields.List {
				for _, name := range f.Names {
					into[file.Name.Name+"."+spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
			return true
		})
	}
}

// spoken is a comment with the names that fields have in the file in place of those that
// they have in Go. A word that begins a sentence is a name only in the first place.
func spoken(text string, of reflect.Type) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		name := strings.TrimRight(word, ".,;:")
		f, ok := of.FieldByName(name)
		if key := f.Tag.Get("toml"); ok && key != "-" && (i == 0 || !strings.HasSuffix(words[i-1], ".")) {
			words[i] = "`" + key + "`" + strings.TrimPrefix(word, name)
		}
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", "\\|")
}

// keys writes a line for each key of a struct: its name in the file, and its comment.
func keys(t *testing.T, b *strings.Builder, all map[string]string, at reflect.Type, prefix string) (n int) {
	t.Helper()
	for i := range at.NumField() {
		f := at.Field(i)
		key := f.Tag.Get("toml")
		if key == "-" {
			continue
		}
		if key == "" {
			t.Fatalf("%s.%s has no name in a file", at.Name(), f.Name)
		}
		text := all[at.String()+"."+f.Name]
		if !strings.HasPrefix(text, f.Name+" ") {
			t.Fatalf("%s.%s, %s, has no comment that begins with its name: %q", at, f.Name, prefix+key, text)
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", prefix+key, spoken(text, at))
		n++
		inside := f.Type
		if inside.Kind() == reflect.Pointer {
			inside = inside.Elem()
		}
		if inside.Kind() == reflect.Slice {
			inside, key = inside.Elem(), key+"[]"
		}
		if inside.Kind() == reflect.Struct && inside.PkgPath() != "time" {
			n += keys(t, b, all, inside, prefix+key+".")
		}
	}
	return n
}

const configurationHead = `# Configurations

Every key of every file. The files are TOML; a key that is not here is refused, a path is relative to the file, and a
secret is a file that only its owner may read. ` + "`starling init`" + ` writes files to begin with, and ` + "`starling check`" + ` says all
that is wrong with one. ` + "`tasks[].recipe`" + ` is the line ` + "`recipe`" + ` below ` + "`[[tasks]]`" + `, ` + "`public.address`" + ` the line ` + "`address`" + `
below ` + "`[public]`" + `.

This page is made from the comments of the code (` + "`go test ./deploy -run Configuration -configuration.update`" + `), and a
test holds the two together.
`

// TestConfigurationPage: docs/configuration.md has each key of each file, in the words of
// the code.
func TestConfigurationPage(t *testing.T) {
	all := map[string]string{}
	comments(t, all, ".")
	comments(t, all, "../internal/service")
	var b strings.Builder
	b.WriteString(configurationHead)
	n := 0
	for _, file := range []struct {
		title string
		of    any
	}{
		{"leader.toml and helper.toml", Aggregator{}}, {"collector.toml", Collector{}}, {"relay.toml", Relay{}}, {"gateway.toml", Gateway{}},
		{"log.toml", TransparencyLog{}}, {"witness.toml", Witness{}}, {"attester.toml", Attester{}},
		{"hop.toml", Hop{}}, {"analyzer.toml", Analyzer{}}, {"controller.toml", Controller{}}, {"training.toml", Training{}}, {"agent.toml", Agent{}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| key | what it says |\n|---|---|\n", file.title)
		n += keys(t, &b, all, reflect.TypeOf(file.of), "")
	}
	if n < 120 {
		t.Errorf("only %d keys", n)
	}
	const page = "../docs/configuration.md"
	if *configurationUpdate {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(is), "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s, line %d: %q is not what the code says; go test ./deploy -run Configuration -configuration.update", page, i+1, line)
		}
	}
	if len(is) != b.Len() {
		t.Errorf("%s is shorter than what the code says", page)
	}
}
