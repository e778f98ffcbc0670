-- reader: HyperDX 2.36.0 (common-utils 0.27.0), github.com/hyperdxio/hyperdx at b52a6fa83a1a8f6d1cc70e8b676103ade6a1b207, MIT
-- These are texts that it sends for a trace source of the OpenTelemetry columns, rendered for the spans of the test. Parameters are
-- written out. Nothing here is its code.

-- query: a page of the search, with a word of the span's name
-- source: packages/common-utils/src/core/renderChartConfig.ts, queryParser.ts (fieldSearch), packages/app/src/DBSearchPage.tsx
-- layouts: Json Map Nested ClickStack
-- answer: 2026-08-20 12:00:00.020000000|cart|Error|70|checkout
-- answer: 2026-08-20 12:00:00.010000000|frontend|Unset|90|POST /checkout
SELECT Timestamp,ServiceName,StatusCode,round(Duration/1e6),SpanName FROM {table}
WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
AND ((hasToken(lower(SpanName), lower('checkout'))))
ORDER BY (toDateTime(Timestamp), Timestamp) DESC LIMIT 200 OFFSET 0

-- query: the bars above the search
-- source: packages/common-utils/src/core/renderChartConfig.ts
-- layouts: Json Map Nested ClickStack
-- answer: 2|Unset|2026-08-20 12:00:00
-- answer: 1|Error|2026-08-20 12:00:00
-- answer: 1|Ok|2026-08-20 12:00:00
SELECT count(),StatusCode,toStartOfInterval(toDateTime(Timestamp), INTERVAL 1 minute) AS `__hdx_time_bucket` FROM {table}
WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
GROUP BY StatusCode,toStartOfInterval(toDateTime(Timestamp), INTERVAL 1 minute) AS `__hdx_time_bucket`
ORDER BY toStartOfInterval(toDateTime(Timestamp), INTERVAL 1 minute) AS `__hdx_time_bucket`

-- query: an attribute of the span equals a text
-- source: packages/common-utils/src/queryParser.ts (eq, JSON column)
-- layouts: Json
-- answer: GET /cart
SELECT SpanName FROM {table} WHERE ((toString(`SpanAttributes`.`http`.`route`) = '/cart'))

-- query: an attribute of the span equals a text
-- source: packages/common-utils/src/queryParser.ts (eq, Map column)
-- layouts: Map
-- answer: GET /cart
SELECT SpanName FROM {table}
WHERE ((`SpanAttributes`['http.route'] = '/cart' AND indexHint(mapContains(`SpanAttributes`, 'http.route'))))

-- query: an attribute of the span equals a text
-- source: packages/common-utils/src/queryParser.ts (eq, Map column with an index of its items)
-- layouts: ClickStack
-- answer: GET /cart
SELECT SpanName FROM {table} WHERE ((has(`SpanAttributeItems`, concat('http.route', '=', '/cart'))))

-- query: the index of items answers for an attribute
-- source: the condition above, as the server plans it
-- layouts: ClickStack
-- has: idx_span_attr_items
EXPLAIN indexes = 1 SELECT SpanName FROM {table} WHERE ((has(`SpanAttributeItems`, concat('http.route', '=', '/cart'))))

-- query: an attribute of the span contains a text
-- source: packages/common-utils/src/queryParser.ts (fieldSearch, JSON column)
-- layouts: Json
-- answer: GET /cart
SELECT SpanName FROM {table} WHERE ((toString(`SpanAttributes`.`http`.`route`) ILIKE '%Cart%'))

-- query: an attribute of the span is at least a number
-- source: packages/common-utils/src/queryParser.ts (gte, JSON column)
-- layouts: Json
-- answer: GET /cart
-- answer: checkout
SELECT SpanName FROM {table} WHERE ((dynamicType(`SpanAttributes`.`http`.`response`.`status_code`) in ('Int8', 'Int16', 'Int32',
'Int64', 'Int128', 'Int256', 'UInt8', 'UInt16', 'UInt32', 'UInt64', 'UInt128', 'UInt256', 'Float32', 'Float64')
and `SpanAttributes`.`http`.`response`.`status_code` >= '500'))

