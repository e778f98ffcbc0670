//! What a queue must do, without files: a list of blocks, with the requests and guarantees of each.

use crate::model_disk::ModelDisk;
use sluice_spool::{
    AppendError, BlockHead, BlockId, Body, Fatal, FileAt, Options, Queue, Recovered, Sent,
    format::{RECORDS_AT, VERSION},
};

pub const IDENTITY: u64 = 0x51;

/// Rows of each only copy that are stored elsewhere too; no block has as many.
pub const ROWS_ELSEWHERE: u64 = 9;

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    No,
    /// It may be on the disk.
    Yes,
    /// A sync has returned since.
    Synced,
}

#[derive(Debug, Clone)]
pub struct Block {
    pub head: BlockHead,
    pub body: Vec<u8>,
    /// `None` if its append failed: it may be there or not.
    pub id: Option<BlockId>,
    pub durable: bool,
    pub sent: Asked,
    /// Whether it was marked as one that only this queue can send.
    pub sole: Asked,
    /// Whether the caller relies on it.
    pub kept: Asked,
    /// Whether it was marked as the only copy of its rows.
    pub only: Asked,
    pub settled: Asked,
}

impl Block {
    pub fn new(head: BlockHead, body: Vec<u8>, id: Option<BlockId>) -> Self {
        let (sent, sole, kept, only, settled) = (Asked::No, Asked::No, Asked::No, Asked::No, Asked::No);
        Self { head, body, id, durable: false, sent, sole, kept, only, settled }
    }
}

/// Blocks in the order in which they were appended.
#[derive(Debug, Default)]
pub struct Naive {
    pub blocks: Vec<Block>,
    made: u64,
}

pub fn options(segments: u64) -> Options {
    let segment_bytes = RECORDS_AT + (12 << 10);
    let bytes_max = segments * segment_bytes;
    Options {
        identity: IDENTITY,
        version: VERSION,
        bytes_max,
        segment_bytes,
        relied_on: false,
        reads_all: true,
    }
}

pub fn open(disk: &ModelDisk, segments: u64) -> (Queue<ModelDisk>, Recovered) {
    Queue::open(disk.clone(), options(segments)).expect("a disk without faults is opened")
}

pub fn read_all<F: FileAt>(mut body: Body<F>) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1_000]);
    loop {
        match body.read(&mut buffer).expect("the body is whole") {
            0 => return bytes,
            len => bytes.extend_from_slice(&buffer[..len]),
        }
    }
}

impl Naive {
    /// A block that differs from all others.
    pub fn make(&mut self, partition: i32, bytes: usize, sent_before: bool) -> (BlockHead, Vec<u8>) {
        self.made += 1;
        let made = self.made;
        let first = made.cast_signed() * 10;
        let head = BlockHead {
            topic: if partition == 0 { "other".into() } else { "spans".into() },
            partition,
            first,
            next: first + 10,
            token: format!("token-{made}").into_bytes().into(),
            rows: made % 7,
            raw_bytes: made * 3,
            span_end_nanos_max: made * 5,
            first_sent_ms: sent_before.then_some(made),
            routing_epoch: made.is_multiple_of(2).then_some(partition.unsigned_abs()),
            destination: made.is_multiple_of(3).then_some(1 + partition.unsigned_abs()),
            columns: 0xc0,
            metadata_bytes: 0,
        };
        let body = (0..bytes).map(|at| u8::try_from((at as u64 * 31 + made) % 251).unwrap()).collect();
        (head, body)
    }

    /// Appends a block to both; returns whether the queue accepted it.
    pub fn append<F: sluice_spool::Files>(
        &mut self,
        queue: &mut Queue<F>,
        partition: i32,
        bytes: usize,
    ) -> Result<bool, Fatal> {
        let (head, body) = self.make(partition, bytes, bytes.is_multiple_of(5));
        let middle = body.len() / 3;
        let id = match queue.append(&head, &[&body[..middle], &body[middle..]], self.made) {
            Ok(id) => Ok(Some(id)),
            Err(AppendError::Full(_)) => return Ok(false),
            Err(AppendError::Unfit(unfit)) => panic!("{unfit}"),
            Err(AppendError::Fatal(fatal)) => Err(fatal),
        };
        let known = id.as_ref().ok().copied().flatten();
        self.blocks.push(Block::new(head, body, known));
        id.map(|_| true)
    }

