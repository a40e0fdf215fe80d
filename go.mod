module github.com/starling-agg/starling

go 1.26
