//! The volume of a gateway with `source.otlp`, which has emptied it before it left, or has not.

use super::{Error, Problem, Report};
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
    let left = opening::left(path).map_err(Error::Unlisted)?;
    if left.has_blocks {
        let path = config.queue.path.clone();
        return Err(Error::OfOther { path, what: "blocks", source_kind: "source.kafka" });
    }
    let problem = what_is_left(left, give_up_damaged).map(|text| Problem::ByHand(text.to_owned()));
    Ok(Report { volume: config.queue.path.clone(), problem, ..Report::default() })
}

fn what_is_left(left: Left, give_up_damaged: bool) -> Option<&'static str> {
    if left.has_messages {
        Some(
            "its logs have requests that are not inserted: start the gateway of this volume again, with so many replicas, and let it drain",
        )
    } else if left.is_damaged && !give_up_damaged {
        Some(
            "it has damaged segments, which may be the only copy of requests: look at the files that end in .damaged, then delete the volume, \
             or drain with --give-up-damaged",
        )
    } else if left.has_letters {
        Some(
            "it has dead letters: read them (sluice-gateway dead-letter list), then delete the volume, or the folder dead-letters",
        )
    } else {
        None
    }
}
