//! Publishes Kubernetes events.
//!
//! The library's recorder alone is not enough: it merges events of the same reason and object within six minutes, and keeps the first note
//! even if later notes differ. [`Events`] uses one recorder per note: an event with the same note is counted, and one with another note is a
//! new event.
//!
//! Shared by all reconciles. Limits: one entry for each pipeline and reason, at most [`KEPT_MAX`].

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, Recorder, Reporter},
};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Last notes that are remembered, one for each pipeline and reason. Chosen: about four for each of a thousand pipelines, about 2 KiB each.
/// Beyond the limit all are forgotten, and a repeated note is a new event.
const KEPT_MAX: usize = 4_096;

/// Longest note of an event in bytes; the API server refuses more than 1,024.
const NOTE_BYTES_MAX: usize = 1_000;

/// A text cut to the longest note of an event, which also limits parts of condition messages.
pub fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(NOTE_BYTES_MAX)].to_owned()
}

/// Publishes events.
pub struct Events {
    client: Client,
    reporter: Reporter,
    last: Mutex<HashMap<(String, String), Said>>,
}

/// The last note, and the recorder that counts it.
struct Said {
    note: Option<String>,
    recorder: Recorder,
}

impl Events {
    /// A publisher that remembers no notes yet.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, last: Mutex::default() }
    }

    /// Publishes an event about this object, or counts it if the note is the last one.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn publish(&self, event: &Event, regarding: &ObjectReference) -> kube::Result<()> {
        self.recorder(event, regarding).publish(event, regarding).await
    }

    fn recorder(&self, event: &Event, regarding: &ObjectReference) -> Recorder {
        let key = (regarding.uid.clone().unwrap_or_default(), event.reason.clone());
        // A panic while the lock was held leaves the map consistent: each change is one insertion.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters() {
        assert!(shortened(&"ä".repeat(2_000)).len() <= NOTE_BYTES_MAX);
    }
}
