"""Sends numbered spans with OpenTelemetry's SDK; ../README.md has what they hold. Ends with 0 once all of them are confirmed."""

import os
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.span import TraceState
import grpc

BATCH = 64
KINDS = [SpanKind.INTERNAL, SpanKind.SERVER, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER]

RUN = os.environ["RUN"]
SPANS = int(os.environ["SPANS"])
START_NANOS = int(os.environ["START_NANOS"])


class Counting(SpanExporter):
    """Counts what the exporter behind it confirms."""

    def __init__(self, behind):
        self.behind = behind
        self.confirmed = 0

    def export(self, spans):
        result = self.behind.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.confirmed += len(spans)
        return result

    def shutdown(self):
        self.behind.shutdown()

    def force_flush(self, timeout_millis=30_000):
        return self.behind.force_flush(timeout_millis)


def exporter():
    endpoint, timeout = os.environ["ENDPOINT"], float(os.environ["TIMEOUT_SECONDS"])
    is_gzip = os.environ["COMPRESSION"] == "gzip"
    match os.environ["PROTOCOL"]:
        case "grpc":
            compression = grpc.Compression.Gzip if is_gzip else grpc.Compression.NoCompression
            return GrpcExporter(endpoint=endpoint, insecure=True, timeout=timeout, compression=compression)
        case "http/protobuf":
            compression = Compression.Gzip if is_gzip else Compression.NoCompression
            return HttpExporter(endpoint=f"http://{endpoint}/v1/traces", timeout=timeout, compression=compression)
        case protocol:
            sys.exit(f"PROTOCOL={protocol} is not one of grpc, http/protobuf")


def attributes(n):
    return {
        "number": n,
        "int.negative": -n - 1,
        "int.large": 2**53 - 1 - n,
        "int.max": 2**63 - 1,
        "double.half": n + 0.5,
        "double.whole": 3.0,
        "bool": n % 2 == 0,
        "text.words": f'span {n} "quoted" \\ ü 日本 🎉',
        "text.empty": "",
        "list.texts": ["a", "", f"ü{n}"],
        "list.ints": [n, -n, 0],
        "list.doubles": [0.5, n + 0.25],
        "list.bools": [True, False],
        "list.empty": [],
        "value.bytes": bytes([0, 255, n % 256]),
        "value.mixed": ["one", 2, True, 0.5],
        "value.map": {"text": "x", "number": n, "deep": {"bool": True}},
    }


def send(tracer, n, before):
    t, p = divmod(n, 5)
    parent = before
    if p == 0:
        parent = trace.SpanContext(
            trace_id=int(f"{RUN}{t + 1:016x}", 16),
            span_id=int(f"5111ce00{t + 1:08x}", 16),
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            trace_state=TraceState([("sluice", f"t{t}")]),
        )
    start = START_NANOS + n * 1_000_003
    span = tracer.start_span(
        f"span {n}",
        context=trace.set_span_in_context(trace.NonRecordingSpan(parent)),
        kind=KINDS[p],
        attributes=attributes(n),
        links=[trace.Link(before, {"link.number": n})] if before else [],
        start_time=start,
    )
    for i in range(n % 3):
        span.add_event(f"event {i}", {"event.number": i, "event.text": f"of {n}"}, start + (i + 1) * 1_001)
    if n % 3 == 1:
        span.set_status(Status(StatusCode.OK))
    elif n % 3 == 2:
        span.set_status(Status(StatusCode.ERROR, f"failed {n}"))
    span.end(start + 5_000_000 + n)
    return span.get_span_context()


def main():
    counting = Counting(exporter())
    resource = Resource(
        {
            "service.name": "orders-python",
            "service.instance.id": RUN,
            "replica": 3,
            "ratio": 0.25,
            "canary": True,
            "zones": ["a", "b"],
        },
        "https://example.com/resource",
    )
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(counting, max_export_batch_size=BATCH))
    scope = {"scope.text": "orders", "scope.number": 7}
    tracer = provider.get_tracer("sluice.clients", "1.2.3", schema_url="https://example.com/scope", attributes=scope)
    before = None
    for n in range(SPANS):
        before = send(tracer, n, before)
    provider.force_flush()
    provider.shutdown()
    if counting.confirmed != SPANS:
        sys.exit(f"{counting.confirmed} of {SPANS} spans are confirmed")


main()
