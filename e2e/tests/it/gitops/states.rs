//! States of a pipeline at which no other test stops. Each is caused on the real API server, and checked with Argo CD and kstatus.

mod kept_waiting;
mod left_volumes;
mod older_definition;
mod passing;

use e2e_stack::kubernetes::NODE_ADDRESS;

use crate::prelude::*;

/// Time until a state is reached: schema Job, pods and volumes start in seconds, on busy cores in a minute.
const REACHED: Duration = Duration::from_mins(3);

/// Another pipeline in the scene's namespace, with its own group.
struct Other {
    pipeline: Pipeline,
    change: Value,
}

impl Other {
    /// The usual pipeline with this name. `at` changes its servers, and `change` is merged over its spec.
    fn new(scene: &Scene, name: &str, at: impl FnOnce(&mut Settings), change: &Value) -> Other {
        let mut settings = Settings { name: name.to_owned(), ..scene.pipeline.settings().clone() };
        at(&mut settings);
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
}

/// An address of this machine, for pods, on which no program listens.
fn nobody() -> String {
    format!("{NODE_ADDRESS}:1")
}
