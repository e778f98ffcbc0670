//! Waits until the operator is at rest after everything is Ready, and counts requests and changes from then on.
//!
//! Two independent sources: the proxy for the operator's requests, and the resource versions of the namespace's objects.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Secret;
use sluice_crds::TracePipeline;
use tokio::time::{Instant, sleep};

use e2e_fixtures::cluster::{Namespace, kind_of, pipeline_kinds};
use e2e_fixtures::local_operator::{Calls, LocalOperator, Usage};
use e2e_stack::say;

/// The operator is at rest if it has written nothing for this long. That is longer than two checks of a Ready pipeline, and than the minute
/// after which the status names a silent gateway.
const REST: Duration = Duration::from_secs(100);

/// Longest wait for rest. The operator writes a changed number at most once a minute.
const REST_PATIENCE: Duration = Duration::from_mins(5);

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Measured {
    /// Requests until the operator was at rest.
    pub calls: Calls,
    pub at_rest: Calls,
    /// Objects that changed in the quiet time, by kind and name.
    pub changed: BTreeSet<String>,
    pub usage: Usage,
}

/// Waits for rest, and counts for `quiet`.
pub async fn observe(
    namespace: &Namespace,
    operator: &mut LocalOperator,
    quiet: Duration,
) -> Result<Measured> {
    await_rest(operator).await?;
    say::progress("scale", &format!("at rest; counting for {} s", quiet.as_secs()));
    let (calls, before) = (operator.front.calls(), versions(namespace).await?);
    let begun = Instant::now();
    while begun.elapsed() < quiet {
        sleep(LOOK).await;
        operator.program.check()?;
    }
    let at_rest = difference(&operator.front.calls(), &calls);
    let after = versions(namespace).await?;
    let changed = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name));
    let changed = changed.cloned().collect();
    Ok(Measured { calls, at_rest, changed, usage: operator.program.usage()? })
}

async fn await_rest(operator: &mut LocalOperator) -> Result<()> {
    let (mut last, mut since, begun) = (0, Instant::now(), Instant::now());
    while since.elapsed() < REST {
        sleep(LOOK).await;
        operator.program.check()?;
        let now = writes(&operator.front.calls());
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if begun.elapsed() > REST_PATIENCE {
            bail!("no {} s without a write within {} min", REST.as_secs(), REST_PATIENCE.as_secs() / 60);
        }
    }
    Ok(())
}

/// Requests that may change something, but for the Lease.
pub fn writes(calls: &Calls) -> u64 {
    let counted = calls.iter().filter(|(call, _)| call.verb.writes() && call.resource != "leases");
    counted.map(|(_, count)| count).sum()
}

fn difference(after: &Calls, before: &Calls) -> Calls {
    let more = after.iter().map(|(call, count)| (call.clone(), count - before.get(call).unwrap_or(&0)));
    more.filter(|(_, count)| *count > 0).collect()
}

/// The resource version of every pipeline, and of every object that belongs to one.
async fn versions(namespace: &Namespace) -> Result<BTreeMap<String, Option<String>>> {
    let pipelines = [kind_of::<TracePipeline>(), kind_of::<Secret>()];
    let kinds: Vec<_> = pipelines.into_iter().chain(pipeline_kinds()).collect();
    let objects = namespace.objects(&kinds, "").await?;
    Ok(objects.into_iter().map(|(name, object)| (name, object.resource_version)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use e2e_fixtures::local_operator::{Call, Verb};

    #[test]
    fn the_lease_is_the_only_write_that_does_not_count() {
        let call = |verb, resource: &str| Call { verb, resource: resource.to_owned() };
        let before = Calls::from([(call(Verb::Apply, "leases"), 3), (call(Verb::Get, "secrets"), 1)]);
        let mut after = before.clone();
        after.insert(call(Verb::Apply, "leases"), 9);
        after.insert(call(Verb::Apply, "tracepipelines/status"), 2);
        let more = difference(&after, &before);
        assert_eq!((writes(&before), writes(&more)), (0, 2));
        assert_eq!(more[&call(Verb::Apply, "leases")], 6);
        assert_eq!(more.len(), 2);
    }
}
