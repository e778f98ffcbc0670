//! The rights of the chart, without its Deployment: service account, Roles and bindings as helm renders them for one namespace.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;

use crate::cluster::{Cluster, Namespace, OPERATOR_NAMESPACE, Seen, until};
use crate::process::{command, output};
use crate::stack::{helm, paths};

/// How long a token is good for, in seconds: longer than any run.
const TOKEN_SECONDS: i64 = 4 * 3_600;

/// How long a new definition may take until the API server serves its kind.
const SERVED: std::time::Duration = std::time::Duration::from_secs(30);

/// Applies account, Roles and bindings of a release that looks after this namespace alone; what would be left in the cluster when
/// the namespace goes is left out.
pub async fn apply(namespace: &Namespace, release: &str) -> Result<()> {
    let watched = format!("watchNamespaces={{{}}}", namespace.name());
    let templates = ["templates/serviceaccount.yaml", "templates/rbac.yaml"];
    for object in rendered(release, namespace.name(), &["--set", &watched], &templates).await? {
        if !object["metadata"]["namespace"].is_null() {
            namespace.cluster().apply(&object).await?;
        }
    }
    Ok(())
}

/// Makes the definition of `TracePipeline` where there is none, as the release that `cargo verify` installs would, so that helm
/// takes it for its own later. One that is there is used as it is.
pub async fn ensure_definition(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let name = TracePipeline::crd_name();
    if definitions.get_opt(name).await.context("look for the definition")?.is_some() {
        return Ok(());
    }
    give_back_definition(cluster).await
}

/// Makes the definition that of this checkout's chart, and of the release that `cargo verify` installs, whosever it was.
pub async fn give_back_definition(cluster: &Cluster) -> Result<()> {
    let rendered = rendered("sluice", OPERATOR_NAMESPACE, &[], &["templates/crds.yaml"]).await?;
    for mut definition in rendered {
        definition["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("Helm");
        definition["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("sluice");
        definition["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = json!(OPERATOR_NAMESPACE);
        cluster.apply(&definition).await?;
    }
    let served: Api<TracePipeline> = Api::namespaced(cluster.client(), "default");
    until("TracePipelines are served", SERVED, async || {
        served.list(&kube::api::ListParams::default().limit(1)).await.context("list TracePipelines")?;
        Ok(Seen::Done(()))
    })
    .await
}

/// A token of the release's service account.
pub async fn token(namespace: &Namespace, release: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = namespace.api();
    let wanted = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let made = accounts.create_token_request(release, &PostParams::default(), &wanted).await;
    let status = made.context("ask for a token of the chart's service account")?.status;
    Ok(status.context("the API server made a token without content")?.token)
}

/// The objects that helm renders from these templates.
async fn rendered(
    release: &str,
    namespace: &str,
    arguments: &[&str],
    templates: &[&str],
) -> Result<Vec<Value>> {
    let mut words: Vec<String> = ["template", release, "charts/sluice", "--namespace", namespace]
        .iter()
        .chain(arguments)
        .map(ToString::to_string)
        .collect();
    words.extend(templates.iter().flat_map(|template| ["--show-only".to_owned(), (*template).to_owned()]));
    let text = tokio::task::spawn_blocking(move || {
        output(command(helm::path()?).current_dir(paths::workspace()).args(&words))
    });
    let text = text.await.context("the thread that runs helm ended")??;
    serde_saphyr::from_multiple(&text).context("understand what helm renders")
}