-- query: an attribute of the resource is more than a number; it is a text, so that no span is found
-- source: packages/common-utils/src/queryParser.ts (gt, JSON column)
-- layouts: Json
-- answer: 0
SELECT count() FROM {table} WHERE ((dynamicType(`ResourceAttributes`.`service`.`version`) in ('Int8', 'Int16', 'Int32',
'Int64', 'Int128', 'Int256', 'UInt8', 'UInt16', 'UInt32', 'UInt64', 'UInt128', 'UInt256', 'Float32', 'Float64')
and `ResourceAttributes`.`service`.`version` > '1'))

-- query: an attribute of the resource is there
-- source: packages/common-utils/src/queryParser.ts (isNotNull, JSON column)
-- layouts: Json
-- answer: 4|0
SELECT countIf(notEmpty(toString(`ResourceAttributes`.`k8s`.`pod`.`name`)) = 1),
countIf(notEmpty(toString(`ResourceAttributes`.`k8s`.`node`.`name`)) = 1) FROM {table}

-- query: an attribute of the resource is there
-- source: packages/common-utils/src/queryParser.ts (isNotNull, Map column)
-- layouts: Map ClickStack
-- answer: 4
SELECT count() FROM {table}
WHERE (notEmpty(`ResourceAttributes`['k8s.pod.name']) = 1 AND indexHint(mapContains(`ResourceAttributes`, 'k8s.pod.name')))

