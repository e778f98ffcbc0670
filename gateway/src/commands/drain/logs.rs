//! The volume of a gateway with `source.otlp`, which has emptied it before it left, or has not.

use super::{Damaged, Error, Fate, Problem, Report};
use crate::source::opening::{self, Left};
use sluice_gateway_config::GatewayConfig;
use sluice_spool::{Identity, Volume};
use std::path::Path;

/// Says what is left on the volume. Only a gateway inserts what is in logs, and only a person does without dead letters and damaged segments: all
/// are left as they are.
pub(super) fn look(config: &GatewayConfig, give_up_damaged: bool) -> Result<Report, Error> {
    let path = Path::new(&config.queue.path);
    let identity = Identity::of(&config.pipeline.namespace, &config.pipeline.name);
    // Nobody writes to it meanwhile.
    let _volume = Volume::claim(path, &identity)?;
    let mut left = opening::left(path).map_err(Error::Unlisted)?;
    if left.has_blocks {
        let path = config.queue.path.clone();
        return Err(Error::OfOther { path, what: "blocks", source_kind: "source.kafka" });
    }
    if left.is_damaged && !left.has_messages && !left.is_unreadable {
        // A gateway that was killed may have left requests that it had answered in a segment in which damage was found.
        left.has_messages = opening::has_uncommitted(path, identity.number()).map_err(Error::Unlisted)?;
    }
    let problem = what_is_left(left, give_up_damaged).map(|text| Problem::ByHand(text.to_owned()));
    let fate = if give_up_damaged { Fate::GivenUp } else { Fate::Unknown };
    let damaged = opening::damaged_files(path).map_err(Error::Unlisted)?;
    let damaged = damaged.into_iter().map(|file| in_file(file, fate)).collect();
    Ok(Report { volume: config.queue.path.clone(), damaged, problem, ..Report::default() })
}

/// What a damaged segment has.
fn in_file(file: String, fate: Fate) -> Damaged {
    let reason = "it cannot be read as a whole".to_owned();
    Damaged { file, reason, partition: None, first: None, next: None, rows: None, fate }
}

fn what_is_left(left: Left, give_up_damaged: bool) -> Option<&'static str> {
    if left.has_messages {
        Some("its logs have requests that are not inserted, and only its gateway inserts them")
    } else if left.is_unreadable {
        Some(
            "the disk does not give the folder of a log, which may have requests that are not inserted: check the volume and its disk, then drain \
             again, or move the folder away",
        )
    } else if left.is_damaged && !give_up_damaged {
        Some(
            "it has damaged segments (files that end in .damaged), which may be the only copy of requests: look at them, or drain with \
             --give-up-damaged",
        )
    } else if left.has_letters {
        Some("it has dead letters: sluice-gateway dead-letter list reads them")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_spool::{
        Directory,
        format::{RECORD_HEADER_BYTES, RECORDS_AT},
        log::{Committed, Log, LogOptions, Read},
    };
    use std::path::PathBuf;

    /// A volume with a log, and the config of its gateway.
    fn volume(test: &str) -> (PathBuf, GatewayConfig) {
        let root = std::env::temp_dir().join(format!("sluice-look-{test}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("log-00")).unwrap();
        let config = format!(
            "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 256MiB}}, \
             source: {{otlp: {{listen: {{grpc: '127.0.0.1:0'}}}}}}, queue: {{path: {}}}, \
             sink: {{clickhouse: {{endpoints: ['http://h:8123'], database: d, table: t}}}}}}",
            root.display()
        );
        let config = sluice_gateway_config::parse::from_yaml(&config).unwrap();
        (root, config)
    }

    #[test]
    fn healthy_requests_in_a_damaged_segment_are_not_given_up() {
        let (root, config) = volume("healthy");
        let options = LogOptions::new(Identity::of("n", "p").number(), 0, opening::TOPIC, 1 << 30);
        let path = root.join("log-00");
        let (mut log, mut offsets, _) = Log::open(Directory::open(&path).unwrap(), options).unwrap();
        log.append(&[b"rotten", b"healthy"], 1, u64::MAX).unwrap();
        log.sync().unwrap();
        let segment = path.join("segment-0000000000000001.spool");
        let mut content = std::fs::read(&segment).unwrap();
        content[usize::try_from(RECORDS_AT).unwrap() + RECORD_HEADER_BYTES + 16] ^= 1;
        std::fs::write(&segment, content).unwrap();
        assert!(matches!(log.view().read_from(0).read().unwrap(), Read::Lost(_)));
        // The gateway is killed.
        drop(log);
        assert!(segment.with_extension("damaged").exists() && !segment.exists());
        let report = look(&config, true).unwrap();
        assert!(
            matches!(&report.problem, Some(Problem::ByHand(why)) if why.contains("not inserted")),
            "{report}"
        );
        offsets.store(Committed { offset: 2, metadata: String::new(), end: 2 }).unwrap();
        assert_eq!(look(&config, true).unwrap().problem, None);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_volume_whose_log_the_disk_does_not_list_is_not_said_to_be_empty() {
        let left = Left { is_unreadable: true, is_damaged: true, ..Left::default() };
        assert!(what_is_left(left, true).is_some_and(|why| why.contains("check the volume and its disk")));
    }

    #[test]
    fn a_volume_with_damaged_segments_is_not_said_to_be_empty_also_if_they_are_given_up() {
        let (root, config) = volume("damaged");
        std::fs::write(root.join("log-00/segment-0000000000000002.damaged"), b"a record").unwrap();
        let report = look(&config, false).unwrap();
        assert!(matches!(report.problem, Some(Problem::ByHand(_))) && !report.is_empty(), "{report}");
        let report = look(&config, true).unwrap();
        let text = report.to_string();
        assert!(
            report.problem.is_none() && text.contains("log-00/segment-0000000000000002.damaged"),
            "{text}"
        );
        assert!(text.ends_with("that were given up\n"), "{text}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}
