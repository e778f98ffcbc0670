//! What is remembered of the gateways of each pipeline between two reconciles, beside their last answers ([`super::gateways::looks`]). It is lost
//! with the process, which is harmless.

use super::{
    gateway_report::ReportMemory,
    gateways::{full_volumes::FullVolumeMemory, silence::SilenceMemory},
    not_ready_reason::ReasonMemory,
};
use crate::world::memory::Key;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What is remembered of the gateways of one pipeline.
#[derive(Debug, Default)]
pub struct GatewayMemory {
    /// What they reported for the status.
    pub report: Option<ReportMemory>,
    /// Why they are not ready.
    pub reasons: ReasonMemory,
    /// Since when ready ones do not answer.
    pub silence: SilenceMemory,
    /// Those whose volume is full.
    pub full_volumes: FullVolumeMemory,
}

/// The memory of the gateways of all pipelines.
#[derive(Debug, Default)]
pub struct GatewayMemories {
    pipelines: Mutex<HashMap<Key, GatewayMemory>>,
}

impl GatewayMemories {
    /// Reads and changes what is remembered of the gateways of a pipeline.
    pub fn with<T>(&self, key: &Key, change: impl FnOnce(&mut GatewayMemory) -> T) -> T {
        change(self.pipelines().entry(key.clone()).or_default())
    }

    /// Removes what is remembered of a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.pipelines().remove(key);
    }

    fn pipelines(&self) -> MutexGuard<'_, HashMap<Key, GatewayMemory>> {
        // After a panic the memory is incomplete at worst: it is filled again at the next looks.
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
