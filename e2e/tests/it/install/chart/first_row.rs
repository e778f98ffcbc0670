//! From `helm install` to the first row with the README only. A shell runs its commands unchanged, except that names of this stack replace
//! those of the examples. Images and chart come from a registry that `publish` has filled.

use e2e_fixtures::registry::Registry;
use e2e_stack::images::{ImageStore, ProgramArgs};
use e2e_stack::paths::{remove_folder, workspace};
use e2e_stack::publish::{self, PublishArgs};
use e2e_stack::{clickhouse, helm, kubernetes};

use super::{RELEASE, Release, with_release};
use crate::delivery::process;
use crate::own_operator;
use crate::prelude::*;

/// Largest number of commands from `helm install` to the first row: as few as a new user should need.
const COMMANDS_MAX: usize = 6;

/// Spans that are produced once the pipeline is ready.
const SPANS: u64 = 500;

#[test]
#[ignore = "group chart"]
fn the_commands_of_the_readme_lead_to_the_first_row() -> Result<()> {
    with_release("readme", async |release| release.first_row().await)
}

impl Release<'_> {
    async fn first_row(&self) -> Result<()> {
        ensure!(
            matches!(self.target.images, Some(ImageStore::Containerd(_))),
            "the registry of this test listens on this machine only, and the cluster is elsewhere"
        );
        let registry = Registry::serve()?;
        let address = registry.address().to_owned();
        blocking(move || publish::run(&published_to(address)).map(drop)).await?;
        let tracing =
            Namespace::named(self.namespace.cluster(), &format!("{}-tracing", self.namespace.name()));
        let server = Server::new(&self.target.clickhouse.host, "default", "");
        let database = Database::existing(&server, self.namespace.name());
        let folder = std::env::temp_dir().join(tracing.name());
        let lived = self.follow(&registry, &tracing, &database, &folder).await;
        // Before the operator is removed, so that it can finish the pipeline's deletion.
        let removed = tracing.delete().await.and(database.delete().await).and(remove_folder(&folder));
        lived.and(removed)
    }

    /// Runs the README's commands, and counts the rows.
    async fn follow(
        &self,
        registry: &Registry,
        tracing: &Namespace,
        database: &Database,
        folder: &Path,
    ) -> Result<()> {
        let readme = files::text("README.md")?;
        let topic = self.namespace.name();
        let pipeline = replaced(
            block(&readme, "# Sluice", "yaml")?,
            &[
                ("kafka:9092", &self.target.kafka.pods),
                ("otlp_spans", topic),
                ("http://clickhouse:8123", &self.target.clickhouse.pods),
                ("database: otel", &format!("database: {}", database.name())),
                ("tracing", tracing.name()),
            ],
        )?;
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let file = folder.join("my-pipeline.yaml");
        fs::write(&file, pipeline).with_context(|| format!("write {}", file.display()))?;
        let script = replaced(
            block(&readme, "## Install", "sh")?,
            &[
                // The definitions belong to the release that all tests share.
                ("helm install sluice ", &format!("helm install {RELEASE} --take-ownership ")),
                ("sluice-system", self.namespace.name()),
                ("registry.example.com", registry.address()),
                ("username=USER", &format!("username={}", clickhouse::USER)),
                ("password=PASSWORD", &format!("password={}", clickhouse::PASSWORD)),
                ("-n tracing", &format!("-n {}", tracing.name())),
                ("namespace tracing", &format!("namespace {}", tracing.name())),
                ("my-pipeline.yaml", &file.display().to_string()),
            ],
        )?;
        let commands = commands(&script);
        ensure!(commands.len() <= COMMANDS_MAX, "{} commands are too many: {commands:#?}", commands.len());
        let kubeconfig = self.target.kubeconfig.clone();
        blocking(move || run(&commands, &kubeconfig)).await?;

        let run = Run::fresh();
        let feed = Feed::numbered(topic, 2);
        let producer = Producer::new(&self.target.kafka.host, Compression::Zstd, run)?;
        let sent = producer.produce(&feed, 0..SPANS).await?;
        let oracle = database.oracle("otel_traces", run);
        let verdict = oracle.wait_until_complete(&sent, PATIENCE, |_| {}).await?;
        ensure!(verdict.rows == SPANS && verdict.lost == 0 && verdict.doubled == 0, "{verdict:?}");
        Ok(())
    }
}

fn published_to(registry: String) -> PublishArgs {
    let (operator, gateway) = (Some(own_operator::program()), Some(process::program()));
    let programs = ProgramArgs { operator, gateway };
    PublishArgs { registry, version: env!("CARGO_PKG_VERSION").to_owned(), plain_http: true, programs }
}

/// The first code block of this language after these words.
fn block<'a>(text: &'a str, behind: &str, language: &str) -> Result<&'a str> {
    let found = text.split_once(&format!("{behind}\n")).and_then(|(_, rest)| {
        let (_, block) = rest.split_once(&format!("```{language}\n"))?;
        block.split_once("```").map(|(block, _)| block)
    });
    found.with_context(|| format!("the README has no block of {language} behind {behind:?}"))
}

/// The text with these words replaced. All of them must occur; otherwise the README has changed.
fn replaced(text: &str, words: &[(&str, &str)]) -> Result<String> {
    words.iter().try_fold(text.to_owned(), |text, (word, other)| {
        ensure!(text.contains(word), "the README does not say {word:?} where this test replaces it: {text}");
        Ok(text.replace(word, other))
    })
}

/// The commands of a block, one a line. A backslash continues a line.
fn commands(script: &str) -> Vec<String> {
    let lines = script.replace("\\\n", " ");
    lines.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// Runs the commands one after the other, as an administrator in the checkout.
fn run(commands: &[String], kubeconfig: &Path) -> Result<()> {
    let helm = helm::path()?;
    let kubectl = kubernetes::programs::build(&Paths::from_environment()?)?;
    let folders = [helm.parent().context("helm is in no folder")?.to_owned(), kubectl];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path)))
        .context("put helm and kubectl on the PATH")?;
    for line in commands {
        let mut shell = command("bash");
        shell.args(["-euo", "pipefail", "-c", line]).current_dir(workspace());
        shell.env("PATH", &path).env("KUBECONFIG", kubeconfig);
        output(&mut shell).with_context(|| format!("run {line}"))?;
    }
    Ok(())
}

#[test]
fn commands_are_cut_where_a_person_would() {
    let text = "a\n```sh\nno\n```\n## Install\n```sh\nhelm a \\\n  --b\nkubectl c\n```\n";
    let found = block(text, "## Install", "sh").unwrap();
    assert_eq!(commands(found), ["helm a    --b", "kubectl c"]);
    assert!(replaced(found, &[("helm a", "x"), ("kubectl d", "y")]).is_err());
}
