//! A disk that does not give what a log has stored, or does not mark what a reader has found to be damaged.

use crate::{
    log_damage::{EVEN, ODD, RECORD_BYTES, file, flip_in, lost, read, two_segments, written},
    log_model::{IDENTITY, NaiveLog, Opened, open, options},
    model_disk::{Fault, ModelDisk},
};
use sluice_spool::{
    Directory, Files,
    format::{RECORD_HEADER_BYTES, RECORDS_AT},
    log::{Log, OffsetsFound, Read, has_uncommitted},
};
use std::{
    fs::File,
    io::Result,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::Duration,
};

/// Where a message of a record begins, behind the fixed part.
fn message_at(record: usize, message: usize) -> usize {
    record * RECORD_BYTES + RECORD_HEADER_BYTES + 16 + 100 * message
}

/// An open log of six messages whose segment a reader sets aside: it finds this byte flipped.
fn set_aside(at: usize) -> (ModelDisk, NaiveLog, Opened) {
    let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
    let mut opened = open(&disk).unwrap();
    for _ in 0..3 {
        assert!(naive.append(&mut opened, &[100, 100], u64::MAX).unwrap());
        naive.sync(&mut opened).unwrap();
    }
    flip_in(&disk, &file(&disk), at);
    assert_eq!(read(&opened, &naive, 0).1.len(), 1);
    assert!(file(&disk).ends_with(".damaged"));
    (disk, naive, opened)
}

#[test]
fn nothing_is_appended_to_a_segment_that_was_set_aside() {
    let (disk, mut naive, mut opened) = set_aside(message_at(1, 1));
    assert!(naive.append(&mut opened, &[10], u64::MAX).unwrap());
    naive.sync(&mut opened).unwrap();
    let mut names = disk.file_names();
    names.retain(|name| name.starts_with("segment-"));
    let kinds: Vec<_> = names.iter().map(|name| name.split('.').nth(1).unwrap()).collect();
    assert_eq!(kinds, ["damaged", "spool"]);
    assert_eq!(read(&opened, &naive, 0), (vec![0, 1, 2, 4, 5, 6], vec![lost(3, 4, true)]));
}

#[test]
fn messages_in_a_file_that_was_set_aside_count_until_they_are_committed() {
    let (disk, mut naive, opened) = set_aside(message_at(1, 1));
    let has_messages = || has_uncommitted(disk.clone(), IDENTITY, options().number).unwrap();
    drop(opened);
    let before = disk.file_names();
    assert!(has_messages(), "it has healthy ones");
    assert_eq!(disk.file_names(), before);
    let mut opened = open(&disk).unwrap();
    naive.commit(&mut opened, 5).unwrap();
    assert!(has_messages());
    naive.commit(&mut opened, 6).unwrap();
    opened.log.close(6).unwrap();
    assert!(file(&disk).ends_with(".damaged") && !has_messages());
}

#[test]
fn a_killed_logs_newest_segment_is_damaged_and_not_torn_if_a_reader_has_set_it_aside() {
    let of_message = (message_at(2, 0), &[0, 1, 2, 3, 5][..]);
    for (at, readable) in [of_message, (2 * RECORD_BYTES + 40, &[0, 1, 2, 3][..])] {
        let (disk, naive, opened) = set_aside(at);
        drop(opened);
        let opened = open(&disk).unwrap();
        assert_eq!(opened.found.recovered.cut, []);
        assert_eq!(read(&opened, &naive, 0).0, readable);
        assert!(opened.log.next() >= 6, "no offset is given again");
    }
}

#[test]
fn one_place_of_a_commit_that_the_disk_does_not_give_is_enough() {
    let committed_twice = || {
        let (disk, mut naive) = written();
        let mut opened = open(&disk).unwrap();
        for offset in [2, 3] {
            naive.commit(&mut opened, offset).unwrap();
        }
        disk
    };
    let bytes = |place: usize| place..place + 8_192;
    for place in [EVEN, ODD].concat() {
        let disk = committed_twice();
        disk.break_bytes("offsets", bytes(place));
        let opened = open(&disk).unwrap();
        let expected = if place == EVEN[0] { OffsetsFound::Restored } else { OffsetsFound::Whole };
        assert_eq!(opened.found.offsets, expected, "{place}");
        assert_eq!(opened.offsets.committed().map(|committed| committed.offset), Some(3), "{place}");
    }
    let disk = committed_twice();
    for place in ODD {
        disk.break_bytes("offsets", bytes(place));
    }
    assert!(open(&disk).err().unwrap().is_unreadable(), "it may be the last commit");
}

