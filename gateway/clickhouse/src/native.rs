//! Rows as columns: a block of `RowBinary` frames turned into one block of ClickHouse's `Native` format.
//!
//! Job: spares the server the parsing of rows, which is more than half of the cost of an INSERT. Place in the flow: the client converts a
//! block right before it sends it, if the target asks for it ([`crate::body::WireFormat::Native`]). The block itself does not change: in
//! memory, on the queue volume, under its token, and for code that reads its rows. Owner: the sending thread. Pure.
//!
//! ```text
//! frames -> rows -> TableColumn::append, a column each -> Stream: a column's bytes, in frames once they are many
//!                                                                   `-> prefix, data -> frames of the Native block
//! ```
//!
//! | bytes | meaning |
//! |---|---|
//! | varuint | number of columns |
//! | varuint | number of rows |
//! | then per column: string | its name |
//! | string | its type, as `DESCRIBE TABLE` prints it |
//! | | what [`values`] calls the prefix: versions, kind of dictionary, paths and types of `JSON` |
//! | | its values, one kind of data after the other |
//!
//! **One INSERT is one `Native` block.** The server would also merge several blocks. But ClickHouse 26.7 compares the token combined with
//! *the number of blocks of the INSERT*: the same rows under the same token in two blocks and in one are stored twice (measured;
//! `source-number-N` in the server's log). Rows in `RowBinary` are one block. So a retry may use another format than the attempt before,
//! and no row is doubled (`gateway/tests/live/native.rs`).
//!
//! Limits: a block that cannot be converted within [`MEMORY_BYTES_MAX`], or has more than [`PATHS_MAX`] paths, is [`Unfit`] and is sent
//! as rows. `JSON` has a byte on the wire for every path and row, whether the row has the path or not: [`CELLS_MAX`]. Time is linear in
//! the rows' bytes and in these.
//!
//! Source: bytes that ClickHouse 26.7 wrote with `output_format_native_use_flattened_dynamic_and_json_serialization`, and
//! <https://clickhouse.com/docs/interfaces/formats/Native>.

use bytes::Bytes;

use crate::block_rows::{self, BlockError, Frames, RAW_BYTES_MAX, ROW_BYTES_MAX};
use crate::column::TableColumns;
use crate::frame::FrameEncoder;
use crate::row_frames::FRAME_RAW_BYTES;
use crate::rowbinary::{put_len, put_string, put_varuint};
use crate::settings::BLOCK_ROWS_MAX;

mod cursor;
mod dictionary;
mod dynamic;
mod kind;
mod objects;
mod prefix;
mod stream;
mod table_column;
mod times;
mod values;

use cursor::Cursor;
use kind::Kind;
use stream::Output;
use table_column::TableColumn;

/// The format's name in a statement.
pub const FORMAT: &str = "Native";

/// Maximum number of paths of all `JSON` columns of a block. Chosen: the default of `max_dynamic_paths`, above which the server stores
/// paths differently; traces of one topic have a few hundred.
pub const PATHS_MAX: usize = 1_024;

/// Maximum number of types of one path. Specified: an index is one byte, and one value means "no value".
const TYPES_MAX: usize = 254;

/// Maximum bytes of indexes of a block: the paths times the rows of its `JSON` columns. They cost memory and time in the server, not
/// here. Chosen: 36,000 rows, a block of the default size, with 400 paths.
pub const CELLS_MAX: usize = 16 << 20;

/// Memory for the columns of one block: uncompressed data and frames. Chosen: a block of the default size has 4 MiB of frames and 3 MiB
/// of runs of paths; each of some hundred columns holds up to [`stream::SPILL_BYTES`] plus the growth of a few rows.
pub const COLUMNS_BYTES_MAX: usize = 16 << 20;

/// Total memory while a block is converted: the columns; one row of the largest size, which the columns copy while they grow to twice its
/// size, and the rest of their growth for it; that row and its frame in the raw bytes; the encoder's.
pub const MEMORY_BYTES_MAX: usize = COLUMNS_BYTES_MAX + 2 * ROW_BYTES_MAX + block_rows::MEMORY_BYTES_MAX;

