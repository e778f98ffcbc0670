//! Rows against a naive model: a list of rows that are kept.

use super::*;
use proptest::prelude::*;

/// Raw bytes of each frame in `store`.
fn frames(store: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < store.len() {
        let mut raw = Vec::new();
        at += frame::decode(&store[at..], &mut raw).unwrap();
        frames.push(raw);
    }
    frames
}

/// A row of `len` bytes that no other row equals, not compressible beyond reason.
fn row(number: u32, len: usize) -> Vec<u8> {
    let mut row: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
    for (at, byte) in row.iter_mut().enumerate() {
        *byte = byte.wrapping_add(at.wrapping_mul(31).to_le_bytes()[0]);
    }
    row
}

/// What every finished insert must be: the rows kept, no frame but the last ending with a row, all frames in bounds.
fn check(store: &[u8], rows: &[Vec<u8>]) {
    let frames = frames(store);
    assert!(frames.concat() == rows.concat(), "frames hold the rows kept and nothing else");
    let mut row_ends = std::collections::HashSet::new();
    rows.iter().fold(0, |end, row| {
        row_ends.insert(end + row.len());
        end + row.len()
    });
    let mut end = 0;
    for (number, frame) in frames.iter().enumerate() {
        end += frame.len();
        assert!(frame.len() <= FRAME_RAW_BYTES + 1, "frame {number} has {} raw bytes", frame.len());
        let last = number + 1 == frames.len();
        assert_eq!(row_ends.contains(&end), last, "frame {number} of {} ends at {end}", frames.len());
    }
}

fn append(frames: &mut RowFrames, store: &mut Vec<u8>, row: &[u8]) {
    frames.row().extend_from_slice(row);
    frames.end_row(store).unwrap();
}

#[test]
fn rows_of_any_size_give_frames_that_end_inside_a_row() {
    // around the size at which frames are cut, rows of one size each
    let sizes =
        [2, 3, 100, 65_536, 131_072, FRAME_RAW_BYTES - 1, FRAME_RAW_BYTES, FRAME_RAW_BYTES + 1, 3_000_000];
    for size in sizes {
        let (mut frames, mut store) = (RowFrames::new(), Vec::new());
        let count = u32::try_from((4 * FRAME_RAW_BYTES / size).max(3)).unwrap();
        let rows: Vec<_> = (0..count).map(|number| row(number, size)).collect();
        for row in &rows {
            append(&mut frames, &mut store, row);
        }
        let totals = frames.finish(&mut store).unwrap();
        let raw_bytes = rows.iter().map(|row| row.len() as u64).sum();
        assert_eq!(totals, RowTotals { rows: u64::from(count), raw_bytes });
        check(&store, &rows);
    }
}

#[test]
fn a_row_that_ends_where_a_frame_would_be_cut_moves_the_cut() {
    let (mut frames, mut store) = (RowFrames::new(), Vec::new());
    let rows = [row(1, FRAME_RAW_BYTES), row(2, 2), row(3, 50)];
    append(&mut frames, &mut store, &rows[0]);
    assert!(store.is_empty(), "a full buffer that ends with a row waits for the next row");
    append(&mut frames, &mut store, &rows[1]);
    assert_eq!(self::frames(&store)[0].len(), FRAME_RAW_BYTES + 1);
    append(&mut frames, &mut store, &rows[2]);
    frames.finish(&mut store).unwrap();
    check(&store, &rows);
}

#[test]
fn no_rows_give_no_frame() {
    let (mut frames, mut store) = (RowFrames::new(), Vec::new());
    assert_eq!(frames.finish(&mut store).unwrap(), RowTotals { rows: 0, raw_bytes: 0 });
    assert!(store.is_empty());
}

#[test]
fn the_buffer_shrinks_again_after_a_long_row() {
    let (mut frames, mut store) = (RowFrames::new(), Vec::new());
    let memory_bytes = frames.memory_bytes();
    append(&mut frames, &mut store, &row(1, 5_000_000));
    assert_eq!(frames.memory_bytes(), memory_bytes);
    let mark = frames.mark(&store);
    frames.row().extend_from_slice(&row(2, 5_000_000));
    frames.rewind(&mut store, mark).unwrap();
    assert_eq!(frames.memory_bytes(), memory_bytes);
}

#[test]
fn a_message_can_be_taken_back_after_its_rows_were_compressed() {
    let (mut frames, mut store) = (RowFrames::new(), Vec::new());
    let kept = [row(1, 1000), row(2, 2000)];
    append(&mut frames, &mut store, &kept[0]);
    append(&mut frames, &mut store, &kept[1]);
    let mark = frames.mark(&store);
    for number in 3..2000 {
        append(&mut frames, &mut store, &row(number, 700));
    }
    assert!(self::frames(&store).len() > 2, "frames were cut since the mark");
    frames.row().extend_from_slice(b"a row that ends in the middle of");
    frames.rewind(&mut store, mark).unwrap();
    assert!(store.is_empty());
    assert_eq!(frames.totals(), RowTotals { rows: 2, raw_bytes: 3000 });
    frames.finish(&mut store).unwrap();
    check(&store, &kept);
}

