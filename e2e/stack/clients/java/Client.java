import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.KeyValue;
import io.opentelemetry.api.common.Value;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.TraceFlags;
import io.opentelemetry.api.trace.TraceState;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Sends numbered spans with OpenTelemetry's SDK; ../README.md has what they hold. Ends with 0 once all of them are confirmed. */
public final class Client {
    private static final int BATCH = 64;
    private static final SpanKind[] KINDS = {
        SpanKind.INTERNAL, SpanKind.SERVER, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER
    };

    private static final String RUN = System.getenv("RUN");
    private static final long SPANS = Long.parseLong(System.getenv("SPANS"));
    private static final long START_NANOS = Long.parseLong(System.getenv("START_NANOS"));
    private static final Duration TIMEOUT = Duration.ofSeconds(Long.parseLong(System.getenv("TIMEOUT_SECONDS")));

    /** Counts what the exporter behind it confirms. */
    private record Counting(SpanExporter behind, AtomicLong confirmed) implements SpanExporter {
        @Override
        public CompletableResultCode export(Collection<SpanData> spans) {
            int count = spans.size();
            CompletableResultCode result = behind.export(spans);
            result.whenComplete(() -> confirmed.addAndGet(result.isSuccess() ? count : 0));
            return result;
        }

        @Override
        public CompletableResultCode flush() {
            return behind.flush();
        }

        @Override
        public CompletableResultCode shutdown() {
            return behind.shutdown();
        }
    }

    private static SpanExporter exporter() {
        String endpoint = "http://" + System.getenv("ENDPOINT");
        String compression = System.getenv("COMPRESSION");
        String protocol = System.getenv("PROTOCOL");
        return switch (protocol) {
            case "grpc" -> OtlpGrpcSpanExporter.builder()
                    .setEndpoint(endpoint)
                    .setTimeout(TIMEOUT)
                    .setCompression(compression)
                    .build();
            case "http/protobuf" -> OtlpHttpSpanExporter.builder()
                    .setEndpoint(endpoint + "/v1/traces")
                    .setTimeout(TIMEOUT)
                    .setCompression(compression)
                    .build();
            default -> throw new IllegalArgumentException(
                    "PROTOCOL=" + protocol + " is not one of grpc, http/protobuf");
        };
    }

    private static Attributes attributes(long n) {
        return Attributes.builder()
                .put("number", n)
                .put("int.negative", -n - 1)
                .put("int.large", (1L << 53) - 1 - n)
                .put("int.max", Long.MAX_VALUE)
                .put("double.half", n + 0.5)
                .put("double.whole", 3.0)
                .put("bool", n % 2 == 0)
                .put("text.words", "span " + n + " \"quoted\" \\ ü 日本 🎉")
                .put("text.empty", "")
                .put("list.texts", "a", "", "ü" + n)
                .put("list.ints", n, -n, 0L)
                .put("list.doubles", 0.5, n + 0.25)
                .put("list.bools", true, false)
                .put(AttributeKey.stringArrayKey("list.empty"), List.of())
                .put(AttributeKey.valueKey("value.bytes"), Value.of(new byte[] {0, (byte) 255, (byte) (n % 256)}))
                .put(
                        AttributeKey.valueKey("value.mixed"),
                        Value.of(Value.of("one"), Value.of(2), Value.of(true), Value.of(0.5)))
                .put(
                        AttributeKey.valueKey("value.map"),
                        Value.of(
                                KeyValue.of("text", Value.of("x")),
                                KeyValue.of("number", Value.of(n)),
                                KeyValue.of("deep", Value.of(KeyValue.of("bool", Value.of(true))))))
                .build();
    }

    private static SpanContext remote(long t) {
        return SpanContext.createFromRemoteParent(
                RUN + String.format("%016x", t + 1),
                "5111ce00" + String.format("%08x", t + 1),
                TraceFlags.getSampled(),
                TraceState.builder().put("sluice", "t" + t).build());
    }

    private static SpanContext send(Tracer tracer, long n, SpanContext before) {
        long t = n / 5;
        int p = (int) (n % 5);
        long start = START_NANOS + n * 1_000_003;
        var building = tracer.spanBuilder("span " + n)
                .setParent(Context.root().with(Span.wrap(p == 0 ? remote(t) : before)))
                .setSpanKind(KINDS[p])
                .setAllAttributes(attributes(n))
                .setStartTimestamp(start, TimeUnit.NANOSECONDS);
        if (before != null) {
            building.addLink(before, Attributes.builder().put("link.number", n).build());
        }
        Span span = building.startSpan();
        for (long i = 0; i < n % 3; i++) {
            Attributes attributes =
                    Attributes.builder().put("event.number", i).put("event.text", "of " + n).build();
            span.addEvent("event " + i, attributes, start + (i + 1) * 1_001, TimeUnit.NANOSECONDS);
        }
        if (n % 3 == 1) {
            span.setStatus(StatusCode.OK);
        } else if (n % 3 == 2) {
            span.setStatus(StatusCode.ERROR, "failed " + n);
        }
        span.end(start + 5_000_000 + n, TimeUnit.NANOSECONDS);
        return span.getSpanContext();
    }

    public static void main(String[] arguments) {
        Counting counting = new Counting(exporter(), new AtomicLong());
        Attributes described = Attributes.builder()
                .put("service.name", "orders-java")
                .put("service.instance.id", RUN)
                .put("replica", 3L)
                .put("ratio", 0.25)
                .put("canary", true)
                .put("zones", "a", "b")
                .build();
        SdkTracerProvider provider = SdkTracerProvider.builder()
                .setResource(Resource.create(described, "https://example.com/resource"))
                .addSpanProcessor(BatchSpanProcessor.builder(counting)
                        .setMaxExportBatchSize(BATCH)
                        .setExporterTimeout(TIMEOUT)
                        .build())
                .build();
        Tracer tracer = provider.tracerBuilder("sluice.clients")
                .setInstrumentationVersion("1.2.3")
                .setSchemaUrl("https://example.com/scope")
                .build();
        SpanContext before = null;
        for (long n = 0; n < SPANS; n++) {
            before = send(tracer, n, before);
        }
        provider.shutdown().join(TIMEOUT.toSeconds() * 4, TimeUnit.SECONDS);
        long confirmed = counting.confirmed().get();
        if (confirmed != SPANS) {
            System.err.println(confirmed + " of " + SPANS + " spans are confirmed");
            System.exit(1);
        }
        // Threads of the HTTP client stay for a minute.
        System.exit(0);
    }
}
