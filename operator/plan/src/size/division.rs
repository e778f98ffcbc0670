//! How many gateways a pipeline gets, and with which config.

use crate::{
    names::Names,
    pipeline::{
        Pipeline,
        gateway_config::{self, Share},
    },
    size::{partitions_active, replicas},
};
use sluice_gateway_config::{ByteSize, CheckedConfig, Sizing, Violations};

impl Pipeline<'_> {
    /// The number of gateways and their config. While the partitions are unknown (0), one is assumed, so that a memory limit that is too
    /// small for any number is refused before Kafka has answered.
    pub(crate) fn divide(
        &self,
        names: &Names,
        partitions: u32,
        wanted: Option<u32>,
    ) -> Result<(u32, CheckedConfig), Violations> {
        let (spec, partitions) = (self.spec, partitions.max(1));
        let wanted = wanted.or_else(|| self.policy.replicas_at_first(partitions));
        let number = replicas(wanted, partitions, spec.partitions_per_replica);
        // None at all is no reason to make those anew that leave: as many as there would be unless they were given.
        let planned =
            if number > 0 { number } else { replicas(None, partitions, spec.partitions_per_replica) };
        let sized_for = self.policy.replicas_sized_for(planned);
        let active = partitions_active(&self.sizing(), partitions, sized_for);
        // Too little memory is one violation among others: the rest of the config is checked with one that would do.
        let memory = active.as_ref().map_or_else(|smallest| *smallest, |_| self.resources.memory);
        let share = Share { workers: self.workers, partitions_active_max: active.unwrap_or(1), memory };
        let config = gateway_config::build(names, spec, share)?.check();
        let mut found = Violations::default();
        if let Err(smallest) = active {
            found.add(self.resources.memory_field, self.too_small(smallest));
        }
        match config {
            Ok(config) => found.or((number, config)),
            Err(others) => {
                found.extend(gateway_config::of_spec(&others));
                Err(found)
            }
        }
    }

    /// The config of gateways that read so many partitions at the same time; `None` where that does not fit their memory.
    pub(crate) fn config(&self, names: &Names, active: u32) -> Option<CheckedConfig> {
        let memory = self.resources.memory;
        let share = Share { workers: self.workers, partitions_active_max: active, memory };
        gateway_config::build(names, self.spec, share).ok()?.check().ok()
    }

    fn sizing(&self) -> Sizing {
        Sizing {
            limit: self.resources.memory,
            workers: self.workers,
            partitions_active_max: 1,
            record_batch_bytes_max: self.record_batch_bytes_max,
            format: self.format,
            insert_concurrency: self.insert_concurrency,
            insert_format: self.insert_format,
            requests: None,
        }
    }

    fn too_small(&self, smallest: ByteSize) -> String {
        format!(
            "{}Mi is too small for {} workers and record batches of {}; set at least {}Mi",
            self.resources.memory.mib_ceil(),
            self.workers,
            self.record_batch_bytes_max,
            smallest.mib_ceil(),
        )
    }
}
