package starling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A stray is a word that docs/glossary.md has another one for.
type stray struct {
	word *regexp.Regexp
	say  string   // the word of the glossary
	in   []string // the rooms and pages where it is one; everywhere without
	not  []string // and where it is none
	most map[string]int
}

// strays are counted by the first folder of their path. The most that a folder may have are
// names that are kept: certificate.Law, its field, and local's Gaussian.Law.
var strays = []stray{
	{word: words(`laws?`), say: "distribution", not: []string{"docs/proofs"}, most: map[string]int{"dp": 3}},
	{word: words(`pairs? of (laws|distributions) that dominates?`), say: "dominating pair"},
	{word: words(`keys? of (a|one|that) day`), say: "daily HPKE key"},
	{word: words(`account of (what|a device)`), say: "ledger, or privacy budget"},
	{word: words(`buckets?`), say: "batch bucket, or time unit", in: []string{"aggregator", "anonymity", "sealed"}},
	{word: words(`coins?`), say: "draw", in: []string{"aggregator", "anonymity", "dap", "sealed", "vdaf", "dp/noise", "dp/local"}},
	{word: words(`(of|after|at most|in|over|for|with|than|by|among) (so|that) (many|much)`), say: "the parameter's name"},
	{word: regexp.MustCompile(`(?:^|[.:] )(?:Who|What|Whoever|Whatever) \w+`), say: "a sentence's subject"},
}

func words(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`) }

// proper are words of others' that are no strays: DAP's, S3's, and Go's.
var proper = regexp.MustCompile(`(?i)\b(?:batch[ -]|S3 )buckets?\b|\b[a-z]+\[[a-z]\]|"[^"]*"|` + "`[^`]*`")

// TestGlossary counts strays in comments of product code, in README and docs, and in what
// --help prints.
func TestGlossary(t *testing.T) {
	found := make([]map[string][]string, len(strays))
	for i := range found {
		found[i] = make(map[string][]string)
	}
	texts := 0
	count := func(where, at, text string) {
		texts++
		text = proper.ReplaceAllString(strings.Join(strings.Fields(text), " "), "")
		wing, _, _ := strings.Cut(where, "/")
		for i, s := range strays {
			if s.in != nil && !within(where, s.in) || within(where, s.not) {
				continue
			}
			for _, m := range s.word.FindAllString(text, -1) {
				found[i][wing] = append(found[i][wing], at+": "+m)
			}
		}
	}
	for _, page := range append(pages(t), "cmd/starling/testdata/frozen/help.txt") {
		if filepath.ToSlash(page) != "docs/glossary.md" {
			count(filepath.ToSlash(page), page, read(t, page))
		}
	}
	for _, p := range packages(t) {
		if testOnly(p.name()) {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range file.Comments {
				count(p.name()+"/"+name, p.name()+"/"+name+":"+lineOf(fset, c), prose(c))
			}
		}
	}
	if texts < 5000 {
		t.Fatalf("only %d comments and pages read", texts)
	}
	for i, s := range strays {
		for wing, at := range found[i] {
			if len(at) > s.most[wing] {
				slices.Sort(at)
				t.Errorf("%s: %d strays from docs/glossary.md, which has %q, want %d:\n%s", wing, len(at), s.say, s.most[wing], strings.Join(at, "\n"))
			}
		}
	}
}

func lineOf(fset *token.FileSet, n ast.Node) string {
	_, line, _ := strings.Cut(fset.Position(n.Pos()).String(), ".go:")
	return line
}

// prose is a comment without what is set apart in it as code.
func prose(c *ast.CommentGroup) string {
	var b strings.Builder
	for line := range strings.Lines(c.Text()) {
		if !strings.HasPrefix(line, "\t") {
			b.WriteString(line)
		}
	}
	return b.String()
}
