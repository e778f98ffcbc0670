//! `JSON`, flattened: a column for every path.
//!
//! | bytes | meaning |
//! |---|---|
//! | prefix: `UInt64` | 3: flattened |
//! | varuint, strings | the paths that the type does not declare |
//! | | the prefix of each declared path, sorted by path |
//! | | the prefix of each other path: [`super::dynamic`] |
//! | data: | of each declared path, a value for every row |
//! | | of each other path |
//!
//! Most rows have the same paths in the same order as the previous row, with values of the same types. So each path stores the path that
//! followed it last time, and name and type are compared in one step.

use std::collections::HashMap;

use super::cursor::Cursor;
use super::dynamic::{Dynamic, FLATTENED};
use super::kind::Kind;
use super::prefix::Prefix;
use super::stream::Output;
use super::times::Times;
use super::values::Values;
use super::{PATHS_MAX, Unfit};
use crate::frame::FrameEncoder;
use crate::rowbinary::{put_len, put_string, put_u64};

/// Memory of a path besides its values and name. Chosen: its entry in a list and in a table, both at least half full.
const PATH_BYTES: usize = 512;

const _: () = assert!(PATH_BYTES >= 2 * size_of::<Path>() + 4 * size_of::<(Box<[u8]>, usize)>());

/// Maximum size of the default of a declared path: eight bytes and a flag.
const VALUE_BYTES: usize = 9;

/// The objects of a column.
#[derive(Debug)]
pub(super) struct Objects {
    rows: usize,
    /// Declared paths first, sorted.
    paths: Vec<Path>,
    declared: usize,
    /// The index of each path. Seeded: senders choose paths, and must not be able to choose collisions.
    places: HashMap<Box<[u8]>, usize>,
    /// The path that came first last time.
    first: usize,
}

#[derive(Debug)]
struct Path {
    name: Box<[u8]>,
    /// Its name in the encoding of a row, and the type of its last value, if values carry one.
    head: Prefix,
    column: Column,
    /// The path that followed it last time.
    next: usize,
}

#[derive(Debug)]
enum Column {
    /// Values of the declared type, for all rows so far.
    Declared(Values, usize),
    Dynamic(Dynamic),
}

impl Objects {
    pub(super) fn new(declared: &[(Box<[u8]>, Kind)]) -> Self {
        let path = |(name, kind): &(Box<[u8]>, Kind)| Path {
            name: name.clone(),
            head: Prefix::of_string(name),
            column: Column::Declared(Values::new(kind), 0),
            next: 0,
        };
        let paths: Vec<_> = declared.iter().map(path).collect();
        let places = paths.iter().enumerate().map(|(place, path)| (path.name.clone(), place)).collect();
        Self { rows: 0, declared: paths.len(), paths, places, first: 0 }
    }

    /// Appends the row's next object several times.
    pub(super) fn append(&mut self, cursor: &mut Cursor<'_>, times: impl Times) -> Result<(), Unfit> {
        let mut before = None;
        let mut guess = self.first;
        for _ in 0..cursor.length()? {
            let place = match self.paths.get(guess) {
                Some(path) if path.head.begins(cursor.rest()) => {
                    cursor.take(path.head.len())?;
                    guess
                }
                _ => self.search(before, cursor)?,
            };
            let path = &mut self.paths[place];
            path.column.append(cursor, self.rows, times)?;
            before = Some(place);
            guess = path.next;
        }
        self.rows += times.count();
        Ok(())
    }

