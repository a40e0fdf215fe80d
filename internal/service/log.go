package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"
)

// NewLogger returns the logger of a service: one JSON object a line on w, guarded as the
// package comment says. Attributes that are public by design keep long opaque values:
// "task", "recipe", "version" and "commit".
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(guard{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})})
}

// A guard passes on only what may be written: it cuts addresses and long opaque strings
// (report ids, tokens, shares, keys) out of messages, strings and error texts, and
// withholds values of types whose text it cannot judge. It is the last line of defence;
// callers still log nothing of the kind.
type guard struct{ next slog.Handler }

func (g guard) Enabled(ctx context.Context, level slog.Level) bool { return g.next.Enabled(ctx, level) }

func (g guard) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, scrub(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(scrubAttr(a))
		return true
	})
	return g.next.Handle(ctx, clean)
}

func (g guard) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = scrubAttr(a)
	}
	return guard{g.next.WithAttrs(clean)}
}

func (g guard) WithGroup(name string) slog.Handler { return guard{g.next.WithGroup(name)} }

// public names the attributes whose values everyone may know and that look like secrets.
var public = map[string]bool{"task": true, "recipe": true, "version": true, "commit": true}

func scrubAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
	case slog.KindString:
		if !public[a.Key] {
			v = slog.StringValue(scrub(v.String()))
		}
	case slog.KindGroup:
		group := v.Group()
		clean := make([]slog.Attr, len(group))
		for i, b := range group {
			clean[i] = scrubAttr(b)
		}
		v = slog.GroupValue(clean...)
	default:
		switch x := v.Any().(type) {
		case nil:
		case error:
			v = slog.StringValue(scrub(x.Error()))
		case []string:
			clean := make([]string, len(x))
			for i := range x {
				clean[i] = scrub(x[i])
			}
			v = slog.AnyValue(clean)
		case []int, []int64, []uint64, []time.Duration:
		default:
			v = slog.StringValue(fmt.Sprintf("[withheld %T]", x))
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// The patterns err towards cutting too much: a version number of four parts reads as an
// address. Host names are not recognised, except after "lookup", as the resolver words
// its errors.
var (
	addresses = regexp.MustCompile(
		`\[?(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?:%[0-9A-Za-z]+)?\]?(?::\d{1,5})?` +
			`|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b`)
	lookups = regexp.MustCompile(`\blookup [^ ]+( on [^ ]+)?`)
	// opaque matches 16 bytes or more in hexadecimal, base64 or base64url: 22 letters,
	// with no space between them.
	opaque = regexp.MustCompile(`[0-9A-Za-z+_-]{22,}={0,2}`)
	digit  = regexp.MustCompile(`[0-9]`)
	upper  = regexp.MustCompile(`[A-Z]`)
)

// scrub cuts addresses and long opaque strings out of s.
func scrub(s string) string {
	if len(s) < 2 {
		return s
	}
	s = lookups.ReplaceAllString(s, "lookup [address]")
	s = addresses.ReplaceAllStringFunc(s, func(m string) string {
		// Times of day and line numbers have colons too; an IPv6 address has two in a
		// row, or six and more.
		if !strings.Contains(m, ".") && !strings.Contains(m, "::") && strings.Count(m, ":") < 6 {
			return m
		}
		return "[address]"
	})
	return opaque.ReplaceAllStringFunc(s, func(m string) string {
		// Long words of prose and identifiers, such as aggregation_job_continue, hold
		// neither digits nor capitals.
		if !digit.MatchString(m) && !upper.MatchString(m) {
			return m
		}
		return "[withheld]"
	})
}
