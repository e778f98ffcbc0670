//! Opening a log of many segments: only the last ones are read record by record.

use crate::{
    log_damage::{RECORD_BYTES, flip_in, read},
    log_model::{NaiveLog, open},
    model_disk::ModelDisk,
};
use sluice_spool::log::LostMessages;

/// A log of many segments, and the names of their files.
fn many_segments() -> (ModelDisk, NaiveLog, Vec<String>) {
    let (disk, mut naive) = (ModelDisk::new(1), NaiveLog::default());
    let mut opened = open(&disk).unwrap();
    for _ in 0..240 {
        assert!(naive.append(&mut opened, &[100, 100], u64::MAX).unwrap());
        naive.sync(&mut opened).unwrap();
    }
    drop(opened);
    let mut names = disk.file_names();
    names.retain(|name| name.starts_with("segment-"));
    assert!(names.len() > 15, "{names:?}");
    (disk, naive, names)
}

#[test]
fn opening_reads_the_records_of_the_last_segments_only() {
    let (disk, naive, names) = many_segments();
    // One read a segment, and those of two segments with a dozen records each.
    disk.break_reads_after(names.len() as u64 + 100);
    let opened = open(&disk).unwrap();
    disk.mend_reads();
    assert_eq!((opened.log.start(), opened.log.next()), (0, 480));
    assert_eq!(read(&opened, &naive, 0).0, (0..480).collect::<Vec<_>>());
}

#[test]
fn damage_in_a_segment_that_was_passed_is_found_when_it_is_read() {
    let (disk, naive, names) = many_segments();
    // The header of the second record.
    flip_in(&disk, &names[3], RECORD_BYTES + 40);
    let opened = open(&disk).unwrap();
    assert!(opened.found.lost.is_empty() && opened.found.recovered.set_aside.is_empty());
    let (offsets, gaps) = read(&opened, &naive, 0);
    let [gap] = gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((offsets.len(), gap.count()), (478, 2));
    assert!(disk.file_names().contains(&names[3].replace("spool", "damaged")));
}

#[test]
fn a_passed_segment_says_how_far_the_damaged_one_before_it_goes() {
    let (disk, naive, names) = many_segments();
    // The headers of its first and of its last record: it is read record by record.
    flip_in(&disk, &names[5], 40);
    flip_in(&disk, &names[5], 11 * RECORD_BYTES + 40);
    let opened = open(&disk).unwrap();
    let found: Vec<_> = opened.found.lost.iter().map(|lost| (lost.first, lost.next)).collect();
    assert_eq!(found, [(120, 122), (142, 144)]);
    let (offsets, gaps) = read(&opened, &naive, 0);
    assert_eq!((offsets.len(), gaps.iter().map(LostMessages::count).sum::<u64>()), (476, 4));
    assert_eq!(opened.log.next(), 480);
}
