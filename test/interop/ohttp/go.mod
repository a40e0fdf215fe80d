// Kept apart from the product's module, which has no use for another Oblivious HTTP. go.work puts the two together.
module github.com/starling-agg/starling/test/interop/ohttp

go 1.26.0

require (
	github.com/cloudflare/circl v1.6.1
	github.com/openpcc/bhttp v0.0.37
	github.com/openpcc/ohttp v0.0.37
)

require (
	github.com/openpcc/twoway v0.0.37 // indirect
	github.com/quic-go/quic-go v0.56.0 // indirect
	go.opentelemetry.io/otel v1.38.0 // indirect
	go.opentelemetry.io/otel/trace v1.38.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
