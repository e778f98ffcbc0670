//! The admission policies of the sample, limited to one namespace, on a real API server: a marked namespace cannot be deleted, and an
//! unmarked namespace gets no pipeline that commits after the enqueue.

use k8s_openapi::api::core::v1::Namespace as Object;

use crate::prelude::*;

const SMALLEST: &str = "config/samples/tracepipeline.yaml";
const POLICIES: &str = "config/samples/keep-volumes.yaml";

const LABEL: &str = "sluice.dev/keep-volumes";

/// Tests the policies in a namespace, without deleting it, and removes them.
pub async fn keep_volumes(namespace: &Namespace) -> Result<()> {
    let policies = files::yamls(POLICIES)?.into_iter();
    let policies: Vec<Value> = policies.map(|policy| narrowed(policy, namespace.name())).collect();
    let played = with_objects(namespace.cluster(), &policies, Box::pin(play(namespace))).await;
    played.and(mark(namespace, None).await)
}

/// The policy, limited to one namespace: other tests have their own.
fn narrowed(mut policy: Value, namespace: &str) -> Value {
    for pointer in ["/metadata/name", "/spec/policyName"] {
        if let Some(name) = policy.pointer_mut(pointer) {
            *name = json!(format!("{}-{namespace}", name.as_str().unwrap_or_default()));
        }
    }
    if policy["kind"] == "ValidatingAdmissionPolicyBinding" {
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        policy["spec"]["matchResources"] = json!({"namespaceSelector": here});
    }
    policy
}

async fn play(namespace: &Namespace) -> Result<()> {
    may(namespace, "commit after the enqueue in any namespace", false, after_enqueue).await?;
    mark(namespace, Some("true")).await?;
    may(namespace, "commit after the enqueue in one that is marked", true, after_enqueue).await?;
    may(namespace, "delete a namespace that is marked", false, deletion).await?;
    mark(namespace, None).await?;
    may(namespace, "delete any namespace", true, deletion).await
}

async fn mark(namespace: &Namespace, value: Option<&str>) -> Result<()> {
    let namespaces: Api<Object> = Api::all(namespace.cluster().client());
    merge(&namespaces, namespace.name(), json!({"metadata": {"labels": {LABEL: value}}})).await
}

/// Waits until the API server would allow the request, or would not.
async fn may(
    namespace: &Namespace,
    what: &str,
    may: bool,
    ask: impl AsyncFn(&Namespace) -> Result<kube::Result<()>>,
) -> Result<()> {
    until(&format!("that one may {what}: {may}"), READY, async || {
        let asked = ask(namespace).await?;
        let refusal = match &asked {
            Err(kube::Error::Api(status)) if status.code == 403 => Some(&status.message),
            Err(error) => return Ok(Seen::NotYet(error.to_string())),
            Ok(()) => None,
        };
        if let Some(words) = refusal {
            ensure!(words.contains(LABEL), "the refusal does not say what to do: {words}");
        }
        Ok(Seen::when(refusal.is_none() == may, || format!("{refusal:?}")))
    })
    .await
}

/// A dry run of the deletion.
async fn deletion(namespace: &Namespace) -> Result<kube::Result<()>> {
    let namespaces: Api<Object> = Api::all(namespace.cluster().client());
    Ok(namespaces.delete(namespace.name(), &DeleteParams::default().dry_run()).await.map(drop))
}

/// A dry run of the creation.
async fn after_enqueue(namespace: &Namespace) -> Result<kube::Result<()>> {
    let mut pipeline = files::yaml(SMALLEST)?;
    pipeline["metadata"]["namespace"] = json!(namespace.name());
    pipeline["metadata"]["name"] = json!("after-enqueue");
    pipeline["spec"]["delivery"] = json!({"commit": "AfterEnqueue"});
    let pipeline: TracePipeline = serde_json::from_value(pipeline).context("a sample is a pipeline")?;
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    Ok(namespace.api::<TracePipeline>().create(&asked, &pipeline).await.map(drop))
}
