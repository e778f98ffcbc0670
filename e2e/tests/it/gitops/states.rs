//! States of a pipeline at which no other test stops. Each is caused on the real API server, and checked with Argo CD and kstatus.

mod kept_waiting;
mod left_volumes;
mod older_definition;
mod passing;

use crate::prelude::*;

/// Another pipeline in the scene's namespace, with its own group.
struct Other {
    pipeline: Pipeline,
    change: Value,
}

impl Other {
    /// The usual pipeline, called like the state that it is in, with `change` merged over its spec.
    fn new(scene: &Scene, state: &str, change: &Value) -> Other {
        Other::with(scene, state, scene.pipeline.settings().clone(), change)
    }

    /// As [`Self::new`], with other settings.
    fn with(scene: &Scene, state: &str, settings: Settings, change: &Value) -> Other {
        let settings = Settings { name: state.to_owned(), ..settings };
        // Without a consumer group in the spec, it uses the group of its name.
        let mut own = json!({"source": {"kafka": {"consumerGroup": null}}});
        if change.pointer("/source/kafka/connectionRef").is_some() {
            own["source"]["kafka"]["bootstrapServers"] = Value::Null;
        }
        Other { pipeline: Pipeline::new(&scene.namespace, settings), change: merged(&own, change) }
    }

    async fn apply(&self) -> Result<()> {
        self.pipeline.apply(&self.change).await
    }

    /// Waits until it is in its state, as soon as `says` accepts the status.
    async fn reached(&self, says: impl Fn(&TracePipelineStatus) -> bool) -> Result<()> {
        reached(&self.pipeline, self.pipeline.name(), READY, says).await
    }
}

/// An address of this machine, for pods, on which no program listens.
fn nobody() -> String {
    format!("{NODE_ADDRESS}:1")
}