    /// Reads name and type of a path that is not in the place of last time, or has another type; returns its index.
    #[inline(never)]
    fn search(&mut self, before: Option<usize>, cursor: &mut Cursor<'_>) -> Result<usize, Unfit> {
        let start = *cursor;
        let name = cursor.text()?;
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => self.add(name, cursor)?,
        };
        match before {
            Some(before) => self.paths[before].next = place,
            None => self.first = place,
        }
        let path = &mut self.paths[place];
        if let Column::Dynamic(dynamic) = &mut path.column {
            dynamic.read_type(cursor)?;
        }
        let head = start.up_to(cursor);
        if !(path.head.len() == head.len() && path.head.begins(head)) {
            path.head = Prefix::new(head);
        }
        Ok(place)
    }

    #[cold]
    fn add(&mut self, name: &[u8], cursor: &mut Cursor<'_>) -> Result<usize, Unfit> {
        let place = self.paths.len();
        if place >= PATHS_MAX + self.declared {
            return Err(Unfit::Paths);
        }
        cursor.grow(PATH_BYTES)?;
        let column = Column::Dynamic(Dynamic::default());
        self.paths.push(Path { name: name.into(), head: Prefix::of_string(name), column, next: place });
        self.places.insert(name.into(), place);
        Ok(place)
    }

    /// Appends objects without paths.
    pub(super) fn pad(&mut self, count: usize) {
        self.rows += count;
    }

    pub(super) fn spill(&mut self, encoder: &mut FrameEncoder) {
        for path in &mut self.paths {
            match &mut path.column {
                Column::Declared(values, rows) => {
                    values.pad(self.rows - *rows);
                    *rows = self.rows;
                    values.spill(encoder);
                }
                Column::Dynamic(dynamic) => dynamic.spill(encoder),
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |path: &Path| match &path.column {
            Column::Declared(values, _) => values.bytes(),
            Column::Dynamic(dynamic) => dynamic.bytes(),
        };
        self.paths.iter().map(|path| PATH_BYTES + 3 * path.name.len() + bytes(path)).sum()
    }

    pub(super) fn paths(&self) -> usize {
        let paths = |path: &Path| match &path.column {
            Column::Declared(..) => 0,
            Column::Dynamic(dynamic) => 1 + dynamic.paths(),
        };
        self.paths.iter().map(paths).sum()
    }

    /// The number of indexes that will be written for them.
    pub(super) fn cells(&self) -> usize {
        let cells = |path: &Path| match &path.column {
            Column::Declared(values, _) => values.cells(),
            Column::Dynamic(dynamic) => self.rows + dynamic.cells(),
        };
        self.paths.iter().map(cells).sum()
    }

    pub(super) fn put_prefix(&self, out: &mut Vec<u8>) {
        put_u64(out, FLATTENED);
        let (declared, others) = self.paths.split_at(self.declared);
        put_len(out, others.len());
        for path in others {
            put_string(out, &path.name);
        }
        for path in declared.iter().chain(others) {
            match &path.column {
                Column::Declared(values, _) => values.put_prefix(out),
                Column::Dynamic(dynamic) => dynamic.put_prefix(out),
            }
        }
    }

    pub(super) fn put_data(self, output: &mut Output) {
        for path in self.paths {
            match path.column {
                Column::Declared(mut values, rows) => {
                    values.pad(self.rows - rows);
                    values.put_data(output);
                }
                Column::Dynamic(mut dynamic) => {
                    dynamic.pad(self.rows - dynamic.len());
                    dynamic.put_data(output);
                }
            }
        }
    }
}

impl Column {
    /// Appends a value of the row with this number, several times; earlier rows without one are padded.
    #[inline]
    fn append(&mut self, cursor: &mut Cursor<'_>, row: usize, times: impl Times) -> Result<(), Unfit> {
        match self {
            Self::Declared(values, rows) => {
                if *rows > row {
                    return Err(Unfit::Value("a path twice"));
                }
                cursor.grow(VALUE_BYTES * (row - *rows))?;
                values.pad(row - *rows);
                *rows = row + times.count();
                values.append(cursor, times)
            }
            Self::Dynamic(dynamic) => {
                if dynamic.len() > row {
                    return Err(Unfit::Value("a path twice"));
                }
                dynamic.pad(row - dynamic.len());
                dynamic.append(cursor, times)
            }
        }
    }
}