#[test]
fn a_damaged_file_that_the_disk_does_not_give_is_not_needed_once_it_is_committed() {
    for (committed, is_opened) in [(6, true), (5, false)] {
        let (disk, mut naive, [older, _]) = two_segments();
        flip_in(&disk, &older, message_at(1, 1));
        let mut opened = open(&disk).unwrap();
        assert_eq!(read(&opened, &naive, 0).1, [lost(3, 4, true)]);
        naive.commit(&mut opened, committed).unwrap();
        let bytes = opened.log.file_bytes();
        drop(opened);
        disk.break_bytes(&older.replace("spool", "damaged"), 0..usize::MAX);
        match open(&disk) {
            Ok(opened) => {
                assert!(is_opened);
                assert_eq!(read(&opened, &naive, 6), (vec![6, 7, 8, 9], vec![]));
                assert_eq!(opened.log.file_bytes(), bytes);
            }
            Err(fatal) => assert!(!is_opened && fatal.is_unreadable(), "{fatal}"),
        }
    }
}

#[test]
fn damage_that_cannot_be_marked_is_not_passed() {
    // The file is not renamed, or its name is not durable.
    for calls in 1..=2 {
        let (disk, _) = written();
        drop(open(&disk).unwrap());
        flip_in(&disk, &file(&disk), message_at(1, 1));
        let opened = open(&disk).unwrap();
        let mut cursor = opened.log.view().read_from(3);
        disk.fail_at(calls, Fault::Broken);
        assert!(!cursor.read().unwrap_err().is_unreadable());
        assert_eq!(cursor.position(), 3);
        assert_eq!(cursor.read().unwrap(), Read::Lost(lost(3, 4, true)));
        disk.lose_power();
        assert!(file(&disk).ends_with(".damaged"), "{:?}", disk.file_names());
    }
}

/// A directory whose sync waits twice for another thread, if it is told to.
#[derive(Debug)]
struct Slow {
    directory: Directory,
    waits: Arc<AtomicBool>,
    meets: Arc<Barrier>,
}

impl Files for Slow {
    type File = File;

    fn names(&self) -> Result<Vec<String>> {
        self.directory.names()
    }

    fn create(&self, name: &str) -> Result<File> {
        self.directory.create(name)
    }

    fn open(&self, name: &str) -> Result<File> {
        self.directory.open(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.directory.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.directory.remove(name)
    }

    fn sync_directory(&self) -> Result<()> {
        if self.waits.swap(false, Ordering::AcqRel) {
            self.meets.wait();
            self.meets.wait();
        }
        self.directory.sync_directory()
    }
}

#[test]
fn while_a_reader_waits_until_a_name_is_durable_others_go_on() {
    let path = std::env::temp_dir().join(format!("sluice-slow-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let (waits, meets) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let directory = Directory::open(&path).unwrap();
    let files = Slow { directory, waits: waits.clone(), meets: meets.clone() };
    let (mut log, _offsets, _) = Log::open(files, options()).unwrap();
    log.append(&[b"rotten", b"whole"], 1, u64::MAX).unwrap();
    log.sync().unwrap();
    let segment = path.join("segment-0000000000000001.spool");
    let mut content = std::fs::read(&segment).unwrap();
    content[usize::try_from(RECORDS_AT).unwrap() + RECORD_HEADER_BYTES + 16] ^= 1;
    std::fs::write(&segment, content).unwrap();

    waits.store(true, Ordering::Release);
    let view = log.view();
    let reader = thread::spawn(move || view.read_from(0).read().unwrap());
    meets.wait();
    let (answer, answers) = sync_channel(1);
    let view = log.view();
    thread::spawn(move || answer.send((view.start(), view.read_from(1).read().unwrap())).unwrap());
    let (start, other) = answers.recv_timeout(Duration::from_secs(30)).expect("it does not wait");
    assert!(start == 0 && matches!(other, Read::Message(message) if message.payload == b"whole"));
    meets.wait();
    assert_eq!(reader.join().unwrap(), Read::Lost(lost(0, 1, true)));
    std::fs::remove_dir_all(&path).unwrap();
}
