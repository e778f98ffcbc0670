//! A disk that tears, loses and reorders unsynced writes, gets full, and fails or loses power at a chosen call.
//!
//! Writes stay in a list per file until it is synced. When the power fails, each page of each write is kept, lost or torn independently,
//! and so is each change of a name. A real disk does less. So the queue cannot rely on an order that it did not request.

use sluice_spool::{FileAt, Files};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{Error, ErrorKind, Result},
    ops::Range,
    rc::Rc,
};

const PAGE_BYTES: usize = 4_096;

/// An input/output error, as the system says it.
const EIO: i32 = 5;

/// The event at a chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The power fails during the call, and every later call fails until the disk is started again.
    PowerLoss,
    /// There is no space, if the call needs any.
    NoRoom,
    /// It fails with an input/output error. A failed sync loses its data, and later syncs do not report it.
    Broken,
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

#[derive(Debug, Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    pending: Vec<NameChange>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    room: Option<usize>,
    /// Reads that succeed before each fails.
    readable: Option<u64>,
    /// Bytes of files that cannot be read.
    bad: Vec<(usize, Range<usize>)>,
    off: bool,
    random: u64,
}

/// The disk; clones are the same one.
#[derive(Debug, Clone)]
pub struct ModelDisk(Rc<RefCell<State>>);

#[derive(Debug)]
pub struct ModelFile {
    disk: ModelDisk,
    inode: usize,
}

impl ModelDisk {
    pub fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            inodes: Vec::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            calls: 0,
            fault: None,
            room: None,
            readable: None,
            bad: Vec::new(),
            off: false,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        })))
    }

    /// Sets a fault at the call with this number, counted from 1.
    pub fn fail_at(&self, calls: u64, fault: Fault) {
        let mut state = self.0.borrow_mut();
        state.fault = Some((state.calls + calls, fault));
    }

    /// Whether the fault has occurred.
    pub fn has_failed(&self) -> bool {
        let state = self.0.borrow();
        state.fault.is_some_and(|(at, _)| state.calls >= at)
    }

    /// Sets the bytes that fit on it.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.0.borrow_mut().room = bytes;
    }

    /// After so many reads, each read fails with an input/output error.
    pub fn break_reads_after(&self, reads: u64) {
        self.0.borrow_mut().readable = Some(reads);
    }

    /// Reads succeed again. Returns whether one had failed.
    pub fn mend_reads(&self) -> bool {
        self.0.borrow_mut().readable.take() == Some(0)
    }

    /// From now on, these bytes of a file cannot be read, under whatever name.
    pub fn break_bytes(&self, name: &str, bytes: Range<usize>) {
        let mut state = self.0.borrow_mut();
        let inode = state.live[name];
        state.bad.push((inode, bytes));
    }

    /// Bytes of all files.
    pub fn used(&self) -> usize {
        self.0.borrow().used()
    }

    /// The power fails now, and returns.
    pub fn lose_power(&self) {
        let state = &mut *self.0.borrow_mut();
        state.lose_what_is_pending();
        (state.off, state.fault) = (false, None);
    }

    /// Restarts only the process: written data stays.
    pub fn restart_process(&self) {
        let mut state = self.0.borrow_mut();
        assert!(!state.off, "a process cannot start without power");
        state.fault = None;
    }

    pub fn file_names(&self) -> Vec<String> {
        self.0.borrow().live.keys().cloned().collect()
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.0.borrow();
        state.inodes[state.live[name]].live.clone()
    }

    /// Puts a durable file on the disk.
    pub fn put(&self, name: &str, content: &[u8]) {
        let mut state = self.0.borrow_mut();
        let inode = state.inodes.len();
        let (live, durable) = (content.to_vec(), content.to_vec());
        state.inodes.push(Inode { live, durable, pending: Vec::new() });
        state.live.insert(name.to_owned(), inode);
        state.durable.insert(name.to_owned(), inode);
    }
}

impl State {
    fn used(&self) -> usize {
        self.live.values().map(|inode| self.inodes[*inode].live.len()).sum()
    }

