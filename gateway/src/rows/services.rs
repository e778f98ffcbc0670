//! Spans and bytes by service.
//!
//! Job: counts the rows of each `ServiceName`, so that the cost of a table can be divided among services. Place in the flow:
//! [`crate::rows::span_row`] names each resource to its worker's [`ServiceTally`], which adds what a message has once all of it is in a block.
//! [`Services`] has the counts of all workers; [`Services::look`] says which are the largest.
//!
//! Bytes are those of the rows, before compression. They are known for each resource without reading it again. What a service costs in
//! blocks, on the network and in the table follows from them. Message bytes would leave out the copies of resources in the rows.
//!
//! Cost: per resource, two counters are read and the name is compared with the name before; another name is hashed. Nothing per span. A lock
//! is taken only for a name that is new to the worker; with more than [`SERVICES_MAX`] names, it is a lock that readers share.
//!
//! Limits: [`SERVICES_MAX`] names of [`NAME_BYTES_MAX`] are counted; others count as the rest. If [`Services::look`] finds all places taken, it
//! frees [`FREED_MAX`] of them: those of the smallest services that were never shown. The counts of these stay with the rest, and a large
//! service that comes late soon has a place. [`LARGEST_MAX`] are shown. Memory: 128 KiB for all names, and [`TALLY_BYTES_MAX`] a worker.

use sluice_clickhouse::row_frames::RowTotals;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Services that are counted one by one. Chosen: more than most companies have in one pipeline; every one takes about 250 bytes.
pub const SERVICES_MAX: usize = 512;

/// Places that a look gives free. Chosen: a quarter, so that services of middle size keep theirs.
const FREED_MAX: usize = SERVICES_MAX / 4;

/// Services that are shown. Chosen: a table that people read; two series each.
pub const LARGEST_MAX: usize = 50;

/// Bytes of a name. Longer names count under their beginning. Chosen: twice the longest name of an object in Kubernetes.
pub const NAME_BYTES_MAX: usize = 128;

/// The name of all others. A service of this name counts among them, so that it never stands for two things.
pub const OTHER: &str = "other";

/// The place of the rest, behind those of services.
const REST: usize = SERVICES_MAX;

/// Names that a worker finds without a lock. Chosen: half of those that are counted.
const KNOWN_MAX: usize = 256;

/// Memory of a worker's tally.
pub const TALLY_BYTES_MAX: usize =
    KNOWN_MAX * size_of::<Option<Known>>() + (SERVICES_MAX + 1) * (size_of::<Volume>() + size_of::<usize>());

/// What a service has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    pub spans: u64,
    /// Bytes of their rows, before compression.
    pub row_bytes: u64,
}

impl Volume {
    fn add(&mut self, other: Self) {
        self.spans = self.spans.saturating_add(other.spans);
        self.row_bytes = self.row_bytes.saturating_add(other.row_bytes);
    }

    fn since(self, before: Self) -> Self {
        Self {
            spans: self.spans.saturating_sub(before.spans),
            row_bytes: self.row_bytes.saturating_sub(before.row_bytes),
        }
    }
}

/// The counts of all workers.
#[derive(Debug)]
pub struct Services {
    /// The lock is taken by a worker for a name that is new to it.
    places: RwLock<Places>,
    /// How often places were given free.
    epoch: AtomicU64,
    /// By place; the last is the rest.
    counts: Box<[Count]>,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Places {
    /// The place of each name.
    of: HashMap<Arc<str>, usize>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Count {
    spans: AtomicU64,
    row_bytes: AtomicU64,
    /// The epoch that began when the place was last given free.
    freed: AtomicU64,
}

/// What was said at the last look.
#[derive(Debug)]
struct Shown {
    /// By place.
    counted: Vec<Volume>,
    /// By place, whether its service was ever among the largest: its counters must never begin anew.
    was_largest: Vec<bool>,
    other: Volume,
}

/// The largest services, and all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Largest {
    /// By bytes, the largest first.
    pub services: Vec<(Arc<str>, Volume)>,
    /// What others have sent while they were not among the largest: it never falls.
    pub other: Volume,
    /// What all that are not among the largest now have sent: with the largest, it is all.
    pub rest: Volume,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            places: RwLock::new(Places { of: HashMap::new(), free: (0..SERVICES_MAX).rev().collect() }),
            epoch: AtomicU64::new(0),
            counts: (0..=REST).map(|_| Count::default()).collect(),
            shown: Mutex::new(Shown {
                counted: vec![Volume::default(); REST + 1],
                was_largest: vec![false; REST + 1],
                other: Volume::default(),
            }),
        }
    }
}