-- query: values of an attribute of the resource, for the filters beside the search
-- source: packages/common-utils/src/core/metadata.ts (getMapValues, renderJsonStringSubcolumn)
-- layouts: Json
-- answer: cart
-- answer: frontend
SELECT DISTINCT ResourceAttributes.`service`.`name`.:String as value FROM {table}
WHERE value != '' AND (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
LIMIT 20

-- query: values of an attribute of the resource, for the filters beside the search
-- source: packages/common-utils/src/core/metadata.ts (getMapValues)
-- layouts: Map ClickStack
-- answer: cart
-- answer: frontend
SELECT DISTINCT ResourceAttributes['service.name'] as value FROM {table}
WHERE value != '' AND (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
LIMIT 20

-- query: values of several attributes at once
-- source: packages/common-utils/src/core/metadata.ts (getKeyValues, JSON column)
-- layouts: Json
-- answer: ['2.0.0']|['cart-0']
WITH sampledData AS (SELECT ResourceAttributes.`service`.`version`.:String as param0, ResourceAttributes.`k8s`.`pod`.`name`.:String
as param1 FROM {table} WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND
Timestamp <= fromUnixTimestamp64Milli(1787230800000)) AND (ServiceName = 'cart') LIMIT 3000000)
SELECT groupUniqArray(20)(param0) AS param0,groupUniqArray(20)(param1) AS param1 FROM sampledData

-- query: values of one attribute among the spans that another selects
-- source: packages/common-utils/src/core/metadata.ts (getKeyValues with conditions)
-- layouts: Json
-- answer: ['2.0.0']
SELECT groupUniqArrayIf(20)(ResourceAttributes.`service`.`version`.:String,
(ResourceAttributes.`k8s`.`pod`.`name`.:String IN ('cart-0'))) AS param0 FROM {table}

-- query: a filter beside the search is chosen
-- source: packages/common-utils/src/filters.ts (filtersToQuery with stringifyKeys)
-- layouts: Json
-- answer: 2
SELECT count() FROM {table} WHERE (toString(ResourceAttributes.`service`.`version`) IN ('2.0.0'))

-- query: how the values of an attribute are distributed
-- source: packages/common-utils/src/core/metadata.ts (getValuesDistribution)
-- layouts: Json
-- answer: cart-0|2|50
-- answer: frontend-7d4b9|2|50
SELECT ResourceAttributes.`k8s`.`pod`.`name`.:String AS __hdx_value, count() as __hdx_count,
__hdx_count / (sum(__hdx_count) OVER ()) * 100 AS __hdx_percentage FROM {table} GROUP BY __hdx_value ORDER BY __hdx_percentage DESC LIMIT 100

-- query: keys of the attributes of resources
-- source: packages/common-utils/src/core/metadata.ts (getMapKeys, groupUniqArrayArray); here sorted
-- layouts: Map ClickStack
-- answer: ['k8s.pod.name','service.name','service.version']
WITH sampledKeys as (SELECT getSubcolumn(`ResourceAttributes`, 'keys') AS keys FROM {table} LIMIT 3000000)
SELECT arraySort(groupUniqArrayArray(1000)(keys)) as keysArr FROM sampledKeys

-- query: values of an attribute, out of the text index
-- source: packages/common-utils/src/core/metadata.ts (getMapTextIndexKeyValues, partsOverlapFilter); here sorted
-- layouts: ClickStack
-- answer: SpanAttributes|http.route|['/cart','/items']
SELECT * FROM (SELECT 'SpanAttributes' as column, substring(token, 1, position(token, '=') - 1) AS key,
arraySort(groupUniqArray(20)(substring(token, position(token, '=') + 1))) AS value
FROM mergeTreeTextIndex('{database}', 'otel_traces', 'idx_span_attr_items')
WHERE part_name IN (SELECT name FROM system.parts WHERE database = '{database}' AND table = 'otel_traces' AND active=1
AND ((min_time >= fromUnixTimestamp64Milli(1787223600000) AND min_time <= fromUnixTimestamp64Milli(1787230800000))
OR (max_time <= fromUnixTimestamp64Milli(1787230800000) AND max_time >= fromUnixTimestamp64Milli(1787223600000))
OR (min_time <= fromUnixTimestamp64Milli(1787223600000) AND max_time >= fromUnixTimestamp64Milli(1787230800000))))
AND (startsWith(token, 'http.route=')) AND substring(token, position(token, '=') + 1) != '' GROUP BY column, key)

-- query: the columns that a text index covers, which decide how it searches
-- source: packages/common-utils/src/core/metadata.ts (getSkipIndices), queryParser.ts (populateValidKvTextIndices)
-- layouts: ClickStack
-- answer: idx_res_attr_items|ResourceAttributeItems|ALIAS
-- answer: idx_span_attr_items|SpanAttributeItems|ALIAS
SELECT i.name, c.name, c.default_kind FROM system.data_skipping_indices AS i INNER JOIN system.columns AS c
ON i.database = c.database AND i.table = c.table AND i.expr = c.default_expression
WHERE i.database = '{database}' AND i.table = 'otel_traces' AND i.type_full = 'text(tokenizer = \'array\')'

-- query: the spans of a trace, for the waterfall
-- source: packages/app/src/components/DBTraceWaterfallChart.tsx (getConfig)
-- layouts: Json
-- answer: GET /cart|2026-08-20 12:00:00.000000000|00f067aa0ba902b7|frontend|0.12||Unset|{"SampleRate":10,"http":{"response":{"status_code":500},"route":"\\/cart"}}|[('2026-08-20 12:00:00.100000000','exception','{"exception":{"message":"timed out","type":"io.Error"}}')]
-- answer: POST /checkout|2026-08-20 12:00:00.010000000|1111111111111111|frontend|0.09|00f067aa0ba902b7|Unset|{"server":{"address":"cart"}}|[]
-- answer: checkout|2026-08-20 12:00:00.020000000|2222222222222222|cart|0.07|1111111111111111|Error|{"http":{"response":{"status_code":503}}}|[]
SELECT SpanName AS "Body",Timestamp AS "Timestamp",SpanId AS "SpanId",ServiceName AS "ServiceName",(Duration)/1e9 AS "Duration",
ParentSpanId AS "ParentSpanId",StatusCode AS "StatusCode",SpanAttributes AS "SpanAttributes",Events AS "SpanEvents" FROM {table}
WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
AND (TraceId = '4bf92f3577b34da6a3ce929d0e0e4736') LIMIT 50000

-- query: the spans of a trace, for the waterfall
-- source: packages/app/src/components/DBTraceWaterfallChart.tsx (getConfig)
-- layouts: Map ClickStack
-- answer: GET /cart|2026-08-20 12:00:00.000000000|00f067aa0ba902b7|frontend|0.12||Unset|{'http.route':'/cart','http.response.status_code':'500','SampleRate':'10'}|[('2026-08-20 12:00:00.100000000','exception',{'exception.type':'io.Error','exception.message':'timed out'})]
-- answer: POST /checkout|2026-08-20 12:00:00.010000000|1111111111111111|frontend|0.09|00f067aa0ba902b7|Unset|{'server.address':'cart'}|[]
-- answer: checkout|2026-08-20 12:00:00.020000000|2222222222222222|cart|0.07|1111111111111111|Error|{'http.response.status_code':'503'}|[]
SELECT SpanName AS "Body",Timestamp AS "Timestamp",SpanId AS "SpanId",ServiceName AS "ServiceName",(Duration)/1e9 AS "Duration",
ParentSpanId AS "ParentSpanId",StatusCode AS "StatusCode",SpanAttributes AS "SpanAttributes",Events AS "SpanEvents" FROM {table}
WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
AND (TraceId = '4bf92f3577b34da6a3ce929d0e0e4736') LIMIT 50000

-- query: the spans of a trace from a source without attributes
-- source: packages/app/src/components/DBTraceWaterfallChart.tsx (getConfig)
-- layouts: Nested
-- answer: GET /cart|2026-08-20 12:00:00.000000000|00f067aa0ba902b7|frontend|0.12||Unset
-- answer: POST /checkout|2026-08-20 12:00:00.010000000|1111111111111111|frontend|0.09|00f067aa0ba902b7|Unset
-- answer: checkout|2026-08-20 12:00:00.020000000|2222222222222222|cart|0.07|1111111111111111|Error
SELECT SpanName AS "Body",Timestamp AS "Timestamp",SpanId AS "SpanId",ServiceName AS "ServiceName",(Duration)/1e9 AS "Duration",
ParentSpanId AS "ParentSpanId",StatusCode AS "StatusCode" FROM {table}
WHERE (Timestamp >= fromUnixTimestamp64Milli(1787223600000) AND Timestamp <= fromUnixTimestamp64Milli(1787230800000))
AND (TraceId = '4bf92f3577b34da6a3ce929d0e0e4736') LIMIT 50000

-- query: one span, with all of its columns
-- source: packages/app/src/components/DBRowDataPanel.tsx (useRowData), packages/app/src/hooks/useRowWhere.tsx
-- layouts: Json Map ClickStack
-- has: io.Error
-- has: frontend-7d4b9
SELECT *,Timestamp AS "__hdx_timestamp",SpanName AS "__hdx_body",TraceId AS "__hdx_trace_id",SpanId AS "__hdx_span_id",
StatusCode AS "__hdx_severity_text",ServiceName AS "__hdx_service_name",ResourceAttributes AS "__hdx_resource_attributes",
SpanAttributes AS "__hdx_event_attributes",Events.Attributes[indexOf(Events.Name, 'exception')] AS "__hdx_events_exception_attributes",
Events AS "__hdx_span_events",(Duration)/1e6 AS "__hdx_duration_ms",SpanKind AS "__hdx_span_kind",Links AS "__hdx_span_links"
FROM {table} WHERE (SpanName='GET /cart' AND Timestamp=parseDateTime64BestEffort('2026-08-20T12:00:00.000000000Z', 9)
AND SpanId='00f067aa0ba902b7' AND ServiceName='frontend' AND (Duration)/1e9=0.12 AND ParentSpanId='' AND StatusCode='Unset') LIMIT 1

-- query: one span, found by its attributes
-- source: packages/app/src/hooks/useRowWhere.tsx (JSON column, element of a JSON column)
-- layouts: Json
-- answer: 1
SELECT count() FROM {table} WHERE (lower(hex(MD5(toString(SpanAttributes))))=lower(hex(MD5('{"server":{"address":"cart"}}')))
AND toJSONString(SpanAttributes.server.address) = coalesce(toJSONString(JSONExtract('cart', 'Dynamic')), toJSONString('cart')))

-- query: calls between services
-- source: packages/app/src/hooks/useServiceMap.tsx (getServiceMapQuery)
-- layouts: Json Map Nested ClickStack
-- answer: cart|frontend|0|1|1
-- answer: cart||0|1|0
-- answer: cart||1|2|1
-- answer: frontend||0|1|0
-- answer: frontend||1|1|0
WITH ServerSpans AS (SELECT TraceId AS "traceId",SpanId AS "spanId",ServiceName AS "serviceName",ParentSpanId AS "parentSpanId",
StatusCode AS "statusCode",Duration AS "duration" FROM {table} WHERE ((cityHash64(TraceId) % 1 = 0)
AND (SpanKind IN ('Server', 'Consumer', 'SPAN_KIND_SERVER', 'SPAN_KIND_CONSUMER')))),
ClientSpans AS (SELECT TraceId AS "traceId",SpanId AS "spanId",ServiceName AS "serviceName",ParentSpanId AS "parentSpanId",
StatusCode AS "statusCode",Duration AS "duration" FROM {table} WHERE ((cityHash64(TraceId) % 1 = 0)
AND (SpanKind IN ('Client', 'Producer', 'SPAN_KIND_CLIENT', 'SPAN_KIND_PRODUCER'))))
SELECT ServerSpans.serviceName AS serverServiceName, ClientSpans.serviceName AS clientServiceName,
GROUPING(ClientSpans.serviceName) AS isNodeLevel, count(*) * 1 as requestCount, countIf(ServerSpans.statusCode = 'Error') * 1 as errorCount
FROM ServerSpans LEFT JOIN ClientSpans ON ServerSpans.traceId = ClientSpans.traceId AND ServerSpans.parentSpanId = ClientSpans.spanId
WHERE (ClientSpans.serviceName IS NULL OR ServerSpans.serviceName != ClientSpans.serviceName)
GROUP BY GROUPING SETS ((ServerSpans.serviceName, ClientSpans.serviceName),(ServerSpans.serviceName))
ORDER BY serverServiceName, isNodeLevel, clientServiceName

-- query: spans, each counted as often as its sampler says
-- source: packages/common-utils/src/core/renderChartConfig.ts (sampleWeightExpression SampleRate)
-- layouts: ClickStack
-- answer: 13|105
SELECT sum(greatest(toUInt64OrZero(toString(SampleRate)), 1)) AS "weighted",
round(sumIf(toFloat64OrDefault(toString(Duration)) * greatest(toUInt64OrZero(toString(SampleRate)), 1), toFloat64OrDefault(toString(Duration)) IS NOT NULL)
/ nullIf(sumIf(greatest(toUInt64OrZero(toString(SampleRate)), 1), toFloat64OrDefault(toString(Duration)) IS NOT NULL), 0) / 1e6, 2) AS "average"
FROM {table}

-- query: spans, each counted as often as its sampler says, without a column for it
-- source: packages/common-utils/src/core/renderChartConfig.ts (sampleWeightExpression SpanAttributes['SampleRate'])
-- layouts: Map
-- answer: 13
SELECT sum(greatest(toUInt64OrZero(toString(SpanAttributes['SampleRate'])), 1)) FROM {table}

-- query: spans, each counted as often as its sampler says, without a column for it
-- source: packages/common-utils/src/core/renderChartConfig.ts (sampleWeightExpression SpanAttributes.SampleRate)
-- layouts: Json
-- answer: 13
SELECT sum(greatest(toUInt64OrZero(toString(SpanAttributes.SampleRate)), 1)) FROM {table}

-- query: the first of several attributes that is there
-- source: packages/app/src/serviceDashboard.ts (makeCoalescedFieldsAccessQuery, JSON column)
-- layouts: Json
-- answer: /cart|1
-- answer: /items|1
-- answer: |2
SELECT coalesce(if(toString(SpanAttributes.`http.route`) != '', toString(SpanAttributes.`http.route`),
if(toString(SpanAttributes.`url.path`) != '', toString(SpanAttributes.`url.path`),''))) AS route, count() FROM {table} GROUP BY route