    /// A number from 0 to `below − 1`: xorshift64*.
    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % below
    }

    /// Counts a call, and returns the event at it.
    fn call(&mut self) -> Result<Option<Fault>> {
        if self.off {
            return Err(Error::other("the power is off"));
        }
        self.calls += 1;
        let fault = self.fault.filter(|(at, _)| *at == self.calls).map(|(_, fault)| fault);
        self.off = fault == Some(Fault::PowerLoss);
        Ok(fault)
    }

    fn lose_what_is_pending(&mut self) {
        // A process crash loses no writes; a machine crash may lose everything since the last sync.
        let keep = [Some(true), Some(false), None, None][self.random(4)];
        for inode in 0..self.inodes.len() {
            self.lose_changes(inode, keep);
        }
        for change in std::mem::take(&mut self.pending) {
            if keep.unwrap_or_else(|| self.random(2) == 0) {
                apply_name(&mut self.durable, change);
            }
        }
        self.live = self.durable.clone();
    }

    fn lose_changes(&mut self, inode: usize, keep: Option<bool>) {
        for change in std::mem::take(&mut self.inodes[inode].pending) {
            let pieces = match change {
                Change::Write { at, bytes } if keep.is_none() => self.tear(at, &bytes),
                change if keep.unwrap_or_else(|| self.random(2) == 0) => vec![change],
                _ => Vec::new(),
            };
            let durable = &mut self.inodes[inode].durable;
            for piece in &pieces {
                apply(durable, piece);
            }
        }
        self.inodes[inode].live = self.inodes[inode].durable.clone();
    }

    /// The rest of a write after a power failure: of each page all, nothing, its beginning or its end.
    fn tear(&mut self, at: usize, bytes: &[u8]) -> Vec<Change> {
        let mut kept = Vec::new();
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + PAGE_BYTES - (at + from) % PAGE_BYTES);
            let cut = from + self.random(to - from + 1);
            let part = [from..to, from..to, from..from, from..cut, cut..to][self.random(5)].clone();
            if !part.is_empty() {
                kept.push(Change::Write { at: at + part.start, bytes: bytes[part].to_vec() });
            }
            from = to;
        }
        kept
    }

    fn change(&mut self, inode: usize, change: Change) {
        apply(&mut self.inodes[inode].live, &change);
        self.inodes[inode].pending.push(change);
    }

    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.live, change.clone());
        self.pending.push(change);
    }

    fn write(&mut self, inode: usize, at: usize, bytes: &[u8]) -> Result<()> {
        let fault = self.call()?;
        let grows = (at + bytes.len()).saturating_sub(self.inodes[inode].live.len());
        let room = self.room.map_or(usize::MAX, |room| room.saturating_sub(self.used()));
        let no_room = grows > room || (fault == Some(Fault::NoRoom) && grows > 0);
        let broken = matches!(fault, Some(Fault::PowerLoss | Fault::Broken));
        if !no_room && !broken {
            self.change(inode, Change::Write { at, bytes: bytes.to_vec() });
            return Ok(());
        }
        let most = bytes.len().saturating_sub(grows.saturating_sub(room));
        let part = self.random(most + 1);
        if part > 0 {
            self.change(inode, Change::Write { at, bytes: bytes[..part].to_vec() });
        }
        Err(if no_room { ErrorKind::StorageFull.into() } else { Error::other("input/output error") })
    }

    fn sync(&mut self, inode: usize) -> Result<()> {
        match self.call()? {
            Some(Fault::PowerLoss) => Err(Error::other("the power is off")),
            Some(Fault::Broken) => {
                let live = self.inodes[inode].live.clone();
                self.lose_changes(inode, None);
                self.inodes[inode].live = live;
                Err(Error::other("input/output error"))
            }
            _ => {
                let Inode { durable, pending, .. } = &mut self.inodes[inode];
                for change in pending.drain(..) {
                    apply(durable, &change);
                }
                Ok(())
            }
        }
    }

    /// A call that happens completely or not at all.
    fn whole(&mut self) -> Result<()> {
        match self.call()? {
            Some(Fault::PowerLoss | Fault::Broken) => Err(Error::other("input/output error")),
            _ => Ok(()),
        }
    }

    fn named(&self, name: &str) -> Result<usize> {
        self.live.get(name).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, bytes } => {
            let end = at + bytes.len();
            content.resize(content.len().max(end), 0);
            content[*at..end].copy_from_slice(bytes);
        }
        Change::Truncate(bytes) => content.resize(*bytes, 0),
    }
}

/// A rename whose earlier change was lost cannot happen.
fn apply_name(names: &mut BTreeMap<String, usize>, change: NameChange) {
    match change {
        NameChange::Create(name, inode) => {
            names.insert(name, inode);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
        NameChange::Remove(name) => {
            names.remove(&name);
        }
    }
}

impl Files for ModelDisk {
    type File = ModelFile;

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.file_names())
    }

    fn create(&self, name: &str) -> Result<ModelFile> {
        let state = &mut *self.0.borrow_mut();
        match state.call()? {
            Some(Fault::NoRoom) => return Err(ErrorKind::StorageFull.into()),
            Some(_) => return Err(Error::other("input/output error")),
            None => {}
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.change_name(NameChange::Create(name.to_owned(), inode));
        Ok(ModelFile { disk: self.clone(), inode })
    }

    fn open(&self, name: &str) -> Result<ModelFile> {
        Ok(ModelFile { disk: self.clone(), inode: self.0.borrow().named(name)? })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.named(from)?;
        state.whole()?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.named(name)?;
        state.whole()?;
        state.change_name(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_directory(&self) -> Result<()> {
        let state = &mut *self.0.borrow_mut();
        state.whole()?;
        for change in std::mem::take(&mut state.pending) {
            apply_name(&mut state.durable, change);
        }
        Ok(())
    }
}

impl FileAt for ModelFile {
    fn size(&self) -> Result<u64> {
        Ok(self.disk.0.borrow().inodes[self.inode].live.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let mut state = self.disk.0.borrow_mut();
        match &mut state.readable {
            Some(0) => return Err(Error::from_raw_os_error(EIO)),
            Some(left) => *left -= 1,
            None => {}
        }
        let content = &state.inodes[self.inode].live;
        let from = usize::try_from(at).unwrap();
        let is_bad = |(inode, bytes): &(usize, Range<usize>)| {
            *inode == self.inode && bytes.start < from + buffer.len() && from < bytes.end
        };
        if state.bad.iter().any(is_bad) {
            return Err(Error::from_raw_os_error(EIO));
        }
        let bytes = content.get(from..from + buffer.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.disk.0.borrow_mut().write(self.inode, usize::try_from(at).unwrap(), bytes)
    }

    fn truncate(&self, bytes: u64) -> Result<()> {
        let state = &mut *self.disk.0.borrow_mut();
        state.whole()?;
        state.change(self.inode, Change::Truncate(usize::try_from(bytes).unwrap()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.disk.0.borrow_mut().sync(self.inode)
    }
}
