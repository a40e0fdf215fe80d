package recipe

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/text/unicode/norm"
)

// Bounds of the names of a [Histogram]'s buckets.
const (
	MaxLabels = 512
	MaxLabel  = 64 // bytes
)

// Label is the name of bucket i: that of Labels, and the number where there are none.
func (r *Recipe) Label(i int) string {
	if i >= 0 && i < len(r.Labels) {
		return r.Labels[i]
	}
	return strconv.Itoa(i)
}

// Bucket is the bucket of a [Histogram] that a text names, by its name or its number. No
// name is the number of another bucket, so that no text stands for two.
func (r *Recipe) Bucket(text string) (uint32, bool) {
	text = norm.NFC.String(text)
	for i, label := range r.Labels {
		if label == text {
			return uint32(i), true
		}
	}
	buckets, ok := r.buckets()
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), ok && err == nil && n < uint64(buckets)
}

// describeLabels names the buckets for people; it is empty where they have no names.
func (r *Recipe) describeLabels() string {
	if len(r.Labels) == 0 {
		return ""
	}
	return "the buckets, from 0 on: " + strings.Join(r.Labels, "; ")
}

func addLabels(b *cryptobyte.Builder, labels []string) {
	for _, label := range labels {
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(label)) })
	}
}

func readLabels(d *decoder) (labels []string) {
	for d.err == nil && !d.s.Empty() {
		if labels = append(labels, string(d.bytes8("label"))); len(labels) > MaxLabels {
			d.fail(fmt.Sprintf("more than %d labels", MaxLabels))
		}
	}
	if d.err == nil && len(labels) == 0 {
		d.fail("no labels are said by saying nothing")
	}
	return labels
}

// labels refuses names that could be taken for one another: each bucket has one, in the
// one spelling that Unicode has for it, without what cannot be seen.
func (v *validator) labels(r *Recipe) {
	if r.Labels == nil {
		return
	}
	buckets, ok := r.buckets()
	if !ok {
		v.add("labels", "go with a histogram or with groups")
		return
	}
	if !v.between("labels", uint64(len(r.Labels)), 1, MaxLabels) {
		return
	}
	if len(r.Labels) != int(buckets) {
		v.add("labels", "are %d, and there are %d buckets", len(r.Labels), buckets)
		return
	}
	seen := make(map[string]int)
	for i, label := range r.Labels {
		field := fmt.Sprintf("labels[%d]", i)
		v.text(field, label, 1, MaxLabel, false)
		if !norm.NFC.IsNormalString(label) {
			v.add(field, "is not in the normal form NFC of Unicode")
		}
		if first, twice := seen[label]; twice {
			v.add(field, "is that of bucket %d, too", first)
			continue
		}
		seen[label] = i
		if n, err := strconv.ParseUint(label, 10, 32); err == nil && n != uint64(i) && n < uint64(buckets) {
			v.add(field, "is the number of another bucket")
		}
	}
}
