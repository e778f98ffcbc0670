-- reader: Grafana's ClickHouse data source 4.20.0, github.com/grafana/clickhouse-datasource at 1d04063a31fb30f9582cd0b3aeaacb7d350b0dcf,
-- Apache-2.0
-- These are texts that its query builder makes with OpenTelemetry columns, after its own macros. Nothing here is its code.

-- query: search of traces
-- source: src/data/sqlGenerator.ts (generateTraceSearchQuery), src/components/queryBuilder/defaultQueryOptions.ts, pkg/macros/macros.go
-- layouts: Json Map Nested ClickStack
-- answer: 0af7651916cd43dd8448eb211c80319c|cart|list items|2026-08-20 12:00:01.000000000|5
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|frontend|GET /cart|2026-08-20 12:00:00.000000000|120
SELECT "TraceId" as traceID, "ServiceName" as serviceName, "SpanName" as operationName, "Timestamp" as startTime,
multiply("Duration", 0.000001) as duration FROM "{database}"."otel_traces"
WHERE ( Timestamp >= toDateTime(1787223600) AND Timestamp <= toDateTime(1787230800) ) AND ( ParentSpanId = '' ) AND ( Duration > 0 )
ORDER BY Timestamp DESC, Duration DESC LIMIT 1000

-- query: search of traces by an attribute of the span
-- source: src/data/sqlGenerator.ts (getFilters, JSON column)
-- layouts: Json
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736
SELECT "TraceId" as traceID FROM "{database}"."otel_traces"
WHERE ( Timestamp >= toDateTime(1787223600) AND Timestamp <= toDateTime(1787230800) )
AND ( SpanAttributes.`http`.`route`::Nullable(String) = '/cart' ) LIMIT 1000

-- query: search of traces by an attribute of the resource
-- source: src/data/sqlGenerator.ts (getFilters, JSON column)
-- layouts: Json
-- answer: 0af7651916cd43dd8448eb211c80319c
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736
SELECT "TraceId" as traceID FROM "{database}"."otel_traces"
WHERE ( ResourceAttributes.`service`.`version`::Nullable(String) IN ('2.0.0', '3.0.0') )
AND ( ResourceAttributes.`k8s`.`node`.`name`::Nullable(String) IS NULL ) LIMIT 1000

-- query: search of traces by an attribute of the span
-- source: src/data/sqlGenerator.ts (getFilters, Map column)
-- layouts: Map ClickStack
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736
SELECT "TraceId" as traceID FROM "{database}"."otel_traces"
WHERE ( Timestamp >= toDateTime(1787223600) AND Timestamp <= toDateTime(1787230800) )
AND ( SpanAttributes['http.route'] = '/cart' ) LIMIT 1000

