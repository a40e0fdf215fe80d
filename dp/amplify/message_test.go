package amplify

import "github.com/starling-agg/starling/dp/accountant"

// A class is messages of one kind, by their local epsilon.
type class func(epsilon0 float64) accountant.Message

func anyReport(epsilon0 float64) accountant.Message { return accountant.AnyReport(epsilon0) }

func columns(epsilon0 float64) accountant.Message {
	return accountant.ColumnsOf(accountant.RAPPOR{Epsilon0: epsilon0})
}

func kary(k uint64) class {
	return func(epsilon0 float64) accountant.Message {
		return accountant.ReportOf(accountant.RandomizedResponse{Epsilon0: epsilon0, K: k})
	}
}