/// Maximum bytes of the converted frames. Chosen: twice those of a block of the default size.
pub const FRAMES_BYTES_MAX: usize = 8 << 20;

/// A frame ends inside a row, and columns cannot undo half a row. So the last bytes of a frame wait for the next one: at least this many,
/// and [`MARGIN_ROWS`] times the largest row so far. They are copied in front of the next frame.
const MARGIN_BYTES_MIN: usize = FRAME_RAW_BYTES / 16;

/// Rows of the largest size so far that wait for the next frame.
const MARGIN_ROWS: usize = 8;

/// Margins to try in turn if a row was larger than the margin: the last exceeds any row.
const MARGINS_BYTES: [usize; 3] = [MARGIN_BYTES_MIN, FRAME_RAW_BYTES, ROW_BYTES_MAX];

/// Bytes of rows between two checks of the columns' memory.
const LOOK_BYTES: usize = FRAME_RAW_BYTES;

/// Why a block is sent as rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// [`PATHS_MAX`]
    #[error("its JSON columns have more than {PATHS_MAX} paths")]
    Paths,
    /// [`CELLS_MAX`]
    #[error("its JSON columns have too many paths for so many rows (more than {CELLS_MAX} bytes of indexes)")]
    Cells,
    /// [`BLOCK_ROWS_MAX`]
    #[error("it has no rows, or more than {BLOCK_ROWS_MAX}")]
    RowCount,
    /// A row continues past the available bytes.
    #[error("it ends within a row")]
    Short,
    /// A path with more types than a byte can index.
    #[error("a JSON path has more than {TYPES_MAX} types")]
    Types,
    /// [`COLUMNS_BYTES_MAX`], [`FRAMES_BYTES_MAX`]
    #[error(
        "its columns take more than {COLUMNS_BYTES_MAX} bytes, or their frames more than {FRAMES_BYTES_MAX}"
    )]
    Memory,
    /// It has a value that the row encoder never writes.
    #[error("a row has {0}")]
    Value(&'static str),
    /// Its rows cannot be separated.
    #[error("{0}")]
    Rows(#[from] BlockError),
}

impl Unfit {
    /// A word for a label.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Paths => "paths",
            Self::Cells => "cells",
            Self::Types => "types",
            Self::Memory => "memory",
            Self::RowCount | Self::Short | Self::Value(_) | Self::Rows(_) => "rows",
        }
    }
}

/// A column of the table.
#[derive(Debug, Clone)]
struct ColumnShape {
    name: String,
    type_name: String,
    kind: Kind,
}

/// The columns of a table whose rows can be converted.
#[derive(Debug, Clone)]
pub struct NativeShape {
    columns: Vec<ColumnShape>,
}

impl NativeShape {
    /// The shape of rows of these columns.
    ///
    /// # Errors
    /// Name and type of the first column whose type has no columnar encoding here; [`crate::table::check`] accepts no such column.
    pub fn of(columns: &TableColumns) -> Result<Self, String> {
        let shape = |column: &crate::column::Column| {
            let type_name = columns.type_name(column);
            let kind = Kind::parse(&type_name).ok_or_else(|| format!("{} {type_name}", column.name))?;
            Ok(ColumnShape { name: column.name.clone(), type_name, kind })
        };
        let shapes = columns.columns().iter().map(shape).collect::<Result<_, String>>()?;
        Ok(Self { columns: shapes })
    }
}

/// Converts the rows of these chunks, which are a block's frames without a header, to frames of a `Native` block.
///
/// # Errors
/// [`Unfit`]: the block is then sent as rows.
pub fn turned(shape: &NativeShape, chunks: &[Bytes]) -> Result<Vec<Bytes>, Unfit> {
    let short = Err(Unfit::Short);
    MARGINS_BYTES.into_iter().fold(short, |outcome, margin| match outcome {
        Err(Unfit::Short) => turned_with(shape, chunks, margin),
        outcome => outcome,
    })
}

