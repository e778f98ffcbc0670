"""Reads the table of spans as a program with clickhouse-connect does, and prints each row as a line of JSON.

Arguments: host, port, database.
"""

import json
import sys

import clickhouse_connect

host, port, database = sys.argv[1:]
client = clickhouse_connect.get_client(host=host, port=int(port), database=database)
try:
    for row in client.query("SELECT * FROM otel_traces ORDER BY Timestamp").named_results():
        print(json.dumps(row, default=str, sort_keys=True))
finally:
    client.close()
