use super::*;
use crate::column::TableColumns;
use crate::row_frames::RowFrames;
use crate::rowbinary::{put_len, put_string};
use crate::test_rows::{Chance, columns, row};
use proptest::prelude::*;

/// Rows as the encoder puts them into frames, in chunks of a random size.
struct Sealed {
    columns: TableColumns,
    rows: Vec<Vec<u8>>,
    chunks: Vec<Bytes>,
    header: Vec<u8>,
}

impl Sealed {
    fn new(seed: u64, with_header: bool) -> Self {
        let mut chance = Chance::new(seed);
        let columns = columns(&mut chance);
        let kinds: Vec<Vec<u8>> = (0..20).map(|_| row(&columns, &mut chance)).collect();
        // Enough for some frames, and at times one row that is larger than several.
        let mut rows: Vec<Vec<u8>> = (0..3_000).map(|_| kinds[chance.below(kinds.len())].clone()).collect();
        if chance.below(2) == 0 {
            let mut large = rows[0].clone();
            // The row's first value is a time; a text follows.
            let behind = 8 + 1 + usize::from(large[8] & 0x7f) + usize::from(large[8] >= 0x80);
            let mut text = Vec::new();
            put_string(&mut text, &vec![b'x'; 700_000]);
            if large[8] < 0x80 {
                large.splice(8..behind, text);
                let at = chance.below(rows.len());
                rows[at] = large;
            }
        }
        let header = if with_header { header(&columns) } else { Vec::new() };
        let chunks = chunks(&sealed(&header, &rows), 1 + chance.below(100_000));
        Self { columns, rows, chunks, header }
    }

    fn header_kind(&self) -> Header {
        if self.header.is_empty() { Header::None } else { Header::NamesAndTypes }
    }
}

fn header(columns: &TableColumns) -> Vec<u8> {
    let mut header = Vec::new();
    let columns = columns.columns();
    put_len(&mut header, columns.len());
    for column in &columns {
        put_string(&mut header, column.name.as_bytes());
    }
    for column in &columns {
        put_string(&mut header, column.column_type.to_string().as_bytes());
    }
    header
}

fn sealed(header: &[u8], rows: &[Vec<u8>]) -> Vec<u8> {
    let (mut frames, mut store) = (RowFrames::new(), Vec::new());
    frames.row().extend_from_slice(header);
    for row in rows {
        frames.row().extend_from_slice(row);
        let Ok(()) = frames.end_row(&mut store);
    }
    let Ok(_) = frames.finish(&mut store);
    store
}

fn chunks(bytes: &[u8], size: usize) -> Vec<Bytes> {
    bytes.chunks(size).map(Bytes::copy_from_slice).collect()
}

