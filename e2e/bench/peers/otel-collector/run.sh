#!/bin/sh
# The Collector as a peer of `cargo throughput`: reads TOPIC of BROKERS as GROUP and inserts into DATABASE.TABLE of SINK.
#
# It becomes the Collector, so that a signal and the kernel's accounting meet that process and no shell.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
: "${BROKERS:?}" "${TOPIC:?}" "${GROUP:?}" "${SINK:?}" "${DATABASE:?}" "${TABLE:?}"
program=$("$here/build.sh")
# A heap that may grow to five times what lives: a sixth less CPU time with `loadgen`, in almost three times the memory (../README.md).
export GOGC="${GOGC:-400}"
exec "$program" --config "file:$here/collector.yaml"
