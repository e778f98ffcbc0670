#!/bin/sh
# Builds the Collector into the cache of built parts, unless it is there; prints the program's path.
#
# Needs Go and its module proxy. The first time it takes some minutes of two cores at low priority, and about 1 GB of Go's caches.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
builder=go.opentelemetry.io/collector/cmd/builder@v0.161.0
hash=$(cat "$here/builder.yaml" "$here/build.sh" | sha256sum | cut -c 1-12)
folder=${SLUICE_CACHE:-$HOME/.cache/sluice}/otel-collector/$hash
if [ ! -x "$folder/otelcol" ]; then
    # Whole or not at all: what is half built has another name.
    partial=$folder.$$.partial
    trap 'rm -rf "$partial"' EXIT
    mkdir -p "$partial"
    sed "s|^dist:|dist:\n  output_path: $partial/source|" "$here/builder.yaml" > "$partial/builder.yaml"
    # The flags of all parts that are compiled here from Go, since Go caches compiled packages by them.
    export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS='' GOWORK=off
    nice -n 10 go run "$builder" --config "$partial/builder.yaml" --skip-compilation >&2
    cd "$partial/source"
    nice -n 10 go build -buildvcs=false -trimpath -tags=grpcnotrace -ldflags='-s -w' -o "$partial/otelcol" . >&2
    rm -rf "$partial/source"
    mv "$partial" "$folder"
    trap - EXIT
fi
echo "$folder/otelcol"
