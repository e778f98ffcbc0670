//! For which columns of the table the only copies on a volume are sent.
//!
//! | a block was encoded for | it is sent |
//! | --- | --- |
//! | the columns that rows are encoded for now | for them |
//! | others, which the table has too, with types that read the same bytes | for those, as the table calls their types |
//! | others, which it does not have so | not before someone has given them back, or named a table that has them |
//! | others, and nobody has written down which, or that is damaged | the same |
//!
//! Owner: whoever asks about blocks, for one question: the table of a shard is looked at once for all its blocks of the same columns. Another
//! shard's is none of their business: one that is away, or whose table is another, keeps no block of this one.

use crate::{
    table::sink::Sink,
    volume::spool::{LeftBlock, Spool, Written},
};
use sluice_clickhouse::column::TableColumns;
use std::{collections::BTreeMap, sync::Arc};

/// Why a block cannot be sent now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// The table does not take what it was encoded for: someone must act.
    #[error("{0}")]
    Unfit(String),
    /// No server says which columns the table has.
    #[error("{0}")]
    Unknown(String),
    /// Its token is none of ours, and under another one the server would not know it: another version of this program must send it.
    #[error("their tokens are of another version")]
    Foreign,
}

/// As what a block is sent; `None` for the columns that rows are encoded for now.
pub type Form = Option<Arc<TableColumns>>;

/// Where the table is looked at.
#[derive(Clone)]
pub struct Tables {
    /// The columns that rows are encoded for now, as a number.
    pub columns: u64,
    /// All shards.
    pub shards: Vec<Sink>,
}

/// What was found, by the shard's place in the config and the number of columns.
#[derive(Default)]
pub struct Fits(BTreeMap<(usize, u64), Result<Form, Unsendable>>);

impl Fits {
    /// As what a block is sent to the shard with this place in the config.
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