/// A store with room for a number of frames, as a pool that runs empty.
#[derive(Default)]
struct Pool {
    bytes: Vec<u8>,
    room: usize,
}

#[derive(Debug)]
struct PoolEmpty;

impl FrameStore for Pool {
    type Error = PoolEmpty;

    fn append(&mut self, frame: &[u8]) -> Result<(), PoolEmpty> {
        self.room = self.room.checked_sub(1).ok_or(PoolEmpty)?;
        self.bytes.extend_from_slice(frame);
        Ok(())
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[range]);
    }
}

#[test]
fn a_row_whose_frames_did_not_fit_can_be_ended_again() {
    let (mut frames, mut pool) = (RowFrames::new(), Pool::default());
    let rows = [row(1, 10_000), row(2, FRAME_RAW_BYTES * 5), row(3, 100)];
    frames.row().extend_from_slice(&rows[0]);
    frames.end_row(&mut pool).unwrap();
    frames.row().extend_from_slice(&rows[1]);
    for room in [0, 1, 2] {
        pool.room = room;
        frames.end_row(&mut pool).unwrap_err();
    }
    pool.room = 100;
    frames.end_row(&mut pool).unwrap();
    frames.row().extend_from_slice(&rows[2]);
    frames.end_row(&mut pool).unwrap();
    pool.room = 0;
    frames.finish(&mut pool).unwrap_err();
    pool.room = 1;
    let raw_bytes = rows.iter().map(|row| row.len() as u64).sum();
    assert_eq!(frames.finish(&mut pool).unwrap(), RowTotals { rows: 3, raw_bytes });
    check(&pool.bytes, &rows);
}

#[test]
fn a_row_whose_frames_did_not_fit_can_be_taken_back() {
    let (mut frames, mut pool) = (RowFrames::new(), Pool::default());
    let kept = [row(1, 10_000)];
    frames.row().extend_from_slice(&kept[0]);
    frames.end_row(&mut pool).unwrap();
    let mark = frames.mark(&pool);
    frames.row().extend_from_slice(&row(2, FRAME_RAW_BYTES * 5));
    pool.room = 2;
    frames.end_row(&mut pool).unwrap_err();
    frames.rewind(&mut pool, mark).unwrap();
    pool.room = 1;
    frames.finish(&mut pool).unwrap();
    check(&pool.bytes, &kept);
}

#[derive(Debug, Clone)]
enum Action {
    Rows { count: u32, len: usize },
    Mark,
    Rewind,
    RewindInsideRow,
    Finish,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => (1_u32..400, 2_usize..4000).prop_map(|(count, len)| Action::Rows { count, len }),
        1 => (1_u32..3, 2_usize..900_000).prop_map(|(count, len)| Action::Rows { count, len }),
        3 => Just(Action::Mark),
        1 => Just(Action::Rewind),
        1 => Just(Action::RewindInsideRow),
        1 => Just(Action::Finish),
    ]
}

/// The naive version: all rows of the insert, and how many there were at the mark.
#[derive(Default)]
struct Model {
    rows: Vec<Vec<u8>>,
    mark: Option<(RowMark, usize)>,
}

impl Model {
    fn apply(&mut self, action: &Action, frames: &mut RowFrames, store: &mut Vec<u8>) {
        match action {
            Action::Rows { count, len } => {
                for _ in 0..*count {
                    let number = u32::try_from(self.rows.len()).unwrap();
                    let row = row(number, *len);
                    append(frames, store, &row);
                    self.rows.push(row);
                }
            }
            Action::Mark => self.mark = Some((frames.mark(store), self.rows.len())),
            Action::Rewind | Action::RewindInsideRow => {
                let Some((mark, rows)) = self.mark else { return };
                if matches!(action, Action::RewindInsideRow) {
                    frames.row().extend_from_slice(&[0xee; 1000]);
                }
                frames.rewind(store, mark).unwrap();
                self.rows.truncate(rows);
            }
            Action::Finish => {
                assert_eq!(frames.finish(store).unwrap().rows, self.rows.len() as u64);
                check(store, &self.rows);
                store.clear();
                *self = Model::default();
            }
        }
        let raw_bytes = self.rows.iter().map(|row| row.len() as u64).sum();
        assert_eq!(frames.totals(), RowTotals { rows: self.rows.len() as u64, raw_bytes });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn frames_hold_exactly_the_rows_that_were_not_taken_back(actions in proptest::collection::vec(action(), 1..40)) {
        let (mut frames, mut store, mut model) = (RowFrames::new(), Vec::new(), Model::default());
        for action in &actions {
            model.apply(action, &mut frames, &mut store);
        }
        model.apply(&Action::Finish, &mut frames, &mut store);
    }
}