    pub fn sync<F: sluice_spool::Files>(&mut self, queue: &mut Queue<F>) -> Result<(), Fatal> {
        queue.sync()?;
        self.synced();
        Ok(())
    }

    pub fn synced(&mut self) {
        for block in &mut self.blocks {
            block.durable = true;
            let marks = [&mut block.sent, &mut block.sole, &mut block.kept, &mut block.only];
            for asked in marks.into_iter().chain([&mut block.settled]) {
                *asked = if *asked == Asked::No { Asked::No } else { Asked::Synced };
            }
        }
    }

    /// The blocks that a queue without faults must hold.
    pub fn held(&self) -> Vec<usize> {
        (0..self.blocks.len()).filter(|at| self.blocks[*at].settled == Asked::No).collect()
    }

    /// One of the held blocks, by any number.
    pub fn pick(&self, number: usize) -> Option<usize> {
        let held = self.held();
        (!held.is_empty()).then(|| held[number % held.len()])
    }

    pub fn mark_sent<F: sluice_spool::Files>(
        &mut self,
        queue: &mut Queue<F>,
        at: usize,
    ) -> Result<(), Fatal> {
        let block = &mut self.blocks[at];
        block.sent = block.sent.max(Asked::Yes);
        queue.mark_sent(block.id.unwrap(), 77)
    }

    pub fn mark_sole<F: sluice_spool::Files>(
        &mut self,
        queue: &mut Queue<F>,
        at: usize,
    ) -> Result<(), Fatal> {
        let block = &mut self.blocks[at];
        if block.sent == Asked::No && block.head.first_sent_ms.is_none() {
            block.sole = block.sole.max(Asked::Yes);
        }
        queue.mark_sole(block.id.unwrap())
    }

    /// Keeps a block, and makes its segment durable.
    pub fn keep<F: sluice_spool::Files>(&mut self, queue: &mut Queue<F>, at: usize) -> Result<(), Fatal> {
        let id = self.blocks[at].id.unwrap();
        self.blocks[at].kept = self.blocks[at].kept.max(Asked::Yes);
        queue.keep_blocks(&[id])?;
        self.blocks[at].durable = true;
        Ok(())
    }

    /// Marks a block as the only copy of its rows, and syncs its segment, like a caller that relies on it.
    pub fn mark_only_copy<F: sluice_spool::Files>(
        &mut self,
        queue: &mut Queue<F>,
        at: usize,
    ) -> Result<(), Fatal> {
        let id = self.blocks[at].id.unwrap();
        self.blocks[at].only = self.blocks[at].only.max(Asked::Yes);
        queue.mark_only_copy(id, ROWS_ELSEWHERE)?;
        queue.sync_blocks(&[id])?;
        (self.blocks[at].only, self.blocks[at].durable) = (Asked::Synced, true);
        Ok(())
    }

    pub fn settle<F: sluice_spool::Files>(&mut self, queue: &mut Queue<F>, at: usize) -> Result<(), Fatal> {
        self.blocks[at].settled = Asked::Yes;
        queue.settle(self.blocks[at].id.unwrap())
    }

    /// Settles the blocks of a partition that moved to another owner.
    pub fn settle_partition<F: sluice_spool::Files>(
        &mut self,
        queue: &mut Queue<F>,
        partition: i32,
    ) -> Result<(), Fatal> {
        let is_theirs = |at: &usize| self.blocks[*at].head.partition == partition;
        let theirs: Vec<usize> = self.held().into_iter().filter(is_theirs).collect();
        theirs.into_iter().try_for_each(|at| self.settle(queue, at))
    }