impl Services {
    /// The largest services, with all that they have sent since the start.
    ///
    /// The counts of the largest and `other` never fall, so that they can be counters with the right rates. A service that is among the
    /// largest has its own count. What any other service has sent since the last look is added to the others, and stays there if the service
    /// is among the largest later.
    pub fn look(&self) -> Largest {
        // One look at a time: none gives a place free whose service another one shows.
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<(Arc<str>, usize)> =
            places.of.iter().map(|(name, place)| (name.clone(), *place)).collect();
        let is_full = places.free.is_empty();
        drop(places);
        let counts: Vec<Volume> = self.counts.iter().map(Count::get).collect();
        let mut services: Vec<(Arc<str>, usize, Volume)> =
            names.into_iter().map(|(name, place)| (name, place, counts[place])).collect();
        services.sort_unstable_by(|one, two| {
            two.2.row_bytes.cmp(&one.2.row_bytes).then_with(|| one.0.cmp(&two.0))
        });
        let mut is_largest = [false; REST + 1];
        let largest = services.iter().take(LARGEST_MAX).filter(|(_, _, volume)| volume.spans > 0);
        for (_, place, _) in largest {
            is_largest[*place] = true;
            shown.was_largest[*place] = true;
        }
        let Shown { counted, other, .. } = &mut *shown;
        for (place, (now, before)) in counts.iter().zip(counted).enumerate() {
            if !is_largest[place] {
                other.add(now.since(*before));
            }
            before.spans = before.spans.max(now.spans);
            before.row_bytes = before.row_bytes.max(now.row_bytes);
        }
        let other = *other;
        let mut rest = Volume::default();
        counts
            .iter()
            .zip(is_largest)
            .filter(|(_, is_largest)| !is_largest)
            .for_each(|(count, _)| rest.add(*count));
        if is_full {
            let never_shown = services.iter().rev().filter(|(_, place, _)| !shown.was_largest[*place]);
            let smallest: Vec<(Arc<str>, usize)> =
                never_shown.take(FREED_MAX).map(|(name, place, _)| (name.clone(), *place)).collect();
            self.free(&smallest, &mut shown);
        }
        services.truncate(LARGEST_MAX);
        services.retain(|(_, _, volume)| volume.spans > 0);
        let services = services.into_iter().map(|(name, _, volume)| (name, volume)).collect();
        Largest { services, other, rest }
    }

    /// Gives the places of these services free, and leaves what they have sent to the rest.
    fn free(&self, smallest: &[(Arc<str>, usize)], shown: &mut Shown) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        for (name, place) in smallest {
            places.of.remove(name);
            places.free.push(*place);
            let count = &self.counts[*place];
            count.freed.store(epoch, Ordering::Relaxed);
            self.counts[REST].add(count.take());
            let counted = std::mem::take(&mut shown.counted[*place]);
            shown.counted[REST].add(counted);
        }
        // Workers that see it see the places that were freed.
        self.epoch.store(epoch, Ordering::Release);
    }

    /// The place of a name, and the name itself if it has a place of its own.
    fn place(&self, name: &str) -> (usize, Option<Arc<str>>) {
        if name == OTHER {
            return (REST, None);
        }
        let found = |places: &Places| match places.of.get_key_value(name) {
            Some((name, place)) => Some((*place, Some(name.clone()))),
            None => places.free.is_empty().then_some((REST, None)),
        };
        if let Some(found) = found(&self.places.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        // Another worker may have added it meanwhile.
        if let Some(found) = found(&places) {
            return found;
        }
        let Some(place) = places.free.pop() else { return (REST, None) };
        let name: Arc<str> = name.into();
        places.of.insert(name.clone(), place);
        (place, Some(name))
    }
}

impl Count {
    fn get(&self) -> Volume {
        Volume {
            spans: self.spans.load(Ordering::Relaxed),
            row_bytes: self.row_bytes.load(Ordering::Relaxed),
        }
    }

    fn add(&self, Volume { spans, row_bytes }: Volume) {
        self.spans.fetch_add(spans, Ordering::Relaxed);
        self.row_bytes.fetch_add(row_bytes, Ordering::Relaxed);
    }

