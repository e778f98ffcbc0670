//! The runs of `--spool`: live, then to the volume and from it.
//!
//! `spill` and `drain` share a sink, a group and a volume, because the same spans go through both; `live` has its own.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::super::entrant::Entrant;
use super::super::report::{Arrived, RunReport};
use super::super::spool::{Counts, Phase};
use super::{Course, Finish, Goal, Place, Raced};
use e2e_fixtures::cluster::metric_sum;
use e2e_stack::paths::remove_folder;

impl Course {
    /// One run of each phase, in turn.
    pub async fn run_spooled(&mut self, gateway: &Entrant) -> Result<[RunReport; 3]> {
        let live = self.place(gateway, Finish::NullSink, true)?;
        let live = self.run_phase(gateway, live, Phase::Live).await?.0;
        let place = self.place(gateway, Finish::NullSink, true)?;
        let (spill, place) = self.run_phase(gateway, place, Phase::Spill).await?;
        let (drain, place) = self.run_phase(gateway, place, Phase::Drain).await?;
        // The volume has about 100 bytes a span; the next round needs that space.
        if let Some(volume) = &place.route.volume {
            remove_folder(volume)?;
        }
        Ok([live, spill, drain])
    }

    async fn run_phase(
        &self,
        gateway: &Entrant,
        mut place: Place,
        phase: Phase,
    ) -> Result<(RunReport, Place)> {
        let sink = Self::null_sink(&mut place)?;
        sink.refuse(phase == Phase::Spill);
        let spans = self.spans();
        let goal = if phase == Phase::Spill { Goal::Read(spans) } else { Goal::Committed };
        let raced = self.race(gateway, &place, goal).await?;
        let counts = counts(phase, &raced, place.route.volume.as_deref())?;
        let mut arrived = self.counted(&sink)?;
        if phase == Phase::Spill {
            ensure!(arrived.rows == 0, "the sink took {} rows while it refused", arrived.rows);
            // These rows are counted after they have left the volume.
            arrived = Arrived { bytes: counts.volume_bytes, ..Arrived::default() };
        }
        let Raced { wall, usage, threads, ended_well, .. } = raced;
        let mut report = RunReport::new(phase.name(), spans, wall.as_secs_f64(), usage, arrived);
        report.threads = threads;
        report.layout = gateway.told_layout();
        report.ended_well = ended_well;
        report.spool = Some(counts);
        place.sink = Some(sink);
        Ok((report, place))
    }
}

fn counts(phase: Phase, raced: &Raced, volume: Option<&Path>) -> Result<Counts> {
    let text = raced.metrics.as_deref().context("the gateway did not tell of itself before its end")?;
    let number = |name: &str| {
        let value = metric_sum(text, name).with_context(|| format!("find {name} in its metrics"))?;
        Ok::<u64, anyhow::Error>(whole(value))
    };
    Ok(Counts {
        phase,
        read: number("sluice_gateway_spans_total")?,
        appended_blocks: number("sluice_gateway_spool_appended_blocks_total")?,
        drained_blocks: number("sluice_gateway_spool_drained_blocks_total")?,
        volume_bytes: volume.map_or(Ok(0), bytes_in)?,
    })
}

/// Bytes of all files in a folder.
fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("look into {}", folder.display()))? {
        let entry = entry.with_context(|| format!("look into {}", folder.display()))?;
        bytes += entry.metadata().with_context(|| format!("look at {}", entry.path().display()))?.len();
    }
    Ok(bytes)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count far below 2^53")]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}
