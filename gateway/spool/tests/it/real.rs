//! The real file system.

use crate::naive::{Naive, options, read_all};
use sluice_spool::{Directory, FileAt as _, Files as _, Queue};
use std::path::PathBuf;

fn fresh(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sluice-spool-{name}-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&path));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_queue_on_a_real_volume_survives_restarts_and_leaves_the_volume_empty() {
    let path = fresh("real");
    let open = || Queue::open(Directory::open(&path).unwrap(), options(8)).unwrap();
    let (mut queue, _) = open();
    std::fs::write(path.join("lost+found"), b"not ours").unwrap();
    let mut naive = Naive::default();
    for bytes in [100, 9_000, 0, 8_000, 4_096] {
        assert!(naive.append(&mut queue, 1, bytes).unwrap());
    }
    naive.sync(&mut queue).unwrap();
    naive.mark_sent(&mut queue, 1).unwrap();
    naive.settle(&mut queue, 0).unwrap();
    naive.sync(&mut queue).unwrap();
    naive.assert_same(&queue);
    // Killed, then ended well.
    drop(queue);
    let (queue, report) = open();
    naive.adopt(&queue, &report);
    assert_eq!((report.blocks, report.sent), (4, 3));
    queue.close().unwrap();
    let (mut queue, report) = open();
    naive.adopt(&queue, &report);
    for at in naive.held() {
        naive.settle(&mut queue, at).unwrap();
    }
    queue.close().unwrap();
    let left: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lost+found"]);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn a_body_can_be_read_when_its_segment_is_gone() {
    let path = fresh("gone");
    let (mut queue, _) = Queue::open(Directory::open(&path).unwrap(), options(8)).unwrap();
    let mut naive = Naive::default();
    naive.append(&mut queue, 1, 9_000).unwrap();
    let id = naive.blocks[0].id.unwrap();
    let (_, body) = queue.read(id).unwrap();
    naive.settle(&mut queue, 0).unwrap();
    queue.close().unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    assert_eq!(read_all(body), naive.blocks[0].body);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn the_real_directory_does_what_the_trait_says() {
    let path = fresh("trait");
    let directory = Directory::open(&path).unwrap();
    let file = directory.create("a").unwrap();
    file.write_all_at(b"hello", 3).unwrap();
    assert_eq!(file.size().unwrap(), 8);
    file.truncate(6).unwrap();
    file.sync().unwrap();
    directory.rename("a", "b").unwrap();
    directory.sync_directory().unwrap();
    assert_eq!(directory.names().unwrap(), ["b"]);
    let mut bytes = [9; 6];
    directory.open("b").unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"\0\0\0hel");
    file.read_exact_at(&mut [0; 7], 0).unwrap_err();
    directory.remove("b").unwrap();
    directory.open("b").unwrap_err();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(directory.create("c").unwrap().size().unwrap(), 0);
    std::fs::remove_dir_all(&path).unwrap();
}
