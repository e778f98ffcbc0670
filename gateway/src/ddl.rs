//! `sluice-gateway ddl`: the table's definition, printed or applied.

use crate::sink::{Error, Sink};
use sluice_clickhouse::ddl::create_table;
use sluice_gateway_config::ClickHouse;

/// The statements for a missing table, each ended by a semicolon.
pub fn print(config: &ClickHouse) -> Result<String, Error> {
    let statements = create_table(&Sink::new(config)?.table_spec());
    Ok(statements.join(";\n") + ";\n")
}

/// Creates what is missing, as far as `schema.management` allows, and checks the columns. Says what it did.
pub async fn apply(config: &ClickHouse) -> Result<String, Error> {
    Sink::new(config)?.apply(config.schema.management).await
}