-- query: a trace by its id, with the table of times
-- source: src/data/sqlGenerator.ts (generateTraceIdQuery, Map columns)
-- layouts: Map ClickStack
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|00f067aa0ba902b7||frontend|GET /cart|1787227200000|120|[{'key':'http.route','value':'/cart'},{'key':'http.response.status_code','value':'500'},{'key':'SampleRate','value':'10'}]|[{'key':'service.name','value':'frontend'},{'key':'service.version','value':'1.2.3'},{'key':'k8s.pod.name','value':'frontend-7d4b9'}]|0|[('exception','1787227200100',[{'key':'exception.type','value':'io.Error'},{'key':'exception.message','value':'timed out'}])]|[('b7ad6b7169203331b7ad6b7169203331','00f067aa0ba90211',[{'key':'reason','value':'retry'}])]|Server||
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|1111111111111111|00f067aa0ba902b7|frontend|POST /checkout|1787227200009.9998|90|[{'key':'server.address','value':'cart'}]|[{'key':'service.name','value':'frontend'},{'key':'service.version','value':'1.2.3'},{'key':'k8s.pod.name','value':'frontend-7d4b9'}]|0|[]|[]|Client||
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|2222222222222222|1111111111111111|cart|checkout|1787227200020|70|[{'key':'http.response.status_code','value':'503'}]|[{'key':'service.name','value':'cart'},{'key':'service.version','value':'2.0.0'},{'key':'k8s.pod.name','value':'cart-0'}]|2|[]|[]|Server|timed out|
WITH '4bf92f3577b34da6a3ce929d0e0e4736' as __gf_trace_id,
(SELECT min(Start) FROM "{database}"."otel_traces_trace_id_ts" WHERE TraceId = __gf_trace_id) as __gf_trace_start,
(SELECT max(End) + 1 FROM "{database}"."otel_traces_trace_id_ts" WHERE TraceId = __gf_trace_id) as __gf_trace_end
SELECT "TraceId" as traceID, "SpanId" as spanID, "ParentSpanId" as parentSpanID, "ServiceName" as serviceName,
"SpanName" as operationName, multiply(toUnixTimestamp64Nano("Timestamp"), 0.000001) as startTime,
multiply("Duration", 0.000001) as duration,
arrayMap(key -> map('key', key, 'value',"SpanAttributes"[key]), mapKeys("SpanAttributes")) as tags,
arrayMap(key -> map('key', key, 'value',"ResourceAttributes"[key]), mapKeys("ResourceAttributes")) as serviceTags,
if("StatusCode" IN ('Error', 'STATUS_CODE_ERROR'), 2, 0) as statusCode,
arrayMap((name, timestamp, attributes) -> tuple(name, toString(toUnixTimestamp64Milli(timestamp)),
arrayMap(key -> map('key', key, 'value', attributes[key]), mapKeys(attributes)))::Tuple(name String, timestamp String, fields Array(Map(String, String))),
"Events".Name, "Events".Timestamp, "Events".Attributes) AS logs,
arrayMap((traceID, spanID, attributes) -> tuple(traceID, spanID,
arrayMap(key -> map('key', key, 'value', attributes[key]), mapKeys(attributes)))::Tuple(traceID String, spanID String, tags Array(Map(String, String))),
"Links".TraceId, "Links".SpanId, "Links".Attributes) AS references,
"SpanKind" as kind, "StatusMessage" as statusMessage, "TraceState" as traceState
FROM "{database}"."otel_traces"
WHERE traceID = __gf_trace_id AND "Timestamp" >= __gf_trace_start AND "Timestamp" <= __gf_trace_end

-- query: a trace by its id, with the table of times
-- source: src/data/sqlGenerator.ts (generateTraceIdQuery, JSON columns)
-- layouts: Json
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|00f067aa0ba902b7||frontend|GET /cart|1787227200000|120|{"SampleRate":10,"http":{"response":{"status_code":500},"route":"\\/cart"}}|{"k8s":{"pod":{"name":"frontend-7d4b9"}},"service":{"name":"frontend","version":"1.2.3"}}|0|[('exception','1787227200100',[{'key':'__ch_json__','value':'{"exception":{"message":"timed out","type":"io.Error"}}'}])]|[('b7ad6b7169203331b7ad6b7169203331','00f067aa0ba90211',[{'key':'__ch_json__','value':'{"reason":"retry"}'}])]|Server||
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|1111111111111111|00f067aa0ba902b7|frontend|POST /checkout|1787227200009.9998|90|{"server":{"address":"cart"}}|{"k8s":{"pod":{"name":"frontend-7d4b9"}},"service":{"name":"frontend","version":"1.2.3"}}|0|[]|[]|Client||
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|2222222222222222|1111111111111111|cart|checkout|1787227200020|70|{"http":{"response":{"status_code":503}}}|{"k8s":{"pod":{"name":"cart-0"}},"service":{"name":"cart","version":"2.0.0"}}|2|[]|[]|Server|timed out|
WITH '4bf92f3577b34da6a3ce929d0e0e4736' as __gf_trace_id,
(SELECT min(Start) FROM "{database}"."otel_traces_trace_id_ts" WHERE TraceId = __gf_trace_id) as __gf_trace_start,
(SELECT max(End) + 1 FROM "{database}"."otel_traces_trace_id_ts" WHERE TraceId = __gf_trace_id) as __gf_trace_end
SELECT "TraceId" as traceID, "SpanId" as spanID, "ParentSpanId" as parentSpanID, "ServiceName" as serviceName,
"SpanName" as operationName, multiply(toUnixTimestamp64Nano("Timestamp"), 0.000001) as startTime,
multiply("Duration", 0.000001) as duration, "SpanAttributes" as tags, "ResourceAttributes" as serviceTags,
if("StatusCode" IN ('Error', 'STATUS_CODE_ERROR'), 2, 0) as statusCode,
arrayMap((name, timestamp, attributes) -> tuple(name, toString(toUnixTimestamp64Milli(timestamp)),
[map('key', '__ch_json__', 'value', toJSONString(attributes))])::Tuple(name String, timestamp String, fields Array(Map(String, String))),
"Events".Name, "Events".Timestamp, "Events".Attributes) AS logs,
arrayMap((traceID, spanID, attributes) -> tuple(traceID, spanID,
[map('key', '__ch_json__', 'value', toJSONString(attributes))])::Tuple(traceID String, spanID String, tags Array(Map(String, String))),
"Links".TraceId, "Links".SpanId, "Links".Attributes) AS references,
"SpanKind" as kind, "StatusMessage" as statusMessage, "TraceState" as traceState
FROM "{database}"."otel_traces"
WHERE traceID = __gf_trace_id AND "Timestamp" >= __gf_trace_start AND "Timestamp" <= __gf_trace_end

