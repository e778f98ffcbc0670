//! The columns for which only copies on a volume are sent.
//!
//! | a block was encoded for | it is sent |
//! | --- | --- |
//! | the columns of new rows | for these |
//! | other columns, which the table also has, with types of the same binary format | for them, with the table's names of their types |
//! | other columns, which the table does not have in this form | once someone adds them, or names a table that has them |
//! | other columns, and the record of them is missing or damaged | the same |
//!
//! Owner: the process that asks about blocks, for one question. The table of a shard is checked once for all of its blocks with the same
//! columns. Shards are independent: one that is away, or has another table, does not delay blocks of this one.

use crate::{
    table::sink::Sink,
    volume::spool::{LeftBlock, Spool, Written},
};
use sluice_clickhouse::column::TableColumns;
use std::{collections::BTreeMap, sync::Arc};

/// Why a block cannot be sent now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// The table does not accept the columns that it was encoded for: someone must act.
    #[error("{0}")]
    Unfit(String),
    /// No server says which columns the table has.
    #[error("{0}")]
    Unknown(String),
    /// Its token is of another version of this program, which must send it: the server would not recognise it under another token.
    #[error("their tokens are of another version")]
    Foreign,
}

/// The columns to send a block for; `None` for those of new rows.
pub type Form = Option<Arc<TableColumns>>;

/// The tables to check.
#[derive(Clone)]
pub struct Tables {
    /// The number of the columns of new rows.
    pub columns: u64,
    pub shards: Vec<Sink>,
}

/// The results, by the shard's position in the config and the number of columns.
#[derive(Default)]
pub struct Fits(BTreeMap<(usize, u64), Result<Form, Unsendable>>);

impl Fits {
    /// The columns to send a block for, to the shard with this position in the config.
    pub async fn of(
        &mut self,
        block: &LeftBlock,
        place: usize,
        (spool, tables): (&Spool, &Tables),
    ) -> Result<Form, Unsendable> {
        let key = (place, block.columns());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let found = tables.form(key, spool).await;
        self.0.insert(key, found.clone());
        found
    }
}

impl Tables {
    async fn form(&self, (place, number): (usize, u64), spool: &Spool) -> Result<Form, Unsendable> {
        if number == self.columns {
            return Ok(None);
        }
        let encoded = match spool.columns(number).await {
            Written::Whole(encoded) => encoded,
            Written::Nothing => return Err(unfit("the queue volume does not record which")),
            Written::Damaged => return Err(unfit("the file that records which is damaged")),
        };
        match self.shards[place].check_encoded(&encoded).await {
            Ok(columns) => Ok(Some(Arc::new(columns))),
            Err(error) if error.is_about_the_table() => Err(Unsendable::Unfit(error.to_string())),
            Err(error) => Err(Unsendable::Unknown(error.to_string())),
        }
    }
}

fn unfit(why: &str) -> Unsendable {
    Unsendable::Unfit(format!("they are encoded for other columns than new rows, and {why}"))
}
