// Sends numbered spans with OpenTelemetry's SDK; ../README.md has what they hold. Ends with 0 once all of them are confirmed.
'use strict';

const { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, createTraceState, diag, DiagConsoleLogger, DiagLogLevel, trace } = require('@opentelemetry/api');
const { CompressionAlgorithm } = require('@opentelemetry/otlp-exporter-base');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { BasicTracerProvider, BatchSpanProcessor } = require('@opentelemetry/sdk-trace-base');

const BATCH = 64;
const KINDS = [SpanKind.INTERNAL, SpanKind.SERVER, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER];

const { ENDPOINT, PROTOCOL, COMPRESSION, RUN } = process.env;
const SPANS = Number(process.env.SPANS);
const START_NANOS = BigInt(process.env.START_NANOS);
const TIMEOUT_MILLIS = Number(process.env.TIMEOUT_SECONDS) * 1000;

function exporter() {
  const compression = COMPRESSION === 'gzip' ? CompressionAlgorithm.GZIP : CompressionAlgorithm.NONE;
  const settings = { timeoutMillis: TIMEOUT_MILLIS, compression };
  const http = { url: `http://${ENDPOINT}/v1/traces`, ...settings };
  switch (PROTOCOL) {
    case 'grpc':
      return new (require('@opentelemetry/exporter-trace-otlp-grpc').OTLPTraceExporter)({ url: `http://${ENDPOINT}`, ...settings });
    case 'http/protobuf':
      return new (require('@opentelemetry/exporter-trace-otlp-proto').OTLPTraceExporter)(http);
    case 'http/json':
      return new (require('@opentelemetry/exporter-trace-otlp-http').OTLPTraceExporter)(http);
    default:
      throw new Error(`PROTOCOL=${PROTOCOL} is not one of grpc, http/protobuf, http/json`);
  }
}

// Counts what the exporter behind it confirms.
function counting(behind) {
  return {
    confirmed: 0,
    export(spans, done) {
      behind.export(spans, result => {
        if (result.code === 0) this.confirmed += spans.length;
        done(result);
      });
    },
    shutdown: () => behind.shutdown(),
    forceFlush: () => behind.forceFlush(),
  };
}

// Seconds and nanoseconds: a number does not hold the nanoseconds since 1970.
const time = nanos => [Number(nanos / 1_000_000_000n), Number(nanos % 1_000_000_000n)];

const hex = (number, digits) => number.toString(16).padStart(digits, '0');

function attributes(n) {
  return {
    number: n,
    'int.negative': -n - 1,
    'int.large': Number.MAX_SAFE_INTEGER - n,
    'double.half': n + 0.5,
    'double.nan': NaN,
    bool: n % 2 === 0,
    'text.words': `span ${n} "quoted" \\ ü 日本 🎉`,
    'text.empty': '',
    'list.texts': ['a', '', `ü${n}`],
    'list.ints': [n, n === 0 ? 0 : -n, 0],
    'list.doubles': [0.5, n + 0.25],
    'list.bools': [true, false],
    'list.empty': [],
    'list.null': ['a', null],
  };
}

function send(tracer, n, before) {
  const [t, p] = [Math.floor(n / 5), n % 5];
  const remote = {
    traceId: RUN + hex(t + 1, 16),
    spanId: '5111ce00' + hex(t + 1, 8),
    isRemote: true,
    traceFlags: TraceFlags.SAMPLED,
    traceState: createTraceState(`sluice=t${t}`),
  };
  const start = START_NANOS + BigInt(n) * 1_000_003n;
  const options = {
    kind: KINDS[p],
    attributes: attributes(n),
    links: before ? [{ context: before, attributes: { 'link.number': n } }] : [],
    startTime: time(start),
  };
  const span = tracer.startSpan(`span ${n}`, options, trace.setSpanContext(ROOT_CONTEXT, p === 0 ? remote : before));
  for (let i = 0; i < n % 3; i++) {
    span.addEvent(`event ${i}`, { 'event.number': i, 'event.text': `of ${n}` }, time(start + BigInt(i + 1) * 1_001n));
  }
  if (n % 3 === 1) span.setStatus({ code: SpanStatusCode.OK });
  if (n % 3 === 2) span.setStatus({ code: SpanStatusCode.ERROR, message: `failed ${n}` });
  span.end(time(start + 5_000_000n + BigInt(n)));
  return span.spanContext();
}

async function main() {
  diag.setLogger(new DiagConsoleLogger(), DiagLogLevel.INFO);
  const counted = counting(exporter());
  const processor = new BatchSpanProcessor(counted, { maxExportBatchSize: BATCH, exportTimeoutMillis: TIMEOUT_MILLIS });
  const resource = resourceFromAttributes(
    {
      'service.name': 'orders-javascript',
      'service.instance.id': RUN,
      replica: 3,
      ratio: 0.25,
      canary: true,
      zones: ['a', 'b'],
    },
    { schemaUrl: 'https://example.com/resource' },
  );
  const provider = new BasicTracerProvider({ resource, spanProcessors: [processor] });
  const tracer = provider.getTracer('sluice.clients', '1.2.3', { schemaUrl: 'https://example.com/scope' });
  let before;
  for (let n = 0; n < SPANS; n++) before = send(tracer, n, before);
  // What the exporter refuses, the counts tell.
  await provider.forceFlush().catch(error => console.error('flush:', error));
  await provider.shutdown();
  if (counted.confirmed !== SPANS) throw new Error(`${counted.confirmed} of ${SPANS} spans are confirmed`);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
