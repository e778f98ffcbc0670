//! ClickHouse: RowBinary, compressed frames, tables and inserts
