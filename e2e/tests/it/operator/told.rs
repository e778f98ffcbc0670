//! The output for a user at a terminal: `kubectl get tp`, which the server prints, and `kubectl describe tp`. They show what runs, its lag,
//! the reason for its size, what it is doing, and what the user must do.

use e2e_stack::kubernetes;
use tokio::process::Command;

use crate::prelude::*;

/// Partitions: two gateways, of four each.
const PARTITIONS: i32 = 8;

#[test]
fn kubectl_tells_what_a_pipeline_is_and_what_a_person_must_do() -> Result<()> {
    scene::run("kubectl_tells", Uses::Servers, PARTITIONS, async |scene: &mut Scene| {
        scene.topic.delete().await?;
        scene.apply_credentials().await?;
        scene.pipeline.apply(&json!({})).await?;
        scene.pipeline.wait_false(kind::SOURCE_REACHABLE, reason::TOPIC_MISSING, READY).await?;
        waits(scene).await?;
        scene.topic = scene.topic.again(PARTITIONS).await?;
        scene.pipeline.wait_ready(READY).await?;
        let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..1_000).await?;
        scene.assert_nothing_lost(&sent).await?;
        runs(scene).await
    })
}

/// It waits for a topic, and the output names the topic that a user must create.
async fn waits(scene: &Scene) -> Result<()> {
    let row = row(scene).await?;
    let of = |column: &str| row.get(column).map(String::as_str);
    ensure!(of("NAME") == Some("traces") && of("READY") == Some("0/?"), "{row:?}");
    ensure!(of("REASON") == Some(reason::SOURCE_UNAVAILABLE), "{row:?}");
    let topic = scene.topic.name();
    says(scene, &[&format!("the topic \"{topic}\" does not exist"), "Waiting", reason::TOPIC_MISSING]).await
}

/// What runs, its lag, and the reason for its number of gateways; the user has nothing to do.
async fn runs(scene: &Scene) -> Result<()> {
    let expected = [
        ("NAME", "traces"),
        ("READY", "2/2"),
        ("REASON", reason::RUNNING),
        ("PARTITIONS", "8"),
        ("LAG", "0"),
    ];
    // The operator checks the lag every few seconds.
    until("a row that says that it runs", READY, async || {
        let row = row(scene).await?;
        let is_so = expected.iter().all(|(column, value)| row.get(*column).is_some_and(|is| is == value));
        Ok(Seen::when(is_so, || format!("{row:?}")))
    })
    .await?;
    let image = &scene.environment.gateway_image;
    says(
        scene,
        &[
            "2 gateways read 8 partitions",
            "one gateway for 4 partitions (partitionsPerReplica)",
            "Lag: Messages: 0",
            image,
            "Guarantee:",
            "the table matches the spec",
        ],
    )
    .await
}

/// The output of `kubectl describe` has all of these words.
async fn says(scene: &Scene, words: &[&str]) -> Result<()> {
    until("the output of kubectl describe", READY, async || {
        let said = kubectl(scene, &["describe", "tp", scene.pipeline.name()]).await?;
        // kubectl decides the layout.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let missing: Vec<&&str> = words.iter().filter(|word| !said.contains(**word)).collect();
        Ok(Seen::when(missing.is_empty(), || format!("describe does not say {missing:?}: {said}")))
    })
    .await
}

/// The row of the pipeline that `kubectl get` prints, by column.
async fn row(scene: &Scene) -> Result<BTreeMap<String, String>> {
    let table = kubectl(scene, &["get", "tp", scene.pipeline.name()]).await?;
    cells(&table).with_context(|| format!("kubectl get prints no table: {table}"))
}

/// The cells of a table of one row. Each begins below the head of its column.
fn cells(table: &str) -> Option<BTreeMap<String, String>> {
    let (head, row) = table.split_once('\n')?;
    let begins = |at: usize| at == 0 || head.as_bytes()[at - 1] == b' ';
    let starts: Vec<usize> =
        (0..head.len()).filter(|at| head.as_bytes()[*at] != b' ' && begins(*at)).collect();
    let cut = |line: &str, at: usize| {
        let end = starts.get(at + 1).copied().unwrap_or(line.len()).min(line.len());
        line.get(starts[at].min(end)..end).unwrap_or_default().trim().to_owned()
    };
    let row = row.lines().next()?;
    Some((0..starts.len()).map(|at| (cut(head, at), cut(row, at))).collect())
}

#[test]
fn a_table_is_cut_at_its_heads() {
    let found = cells("NAME    READY   LAG   AGE\ntraces  True          4m\n").unwrap();
    let of = |column: &str| found[column].as_str();
    assert_eq!((of("NAME"), of("READY"), of("LAG"), of("AGE")), ("traces", "True", "", "4m"));
    assert_eq!(cells("No resources found"), None);
}

/// Runs kubectl as a user would, in the namespace of the scene; returns what it prints.
pub async fn kubectl(scene: &Scene, words: &[&str]) -> Result<String> {
    let programs = blocking(|| kubernetes::programs::build(&Paths::from_environment()?)).await?;
    let ran = Command::new(programs.join("kubectl"))
        .arg("--kubeconfig")
        .arg(scene.environment.kubeconfig()?)
        .args(["--namespace", scene.namespace.name()])
        .args(words)
        .kill_on_drop(true)
        .output()
        .await
        .context("run kubectl")?;
    ensure!(ran.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}
