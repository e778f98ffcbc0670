//! Volumes that may hold the only copy of rows, against a naive cluster:
//!
//! - Gateways commit after the insert or after the enqueue, as in the config that they were started with.
//! - People edit the spec, scale, suspend and delete.
//! - `ClickHouse` may be away for any time.
//! - The operator may end between any two of its writes.
//! - Kubernetes deletes claims if the StatefulSet permits it.

mod action;
mod cluster;
mod operator;

use action::{Action, action, policy};
use cluster::Cluster;
use proptest::prelude::*;
use sluice_crds::OnTimeout;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_volume_is_deleted_before_it_is_drained(
        actions in proptest::collection::vec(action(), 1..50), enqueues in any::<bool>(),
        deletion in policy(), inserts in any::<bool>(),
    ) {
        let mut cluster = Cluster::new(enqueues);
        for action in &actions {
            cluster.happen(action);
        }
        cluster.delete(deletion, inserts);
    }
}

#[test]
fn what_is_left_by_a_scale_in_with_a_sink_that_is_away_is_drained_by_jobs_and_then_deleted() {
    for on_timeout in [OnTimeout::Abort, OnTimeout::Force, OnTimeout::Job] {
        let mut cluster = Cluster::new(true);
        cluster.pipeline.spec.scaling.drain.on_timeout = on_timeout;
        cluster.write();
        cluster.happen(&Action::Wants(1));
        let settle = |cluster: &mut Cluster| {
            for _ in 0..100 {
                cluster.happen(&Action::Reconciled { writes: usize::MAX, seconds: 2 });
                cluster.control();
            }
        };
        settle(&mut cluster);
        let stays = on_timeout == OnTimeout::Abort;
        assert_eq!(cluster.pods.len(), if stays { 4 } else { 1 }, "{on_timeout:?}");
        assert_eq!(cluster.volumes.values().filter(|volume| volume.has_only_copies).count(), 4);
        // The sink is back.
        for _ in 0..4 {
            cluster.insert();
            cluster.work(false);
            settle(&mut cluster);
        }
        assert_eq!(
            (cluster.pods.len(), cluster.volumes.len(), cluster.jobs.len()),
            (1, 1, 0),
            "{on_timeout:?}"
        );
    }
}
