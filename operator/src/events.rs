//! Events, in words that are those of what happened.
//!
//! Why not the library's recorder alone: it takes what happens again within six minutes, with the same reason and to the same object, for the
//! same event, counts it, and keeps the first note, whatever the next one says. Here the same words are counted, and others are an event of
//! their own.
//!
//! Owner: whoever reconciles. Limits: one entry for each pipeline and reason, at most [`KEPT_MAX`].

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, Recorder, Reporter},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Reasons of pipelines of which the last words are remembered. Chosen: some four of each of a thousand pipelines, about 2 KiB each. Beyond
/// it all are forgotten, and what is said once more is an event once more.
const KEPT_MAX: usize = 4_096;

/// Publishes events.
pub struct Events {
    client: Client,
    reporter: Reporter,
    last: Mutex<HashMap<(String, String), Said>>,
}

/// What was said last, and who counts it.
struct Said {
    note: Option<String>,
    recorder: Recorder,
}

impl Events {
    /// Nothing was said.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, last: Mutex::default() }
    }

    /// Publishes an event about this object, or counts one more of it.
    ///
    /// # Errors
    /// What the API server said.
    pub async fn publish(&self, event: &Event, regarding: &ObjectReference) -> kube::Result<()> {
        self.recorder(event, regarding).publish(event, regarding).await
    }

    fn recorder(&self, event: &Event, regarding: &ObjectReference) -> Recorder {
        let key = (regarding.uid.clone().unwrap_or_default(), event.reason.clone());
        // Whole whatever the task that held it died of: each change is one insertion.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = last.get(&key).filter(|said| said.note == event.note) {
            return said.recorder.clone();
        }
        if last.len() >= KEPT_MAX {
            last.clear();
        }
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        last.insert(key, Said { note: event.note.clone(), recorder: recorder.clone() });
        recorder
    }
}