-- query: a trace by its id, without tags and without the table of times
-- source: src/data/sqlGenerator.ts (generateTraceIdQuery, a data source whose columns for tags are empty)
-- layouts: Nested
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|00f067aa0ba902b7||frontend|GET /cart|1787227200000|120|0
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|1111111111111111|00f067aa0ba902b7|frontend|POST /checkout|1787227200009.9998|90|0
-- answer: 4bf92f3577b34da6a3ce929d0e0e4736|2222222222222222|1111111111111111|cart|checkout|1787227200020|70|2
SELECT "TraceId" as traceID, "SpanId" as spanID, "ParentSpanId" as parentSpanID, "ServiceName" as serviceName,
"SpanName" as operationName, multiply(toUnixTimestamp64Nano("Timestamp"), 0.000001) as startTime,
multiply("Duration", 0.000001) as duration, if("StatusCode" IN ('Error', 'STATUS_CODE_ERROR'), 2, 0) as statusCode
FROM "{database}"."otel_traces" WHERE traceID = '4bf92f3577b34da6a3ce929d0e0e4736'

-- query: errors and durations of each operation, from the dashboard that comes with it
-- source: src/dashboards/otel-traces-explorer.json
-- layouts: Map ClickStack
-- answer: checkout|1|1|100|70000000|timed out
-- answer: list items|1|0|0|5000000|
SELECT SpanName AS Operation, count() AS Count, countIf(StatusCode IN ('Error', 'STATUS_CODE_ERROR')) AS Errors,
round(countIf(StatusCode IN ('Error', 'STATUS_CODE_ERROR')) / count() * 100, 2) AS "Error %", quantile(0.99)(Duration) AS P99,
anyIf(if(StatusMessage != '', StatusMessage, SpanAttributes['http.status_code']), StatusCode IN ('Error', 'STATUS_CODE_ERROR')) AS "Top Error"
FROM {table} WHERE Timestamp >= toDateTime(1787223600) AND Timestamp <= toDateTime(1787230800) AND ServiceName IN ('cart')
GROUP BY Operation ORDER BY Count DESC LIMIT 15

-- query: calls between services, from the dashboard that comes with it
-- source: src/dashboards/otel-traces-explorer.json
-- layouts: Json Map Nested ClickStack
-- answer: frontend-cart|frontend|cart|1 calls
SELECT concat(parent.ServiceName, '-', child.ServiceName) AS id, parent.ServiceName AS source, child.ServiceName AS target,
concat(toString(count()), ' calls') AS mainstat FROM {table} AS child INNER JOIN {table} AS parent
ON child.ParentSpanId = parent.SpanId AND child.TraceId = parent.TraceId
WHERE child.Timestamp >= toDateTime(1787223600) AND child.Timestamp <= toDateTime(1787230800)
AND parent.Timestamp >= toDateTime(1787223600) AND parent.Timestamp <= toDateTime(1787230800)
AND parent.ServiceName != child.ServiceName GROUP BY source, target ORDER BY count() DESC LIMIT 50