    /// Checks that the queue holds exactly these blocks, and reports them so.
    pub fn assert_same<F: sluice_spool::Files>(&self, queue: &Queue<F>) {
        let expected: Vec<&Block> = self.held().into_iter().map(|at| &self.blocks[at]).collect();
        let ids: Vec<BlockId> = queue.held().map(|held| held.id).collect();
        assert_eq!(ids, expected.iter().map(|block| block.id.unwrap()).collect::<Vec<_>>());
        assert!(ids.is_sorted());
        let usage = queue.usage();
        assert_eq!(usage.blocks, expected.len() as u64);
        assert_eq!(usage.rows, expected.iter().map(|block| block.head.rows).sum::<u64>());
        assert_eq!(usage.body_bytes, expected.iter().map(|block| block.body.len() as u64).sum::<u64>());
        assert_eq!((usage.lost, usage.kept_bytes), (0, 0));
        for (held, block) in queue.held().zip(expected) {
            assert_block(queue, held.id, block);
            let never = block.sent == Asked::No && block.head.first_sent_ms.is_none();
            let expected = if block.sole == Asked::No { Sent::Never } else { Sent::Sole };
            assert!(if never { held.sent == expected } else { held.sent.is_marked() }, "{held:?}");
            assert_eq!(held.only_copy.is_some(), block.only != Asked::No, "{held:?}");
        }
    }

    /// After a crash: what was guaranteed is there, and nothing is there that was not requested. From then on the list is what was found.
    pub fn adopt<F: sluice_spool::Files>(&mut self, queue: &Queue<F>, report: &Recovered) {
        assert_eq!(report.set_aside, [], "a crash is no damage");
        // Records that an earlier crash tore before an intact block were settled then.
        let mut found = Vec::new();
        let mut from = 0;
        for held in queue.held() {
            let (head, _) = queue.read(held.id).expect("a header that was just checked can be read");
            let at = (from..self.blocks.len()).find(|at| self.blocks[*at].head == head);
            let at = at.expect("what is held was appended, in this order");
            for missing in &self.blocks[from..at] {
                assert_may_be_missing(missing);
            }
            from = at + 1;
            let mut block = self.blocks[at].clone();
            assert_block(queue, held.id, &block);
            assert_ne!(block.settled, Asked::Synced, "what was settled does not come back");
            let asked = block.sent.max(block.settled);
            match held.sent {
                Sent::Never => {
                    let lost = [block.sent, block.sole];
                    assert!(!lost.contains(&Asked::Synced) && head.first_sent_ms.is_none());
                }
                Sent::Sole => assert!(block.sent != Asked::Synced && block.sole != Asked::No),
                Sent::At(ms) => {
                    // With time 0 it stands for a block that was doubtful, and became an only copy.
                    let is_marked =
                        block.sent != Asked::No && (ms == 77 || (ms == 0 && block.only != Asked::No));
                    assert!(Some(ms) == head.first_sent_ms || is_marked);
                }
                Sent::Doubtful => {
                    let written = asked.max(block.sole).max(block.kept).max(block.only);
                    assert_ne!(written, Asked::No, "only a mark that was written is doubtful");
                }
            }
            match held.only_copy {
                // The mark may have been overwritten by `done`: then the block is settled.
                None => assert!(block.only != Asked::Synced || block.settled != Asked::No),
                Some(ROWS_ELSEWHERE) => assert_ne!(block.only, Asked::No),
                Some(rows) => {
                    assert!(rows == head.rows && held.sent == Sent::Doubtful && block.only != Asked::No);
                }
            }
            block.only = if held.only_copy.is_some() { Asked::Synced } else { Asked::No };
            block.sent = if held.sent.is_marked() { Asked::Synced } else { Asked::No };
            block.sole = if held.sent == Sent::Sole { Asked::Synced } else { Asked::No };
            // Its mark may be there, or another one in its place.
            block.kept = if block.kept == Asked::No { Asked::No } else { Asked::Synced };
            (block.id, block.durable, block.settled) = (Some(held.id), true, Asked::No);
            found.push(block);
        }
        self.blocks[from..].iter().for_each(assert_may_be_missing);
        assert_eq!(report.blocks, found.len() as u64);
        assert_eq!(report.rows, found.iter().map(|block| block.head.rows).sum::<u64>());
        self.blocks = found;
        self.assert_same(queue);
    }
}

fn assert_may_be_missing(block: &Block) {
    let promised = block.durable && block.settled == Asked::No;
    assert!(!promised, "{:?} was synced, and is gone", block.head);
}

fn assert_block<F: sluice_spool::Files>(queue: &Queue<F>, id: BlockId, block: &Block) {
    let (head, body) = queue.read(id).expect("a block that is held can be read");
    assert_eq!(head, block.head);
    assert_eq!(body.left(), block.body.len() as u64);
    assert_eq!(read_all(body), block.body);
}
