package amplify

import "github.com/starling-agg/starling/dp/release"

// A class is messages of one kind, by their local epsilon.
type class func(epsilon0 float64) release.Message

func anyReport(epsilon0 float64) release.Message { return release.AnyReport(epsilon0) }

func columns(epsilon0 float64) release.Message {
	return release.ColumnsOf(epsilon0)
}

func kary(k uint64) class {
	return func(epsilon0 float64) release.Message {
		return release.ResponseReport(epsilon0, k)
	}
}
