package train

import (
	"cmp"
	"slices"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/internal/stream"
)

// Partitions of images over devices, by name.
const (
	// IID gives each device the next images.
	IID = "iid"
	// Shards gives each device two shards of images, each of one label or of two next to one
	// another (McMahan et al. 2017, section 3: the pathological partition).
	Shards = "shards"
)

// shardsEach is how many a device has.
const shardsEach = 2

// partition returns the images of all devices, one device's after another's.
func (o *Options) partition() []images.Image {
	all := o.Set.Train[:o.Devices*o.Images]
	if o.Partition != Shards {
		return all
	}
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b images.Image) int { return cmp.Compare(a.Label, b.Label) })
	each := o.Images / shardsEach
	dealt := stream.New(o.Seed, "shards", 0)
	order := make([]int, shardsEach*o.Devices)
	for i := range order { // Fisher and Yates; 64 bits are far more than there are shards
		j := int(dealt.Uint64() % uint64(i+1))
		order[i], order[j] = order[j], i
	}
	out := make([]images.Image, 0, len(sorted))
	for _, shard := range order {
		out = append(out, sorted[shard*each:(shard+1)*each]...)
	}
	return out
}