    fn take(&self) -> Volume {
        Volume {
            spans: self.spans.swap(0, Ordering::Relaxed),
            row_bytes: self.row_bytes.swap(0, Ordering::Relaxed),
        }
    }
}

/// A name that a worker knows, and its place.
type Known = (Arc<str>, usize);

/// A worker's part: counts a message, and adds it to the counts of all once it is whole.
#[derive(Debug)]
pub struct ServiceTally {
    services: Arc<Services>,
    /// By a hash of the name.
    known: Vec<Option<Known>>,
    /// When the message began.
    epoch: u64,
    /// What the message has, by place.
    pending: Vec<Volume>,
    /// Places with something pending.
    touched: Vec<usize>,
    /// The place of the resource that is read, and the totals of the block in front of its rows.
    open: Option<(usize, RowTotals)>,
    /// The slot of the last name.
    last: usize,
}

impl ServiceTally {
    /// For one worker.
    pub fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            known: vec![None; KNOWN_MAX],
            epoch: 0,
            pending: vec![Volume::default(); SERVICES_MAX + 1],
            touched: Vec::with_capacity(SERVICES_MAX + 1),
            open: None,
            last: 0,
        }
    }

    /// Begins a message, and forgets one that was not whole.
    pub fn begin(&mut self) {
        self.open = None;
        for place in self.touched.drain(..) {
            self.pending[place] = Volume::default();
        }
        let epoch = self.services.epoch.load(Ordering::Acquire);
        if self.epoch != epoch {
            self.epoch = epoch;
            self.known.fill(None);
        }
    }

    /// Begins a resource with this `ServiceName`; `totals` are those of the block.
    #[inline]
    pub fn resource(&mut self, name: &[u8], totals: RowTotals) {
        self.close(totals);
        self.open = Some((self.place(name), totals));
    }

    /// Adds a whole message to the counts of all; `totals` are those of the block with it. What it has for a place that was given free since
    /// it began counts as the rest.
    pub fn commit(&mut self, totals: RowTotals) {
        self.close(totals);
        self.open = None;
        let counts = &self.services.counts;
        let has_changed = self.services.epoch.load(Ordering::Acquire) != self.epoch;
        for place in self.touched.drain(..) {
            let volume = std::mem::take(&mut self.pending[place]);
            let is_freed = has_changed && counts[place].freed.load(Ordering::Relaxed) > self.epoch;
            counts[if is_freed { REST } else { place }].add(volume);
        }
    }

    /// Counts the rows since the resource began.
    #[inline]
    fn close(&mut self, totals: RowTotals) {
        let Some((place, before)) = self.open else { return };
        let spans = totals.rows.saturating_sub(before.rows);
        if spans == 0 {
            return;
        }
        let pending = &mut self.pending[place];
        if pending.spans == 0 {
            self.touched.push(place);
        }
        pending.add(Volume { spans, row_bytes: totals.raw_bytes.saturating_sub(before.raw_bytes) });
    }

    #[inline]
    fn place(&mut self, name: &[u8]) -> usize {
        match &self.known[self.last] {
            Some((known, place)) if known.as_bytes() == name => *place,
            _ => self.other_place(name),
        }
    }

    /// The place of another name than the last one.
    fn other_place(&mut self, name: &[u8]) -> usize {
        let name = beginning(name);
        let slot = slot(name);
        if let Some((known, place)) = &self.known[slot]
            && known.as_bytes() == name
        {
            self.last = slot;
            return *place;
        }
        // Names are UTF-8: they are stored as such.
        let (place, known) = self.services.place(&String::from_utf8_lossy(name));
        if let Some(known) = known {
            self.known[slot] = Some((known, place));
            self.last = slot;
        }
        place
    }
}

/// A name, cut between two characters.
fn beginning(name: &[u8]) -> &[u8] {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let is_inside = |at: usize| name[at] & 0xC0 == 0x80;
    let end = (NAME_BYTES_MAX - 3..=NAME_BYTES_MAX).rev().find(|end| !is_inside(*end));
    &name[..end.unwrap_or(NAME_BYTES_MAX)]
}

/// Where a worker looks for a name: FNV-1a.
fn slot(name: &[u8]) -> usize {
    let hash =
        name.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    usize::from((hash ^ (hash >> 16)).to_le_bytes()[0]) % KNOWN_MAX
}

#[cfg(test)]
mod tests;
