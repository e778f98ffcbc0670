//! Two operators with one Lease: one works, the other waits. An operator that cannot renew the Lease ends before the other one begins.

use k8s_openapi::api::coordination::v1::Lease;

use crate::own_operator::{self, at_rest, settings};
use crate::prelude::*;

/// It gives up 12 s after its last renewal, and checks every 2 s; the rest is for a busy machine.
const GIVES_UP: Duration = Duration::from_secs(40);

#[test]
fn a_leader_that_cannot_renew_ends_before_another_writes() -> Result<()> {
    without_operator(Uses::OwnOperator, run)
}

async fn run(cluster: &Cluster, target: &Resolved) -> Result<()> {
    ensure_definition(cluster).await?;
    in_namespace(cluster, "lease", async |namespace| {
        let folder = files::temporary(namespace.name())?;
        two(namespace, target, &folder).await?;
        fs::remove_dir_all(&folder).context("remove the test's files")
    })
    .await
}

async fn two(namespace: &Namespace, target: &Resolved, folder: &Path) -> Result<()> {
    let mut first = own_operator::start(target, namespace, "first", folder).await?;
    wait_holder(namespace, "first_").await?;
    let second = own_operator::start(target, namespace, "second", folder).await?;
    let pipeline = pipeline(namespace, target);
    // The status must report the missing topic, which is a write.
    pipeline.apply(&change(1)).await?;
    pipeline.wait("with a status", READY, |_| true).await?;
    ensure!(works(&second) == 0, "the one that waits has written {:?}", second.front.writes());
    first.front.cut();
    // The leader must write this change: an operator that leads too early would be noticed.
    pipeline.apply(&change(2)).await?;
    let ended = until("the end of the leader", GIVES_UP, async || {
        let written = works(&second);
        let ended = first.program.ended()?;
        // Counted before: what the second operator has written by then, it wrote while the first one ran.
        Ok(match ended {
            None if written > 0 => Seen::Failed(anyhow!("both lead: {:?}", second.front.writes())),
            ended => ended.map_or(Seen::NotYet("it runs".to_owned()), Seen::Done),
        })
    })
    .await?;
    ensure!(ended.code() == Some(1), "the leader ended with {ended}");
    ensure!(first.program.log()?.contains("lost the Lease"), "it does not say why it ended");
    wait_holder(namespace, "second_").await?;
    pipeline.wait("with a status by the second", READY, |_| true).await?;
    ensure!(works(&second) > 0, "the second has written nothing");
    second.program.stop().await
}

/// Number of writes of a working operator.
fn works(operator: &LocalOperator) -> usize {
    let is_work = |write: &&Write| write.call.resource != "leases";
    operator.front.writes().iter().filter(is_work).count()
}

fn pipeline(namespace: &Namespace, target: &Resolved) -> Pipeline {
    let missing = format!("{}-is-missing", namespace.name());
    Pipeline::new(namespace, settings("waits", &target.kafka.host, &missing, &target.clickhouse.host))
}

fn change(partitions: u32) -> Value {
    merged(&at_rest(), &json!({"partitionsPerReplica": partitions}))
}

async fn wait_holder(namespace: &Namespace, prefix: &str) -> Result<()> {
    until(&format!("the Lease of {prefix}"), READY, async || {
        let lease = namespace.api::<Lease>().get_opt("sluice").await.context("get the Lease")?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        Ok(Seen::when(holder.starts_with(prefix), || format!("held by {holder:?}")))
    })
    .await
}