/// The raw bytes of each frame.
fn raw_frames(chunks: &[Bytes]) -> Vec<Vec<u8>> {
    let bytes = chunks.concat();
    let (mut at, mut frames) = (0, Vec::new());
    while at < bytes.len() {
        let mut raw = Vec::new();
        at += frame::decode(&bytes[at..], &mut raw).unwrap();
        frames.push(raw);
    }
    frames
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_rows_of_the_encoder_are_found_exactly(seed: u64, with_header: bool) {
        let sealed = Sealed::new(seed, with_header);
        let shape = RowShape::of(&sealed.columns);
        let mut found = BlockRows::new(&shape, &sealed.chunks, sealed.header_kind()).unwrap();
        for (number, row) in sealed.rows.iter().enumerate() {
            let next = found.next_row().unwrap();
            prop_assert!(next == Some(&row[..]), "row {} of {}", number, sealed.rows.len());
        }
        prop_assert_eq!(found.next_row(), Ok(None));
        prop_assert_eq!(found.raw.capacity(), RAW_BYTES_MAX, "it has grown");
        prop_assert_eq!(count(&shape, &sealed.chunks, sealed.header_kind()), Ok(sealed.rows.len() as u64));
    }

    #[test]
    fn a_window_holds_its_rows_in_frames_that_end_inside_rows(
        seed: u64, with_header: bool, ends: (prop::sample::Index, prop::sample::Index),
    ) {
        let sealed = Sealed::new(seed, with_header);
        let shape = RowShape::of(&sealed.columns);
        let ends = (ends.0.index(sealed.rows.len()), ends.1.index(sealed.rows.len()));
        let (from, to) = (ends.0.min(ends.1), ends.0.max(ends.1) + 1);
        let body = window(&shape, &sealed.chunks, sealed.header_kind(), from as u64..to as u64).unwrap();
        let frames = raw_frames(&body);
        let expected = [&sealed.header[..], &sealed.rows[from..to].concat()].concat();
        prop_assert!(frames.concat() == expected, "rows {}..{}", from, to);
        let mut row_ends = std::collections::HashSet::from([sealed.header.len()]);
        let mut end = sealed.header.len();
        for row in &sealed.rows[from..to] {
            end += row.len();
            row_ends.insert(end);
        }
        let mut frame_end = 0;
        for frame in &frames[..frames.len() - 1] {
            frame_end += frame.len();
            prop_assert!(!row_ends.contains(&frame_end), "a frame ends with a row, at {}", frame_end);
        }
    }

    #[test]
    fn damaged_blocks_are_errors(seed: u64, at: prop::sample::Index, cut: bool) {
        let sealed = Sealed::new(seed, false);
        let shape = RowShape::of(&sealed.columns);
        let mut bytes = sealed.chunks.concat();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 0x10 }
        let counted = count(&shape, &chunks(&bytes, 50_000), Header::None);
        // An empty block is one without rows.
        prop_assert!(counted.is_err() || bytes.is_empty(), "{:?}", counted);
    }
}

#[test]
fn the_longest_row_is_found_in_the_memory_that_is_said() {
    let mut chance = Chance::new(3);
    let columns = TableColumns::default();
    let mut long = row(&columns, &mut chance);
    let behind = 8 + 1 + usize::from(long[8]);
    assert!(long[8] < 0x80, "the text behind the time is short");
    let mut text = Vec::new();
    let bytes = ROW_BYTES_MAX - (long.len() - behind) - 8 - 4;
    // What does not compress, so that frames are as long as they become.
    let noise: Vec<u8> = (0..bytes).map(|_| u8::try_from(chance.below(256)).unwrap()).collect();
    put_string(&mut text, &noise);
    long.splice(8..behind, text);
    assert_eq!(long.len(), ROW_BYTES_MAX);
    let small = row(&columns, &mut chance);
    let rows = [vec![small.clone(); 500], vec![long], vec![small; 500]].concat();
    let chunks = chunks(&sealed(&[], &rows), 64 << 10);
    let shape = RowShape::of(&columns);
    let mut found = BlockRows::new(&shape, &chunks, Header::None).unwrap();
    while found.next_row().unwrap().is_some() {}
    assert_eq!((found.rows(), found.raw.capacity()), (1_001, RAW_BYTES_MAX));
    let body = window(&shape, &chunks, Header::None, 499..502).unwrap();
    let made: usize = [&body[0], &body[body.len() - 1]].map(Bytes::len).iter().sum();
    assert!(found.memory_bytes() + made + 2 * frame_bytes_max(FRAME_RAW_BYTES + 1) <= MEMORY_BYTES_MAX);
}

#[test]
fn rows_that_are_not_there_are_not_given() {
    let sealed = Sealed::new(7, false);
    let shape = RowShape::of(&sealed.columns);
    let rows = sealed.rows.len() as u64;
    let asked = window(&shape, &sealed.chunks, Header::None, 0..rows + 1);
    assert_eq!(asked, Err(BlockError::TooFew { rows, wanted: rows + 1 }));
}

#[test]
fn the_whole_block_is_sent_as_it_is() {
    for with_header in [false, true] {
        let sealed = Sealed::new(11, with_header);
        let shape = RowShape::of(&sealed.columns);
        let body = window(&shape, &sealed.chunks, sealed.header_kind(), 0..sealed.rows.len() as u64).unwrap();
        assert_eq!(raw_frames(&body).concat(), raw_frames(&sealed.chunks).concat());
        if !with_header {
            assert_eq!(body.concat(), sealed.chunks.concat());
        }
    }
}
