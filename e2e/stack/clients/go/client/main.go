// Command client sends numbered spans with OpenTelemetry's SDK; ../../README.md has what they hold. It ends with 0 once all of them are
// confirmed.
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const batch = 64

var kinds = []trace.SpanKind{
	trace.SpanKindInternal, trace.SpanKindServer, trace.SpanKindClient, trace.SpanKindProducer, trace.SpanKindConsumer,
}

var (
	run        = os.Getenv("RUN")
	spans      = number("SPANS")
	startNanos = number("START_NANOS")
	timeout    = time.Duration(number("TIMEOUT_SECONDS")) * time.Second
)

func number(name string) int64 {
	value, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil {
		log.Fatalf("%s: %v", name, err)
	}
	return value
}

// Counting counts what the exporter behind it confirms. Only the goroutine of the batches calls it.
type counting struct {
	sdk.SpanExporter
	confirmed int
}

func (c *counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		log.Print(err)
	} else {
		c.confirmed += len(spans)
	}
	return err
}

func exporter(ctx context.Context) (sdk.SpanExporter, error) {
	endpoint, isGzip := os.Getenv("ENDPOINT"), os.Getenv("COMPRESSION") == "gzip"
	switch protocol := os.Getenv("PROTOCOL"); protocol {
	case "grpc":
		options := []otlptracegrpc.Option{
			otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithTimeout(timeout),
		}
		if isGzip {
			options = append(options, otlptracegrpc.WithCompressor("gzip"))
		}
		return otlptracegrpc.New(ctx, options...)
	case "http/protobuf":
		options := []otlptracehttp.Option{
			otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(endpoint), otlptracehttp.WithTimeout(timeout),
		}
		if isGzip {
			options = append(options, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		}
		return otlptracehttp.New(ctx, options...)
	default:
		return nil, fmt.Errorf("PROTOCOL=%s is not one of grpc, http/protobuf", protocol)
	}
}

func attributes(n int64) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.Int64("number", n),
		attribute.Int64("int.negative", -n-1),
		attribute.Int64("int.large", 1<<53-1-n),
		attribute.Int64("int.max", 1<<63-1),
		attribute.Float64("double.half", float64(n)+0.5),
		attribute.Float64("double.whole", 3),
		attribute.Bool("bool", n%2 == 0),
		attribute.String("text.words", fmt.Sprintf(`span %d "quoted" \ ü 日本 🎉`, n)),
		attribute.String("text.empty", ""),
		attribute.StringSlice("list.texts", []string{"a", "", fmt.Sprintf("ü%d", n)}),
		attribute.Int64Slice("list.ints", []int64{n, -n, 0}),
		attribute.Float64Slice("list.doubles", []float64{0.5, float64(n) + 0.25}),
		attribute.BoolSlice("list.bools", []bool{true, false}),
		attribute.StringSlice("list.empty", nil),
		attribute.ByteSlice("value.bytes", []byte{0, 255, byte(n % 256)}),
		attribute.Slice("value.mixed", attribute.StringValue("one"), attribute.Int64Value(2),
			attribute.BoolValue(true), attribute.Float64Value(0.5)),
	}
}

// Remote is the context of what called the first span of a trace.
func remote(t int64) (trace.SpanContext, error) {
	var config trace.SpanContextConfig
	if _, err := hex.Decode(config.TraceID[:], fmt.Appendf(nil, "%s%016x", run, t+1)); err != nil {
		return trace.SpanContext{}, err
	}
	if _, err := hex.Decode(config.SpanID[:], fmt.Appendf(nil, "5111ce00%08x", t+1)); err != nil {
		return trace.SpanContext{}, err
	}
	state, err := trace.ParseTraceState(fmt.Sprintf("sluice=t%d", t))
	config.TraceFlags, config.TraceState, config.Remote = trace.FlagsSampled, state, true
	return trace.NewSpanContext(config), err
}

func send(tracer trace.Tracer, n int64, before trace.SpanContext) (trace.SpanContext, error) {
	t, p := n/5, n%5
	parent := before
	if p == 0 {
		var err error
		if parent, err = remote(t); err != nil {
			return before, err
		}
	}
	start := time.Unix(0, startNanos+n*1_000_003)
	options := []trace.SpanStartOption{
		trace.WithSpanKind(kinds[p]), trace.WithTimestamp(start), trace.WithAttributes(attributes(n)...),
	}
	if n > 0 {
		link := trace.Link{SpanContext: before, Attributes: []attribute.KeyValue{attribute.Int64("link.number", n)}}
		options = append(options, trace.WithLinks(link))
	}
	_, span := tracer.Start(trace.ContextWithSpanContext(context.Background(), parent), fmt.Sprintf("span %d", n), options...)
	for i := range n % 3 {
		span.AddEvent(fmt.Sprintf("event %d", i), trace.WithTimestamp(start.Add(time.Duration((i+1)*1_001))),
			trace.WithAttributes(attribute.Int64("event.number", i), attribute.String("event.text", fmt.Sprintf("of %d", n))))
	}
	switch n % 3 {
	case 1:
		span.SetStatus(codes.Ok, "")
	case 2:
		span.SetStatus(codes.Error, fmt.Sprintf("failed %d", n))
	}
	span.End(trace.WithTimestamp(start.Add(time.Duration(5_000_000 + n))))
	return span.SpanContext(), nil
}

func main() {
	ctx := context.Background()
	behind, err := exporter(ctx)
	if err != nil {
		log.Fatal(err)
	}
	counting := &counting{SpanExporter: behind}
	described := resource.NewWithAttributes("https://example.com/resource",
		attribute.String("service.name", "orders-go"), attribute.String("service.instance.id", run),
		attribute.Int("replica", 3), attribute.Float64("ratio", 0.25), attribute.Bool("canary", true),
		attribute.StringSlice("zones", []string{"a", "b"}))
	provider := sdk.NewTracerProvider(sdk.WithResource(described),
		sdk.WithBatcher(counting, sdk.WithMaxExportBatchSize(batch), sdk.WithExportTimeout(timeout)))
	tracer := provider.Tracer("sluice.clients", trace.WithInstrumentationVersion("1.2.3"),
		trace.WithSchemaURL("https://example.com/scope"),
		trace.WithInstrumentationAttributes(attribute.String("scope.text", "orders"), attribute.Int("scope.number", 7)))
	var before trace.SpanContext
	for n := range spans {
		if before, err = send(tracer, n, before); err != nil {
			log.Fatal(err)
		}
	}
	if err := provider.Shutdown(ctx); err != nil {
		log.Print(err)
	}
	if int64(counting.confirmed) != spans {
		log.Fatalf("%d of %d spans are confirmed", counting.confirmed, spans)
	}
}
