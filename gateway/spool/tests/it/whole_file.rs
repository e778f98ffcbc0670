//! A file beside the segments that is whole or absent.

use crate::model_disk::{Fault, ModelDisk};
use sluice_spool::{
    Directory,
    whole_file::{DRAFT_SUFFIX, read, remove, replace},
};

const NAME: &str = "parts-a";

/// Bytes of the larger of two contents: three pages, each of which may be torn.
const BYTES: usize = 10_000;

/// Different outcomes of one power failure, per call.
const SEEDS: u64 = 24;

/// Replacing a file takes fewer calls.
const CALLS_MAX: u64 = 20;

fn one() -> Vec<u8> {
    vec![1; 100]
}

fn another() -> Vec<u8> {
    vec![2; BYTES]
}

fn found(disk: &ModelDisk) -> Option<Vec<u8>> {
    read(disk, NAME, BYTES).unwrap()
}

/// Replaces one content by another with a fault at each call in turn; returns the number of calls. `after` gets the result.
fn at_every_call(fault: Fault, after: impl Fn(&ModelDisk, std::io::Result<bool>)) -> u64 {
    for call in 1..CALLS_MAX {
        for seed in 1..=SEEDS {
            let disk = ModelDisk::new(seed * CALLS_MAX + call);
            disk.put(NAME, &one());
            disk.fail_at(call, fault);
            let replaced = replace(&disk, NAME, &another());
            if !disk.has_failed() {
                assert!(replaced.unwrap());
                return call - 1;
            }
            after(&disk, replaced);
        }
    }
    panic!("it does not end");
}

#[test]
fn it_is_replaced_whole_and_leaves_no_draft() {
    let disk = ModelDisk::new(1);
    assert_eq!(found(&disk), None);
    for bytes in [one(), another(), one()] {
        assert!(replace(&disk, NAME, &bytes).unwrap());
        assert_eq!(found(&disk), Some(bytes.clone()));
        disk.lose_power();
        assert_eq!(found(&disk), Some(bytes));
    }
    assert_eq!(disk.file_names(), [NAME]);
    for _ in 0..2 {
        remove(&disk, NAME).unwrap();
        assert_eq!(found(&disk), None);
    }
}

#[test]
fn after_a_loss_of_power_at_any_call_it_is_as_it_was_or_as_it_should_be() {
    let calls = at_every_call(Fault::PowerLoss, |disk, replaced| {
        replaced.unwrap_err();
        disk.lose_power();
        let found = found(disk).unwrap();
        assert!(found == one() || found == another(), "{} bytes", found.len());
    });
    assert_eq!(calls, 5, "created, written, synced, moved, and the name synced");
}

#[test]
fn without_room_at_any_call_it_is_as_it_was() {
    at_every_call(Fault::NoRoom, |disk, replaced| {
        let expected = if replaced.unwrap() { another() } else { one() };
        assert_eq!(found(disk), Some(expected));
        assert_eq!(disk.file_names(), [NAME], "its draft is gone");
    });
}

#[test]
fn an_error_of_the_device_is_told_and_tears_nothing() {
    at_every_call(Fault::Broken, |disk, replaced| {
        replaced.unwrap_err();
        disk.lose_power();
        let found = found(disk).unwrap();
        assert!(found == one() || found == another(), "{} bytes", found.len());
    });
}

#[test]
fn one_that_cannot_be_read_is_not_taken_for_absent() {
    let disk = ModelDisk::new(1);
    disk.put(NAME, &one());
    disk.break_reads_after(0);
    let error = read(&disk, NAME, BYTES).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    assert_eq!(read(&disk, "parts-b", BYTES).unwrap(), None);
}

#[test]
fn no_more_is_read_than_may_be_there() {
    let disk = ModelDisk::new(1);
    disk.put(NAME, &another());
    assert_eq!(read(&disk, NAME, 10).unwrap(), Some(vec![2; 10]));
}

#[test]
fn it_is_the_same_on_a_real_disk() {
    let path = std::env::temp_dir().join(format!("sluice-whole-file-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let files = Directory::open(&path).unwrap();
    for bytes in [one(), another(), one()] {
        assert!(replace(&files, NAME, &bytes).unwrap());
        assert_eq!(read(&files, NAME, BYTES).unwrap(), Some(bytes));
    }
    // A full device creates the file, but writes nothing into it.
    let draft = path.join(format!("{NAME}{DRAFT_SUFFIX}"));
    std::os::unix::fs::symlink("/dev/full", draft).unwrap();
    assert!(!replace(&files, NAME, &another()).unwrap());
    assert_eq!(read(&files, NAME, BYTES).unwrap(), Some(one()));
    remove(&files, NAME).unwrap();
    assert_eq!(read(&files, NAME, BYTES).unwrap(), None);
    // A directory cannot be read as a file, and is not absent.
    std::fs::create_dir(path.join(NAME)).unwrap();
    read(&files, NAME, BYTES).unwrap_err();
    std::fs::remove_dir_all(&path).unwrap();
}
