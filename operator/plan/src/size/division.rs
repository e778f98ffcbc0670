//! How many gateways a pipeline gets, and with which config.

use crate::{
    ground::refused::Refused,
    names::Names,
    pipeline::{
        Pipeline,
        gateway_config::{self, Share},
        otlp_config::{self, REPLICAS_OF_REQUESTS},
        policy::REPLICAS_MAX,
    },
    size::{partitions_active, replicas},
};
use sluice_gateway_config::{Budget, ByteSize, CheckedConfig, Sizing, Violations};

impl Pipeline<'_> {
    /// The number of gateways and their config. While the partitions are unknown (0), one is assumed, so that a memory limit that is too
    /// small for any number is refused before Kafka has answered. With `source.otlp` there are none, and each gateway reads its own logs.
    pub(crate) fn divide(
        &self,
        names: &Names,
        partitions: u32,
        wanted: Option<u32>,
    ) -> Result<(u32, CheckedConfig), Refused> {
        let (number, active) = match self.logs() {
            Some(logs) => (self.of_requests(wanted), self.reads(logs)),
            None => self.of_partitions(partitions.max(1), wanted),
        };
        // Too little memory is one violation among others: the rest of the config is checked with one that would do.
        let memory = active.as_ref().map_or_else(|smallest| *smallest, |_| self.resources.memory);
        let share = Share { workers: self.workers, partitions_active_max: active.unwrap_or(1), memory };
        let mut found = Violations::default();
        if let Err(smallest) = active {
            found.add(self.resources.memory_field, self.too_small(smallest));
        }
        let config = match gateway_config::build(names, self.spec, share) {
            Ok(config) => config.check(),
            // What cannot be read is not checked.
            Err(others) => {
                found.extend(others);
                return Err(found.into());
            }
        };
        let refused = |violations| Refused { violations, is_partial: false };
        match config {
            Ok(config) => found.or((number, config)).map_err(refused),
            Err(others) => {
                found.extend(gateway_config::of_spec(&others));
                Err(refused(found))
            }
        }
    }

    /// The number of gateways for this many partitions, and how many of them each reads at the same time.
    fn of_partitions(&self, partitions: u32, wanted: Option<u32>) -> (u32, Result<u32, ByteSize>) {
        let per_replica = self.spec.partitions_per_replica;
        let wanted = wanted.or_else(|| self.policy.replicas_at_first(partitions));
        let number = replicas(wanted, partitions, per_replica);
        // None at all is no reason to make those anew that leave: as many as there would be unless they were given.
        let planned = if number > 0 { number } else { replicas(None, partitions, per_replica) };
        let sized_for = self.policy.replicas_sized_for(planned);
        (number, partitions_active(&self.sizing(), partitions, sized_for))
    }

    /// The number of gateways that accept requests: no number of partitions bounds it.
    fn of_requests(&self, wanted: Option<u32>) -> u32 {
        let wanted = wanted.or_else(|| self.policy.replicas_at_first(0));
        wanted.unwrap_or(REPLICAS_OF_REQUESTS).min(REPLICAS_MAX)
    }

    /// All logs, if their buffers fit the limit; else the smallest limit that would do.
    fn reads(&self, logs: u32) -> Result<u32, ByteSize> {
        let sizing = Sizing { partitions_active_max: logs, ..self.sizing() };
        Budget::divide(&sizing).map(|_| logs).map_err(|shortfall| shortfall.smallest)
    }

    /// Logs on the volume of each gateway; `None` with `source.kafka`.
    fn logs(&self) -> Option<u32> {
        otlp_config::logs(self.spec, self.workers)
    }

    /// The config of gateways that read this many partitions at the same time; `None` where that does not fit their memory.
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
            record_batch_bytes_max: self.message_bytes_max,
            format: self.format,
            insert_concurrency: self.insert_concurrency,
            insert_format: self.insert_format,
            requests: self.requests,
        }
    }

    fn too_small(&self, smallest: ByteSize) -> String {
        let (limit, workers, smallest) =
            (self.resources.memory.mib_ceil(), self.workers, smallest.mib_ceil());
        let messages = match self.requests {
            None => format!("record batches of {}", self.message_bytes_max),
            Some(requests) => format!(
                "requests of {} (decompressed {})",
                requests.received_bytes_max, requests.decompressed_bytes_max
            ),
        };
        format!("{limit}Mi is too small for {workers} workers and {messages}; set at least {smallest}Mi")
    }
}