/// Like [`turned`], with at least `margin` bytes of a frame waiting for the next one.
fn turned_with(shape: &NativeShape, chunks: &[Bytes], mut margin: usize) -> Result<Vec<Bytes>, Unfit> {
    let mut turning = Transposer::new(&shape.columns);
    let mut frames = Frames::new(chunks);
    // It never grows, since growing would need twice the memory for a moment; unused pages are never touched.
    let mut raw = Vec::with_capacity(RAW_BYTES_MAX);
    while frames.next(&mut raw)? {
        let mut at = 0;
        while raw.len() - at > margin {
            let row = turning.append(&raw[at..])?;
            at += row;
            margin = margin.max(row.saturating_mul(MARGIN_ROWS)).min(ROW_BYTES_MAX);
        }
        raw.drain(..at);
    }
    let mut rest = &raw[..];
    while !rest.is_empty() {
        let row = turning.append(rest).map_err(|unfit| match unfit {
            Unfit::Short => Unfit::Value("no end"),
            unfit => unfit,
        })?;
        rest = &rest[row..];
    }
    turning.finish()
}

/// Columns that are being filled.
struct Transposer<'a> {
    shapes: &'a [ColumnShape],
    columns: Vec<TableColumn>,
    rows: u64,
    /// Bytes of rows since the last check.
    unseen: usize,
    encoder: FrameEncoder,
}

impl<'a> Transposer<'a> {
    fn new(shapes: &'a [ColumnShape]) -> Self {
        let columns = shapes.iter().map(|shape| TableColumn::new(&shape.kind)).collect();
        Self { shapes, columns, rows: 0, unseen: 0, encoder: FrameEncoder::new(FRAME_RAW_BYTES) }
    }

    /// Appends the row that `bytes` begins with; returns its length.
    fn append(&mut self, bytes: &[u8]) -> Result<usize, Unfit> {
        let mut cursor = Cursor::new(bytes);
        for column in &mut self.columns {
            column.append(&mut cursor)?;
        }
        self.rows += 1;
        let row = bytes.len() - cursor.rest().len();
        self.unseen += row;
        if self.unseen >= LOOK_BYTES {
            self.look()?;
        }
        Ok(row)
    }

    /// Compresses columns that have become large, and checks the memory of all columns.
    fn look(&mut self) -> Result<(), Unfit> {
        self.unseen = 0;
        let (mut bytes, mut paths, mut cells) = (0, 0, 0);
        for column in &mut self.columns {
            column.spill(&mut self.encoder)?;
            bytes += column.bytes();
            paths += column.values().paths();
            cells += column.values().cells();
        }
        if paths > PATHS_MAX {
            return Err(Unfit::Paths);
        }
        if cells > CELLS_MAX {
            return Err(Unfit::Cells);
        }
        if bytes > COLUMNS_BYTES_MAX { Err(Unfit::Memory) } else { Ok(()) }
    }

    fn finish(mut self) -> Result<Vec<Bytes>, Unfit> {
        self.look()?;
        // The server reads no prefix of a column without rows.
        if self.rows == 0 || self.rows > BLOCK_ROWS_MAX.into() {
            return Err(Unfit::RowCount);
        }
        let mut output = Output::new(self.encoder);
        put_len(output.raw(), self.columns.len());
        put_varuint(output.raw(), self.rows);
        for (shape, column) in self.shapes.iter().zip(self.columns) {
            let values = column.into_values();
            put_string(output.raw(), shape.name.as_bytes());
            put_string(output.raw(), shape.type_name.as_bytes());
            values.put_prefix(output.raw());
            values.put_data(&mut output);
        }
        let frames = output.finish();
        let bytes = frames.iter().map(Bytes::len).sum::<usize>();
        if bytes > FRAMES_BYTES_MAX { Err(Unfit::Memory) } else { Ok(frames) }
    }
}

#[cfg(test)]
mod tests;
