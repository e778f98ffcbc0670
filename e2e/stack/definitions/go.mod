// Where definitions of other people's kinds come from that tests apply. Nothing is compiled of it: `go mod download` checks it by
// go.sum, and the files are read.
module sluice.dev/stack/definitions

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
