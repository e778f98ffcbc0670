//! `kubectl sluice dead-letter`: runs `sluice-gateway dead-letter` in a gateway's pod, which has the config and the credentials.
//!
//! With `source.otlp` each gateway has its own dead letters: it runs in one pod after another. Volumes without a gateway are left out, and it says so.
//!
//! The plugin copies the output as it arrives, and keeps none of it. It exits with the code of the program in the pod; after several, with the
//! first that is not 0.

use crate::{
    args::DeadLetterArgs,
    cluster::{Cluster, Error},
    exit_codes::{EXIT_UNAVAILABLE, EXIT_WELL},
    spool,
    terminal::Terminal,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use std::io::{self, Write};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The program in the image.
const PROGRAM: &str = "/usr/bin/sluice-gateway";

/// Bytes that are copied at a time. Chosen: a page of text.
const PASSED_ON_BYTES: usize = 8 << 10;

pub(super) async fn run(
    cluster: &Cluster,
    asked: &DeadLetterArgs,
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    let pipeline = cluster.pipeline(&asked.name).await?;
    if pipeline.spec.source.otlp.is_some()
        && let Some(left_out) = spool::left_out(pipeline.status.as_ref())
    {
        terminal.tell(&left_out)?;
    }
    let pods = cluster.with_letters(&pipeline).await?;
    let mut code = EXIT_WELL;
    for pod in &pods {
        if pods.len() > 1 {
            terminal.tell(&format!("{pod}:"))?;
        }
        let ended = in_pod(cluster, pod, &words(asked), terminal).await?;
        code = if code == EXIT_WELL { ended } else { code };
    }
    Ok(code)
}

async fn in_pod(
    cluster: &Cluster,
    pod: &str,
    words: &[String],
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    let mut process = cluster.execute(pod, words).await?;
    let (out, told) = (process.stdout(), process.stderr());
    let ended = process.take_status();
    pass_on_both((out, terminal.out), (told, terminal.told)).await.map_err(Error::Write)?;
    let status = match ended {
        Some(ended) => ended.await,
        None => None,
    };
    let code = exit_code(status.as_ref());
    if let Some(why) = cut_off(status.as_ref()) {
        terminal.tell(&format!("{pod}: {why}; the output may be incomplete"))?;
    }
    Ok(code)
}

fn words(asked: &DeadLetterArgs) -> Vec<String> {
    let words = [PROGRAM, "dead-letter", asked.action.word()];
    words.into_iter().map(str::to_owned).chain(asked.options.iter().cloned()).collect()
}

/// Ends when both have ended, or when one cannot be written. In that case its reader has closed it, and waiting for the program in the pod
/// would never end.
async fn pass_on_both(
    (out, to): (Option<impl AsyncRead + Unpin>, &mut dyn Write),
    (told, to_told): (Option<impl AsyncRead + Unpin>, &mut dyn Write),
) -> io::Result<()> {
    tokio::try_join!(pass_on(out, to), pass_on(told, to_told)).map(drop)
}

async fn pass_on(from: Option<impl AsyncRead + Unpin>, to: &mut dyn Write) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut page = vec![0; PASSED_ON_BYTES];
    loop {
        let read = from.read(&mut page).await?;
        if read == 0 {
            return to.flush();
        }
        to.write_all(&page[..read])?;
    }
}

/// Why the program was cut off; `None` if it ran to its end.
fn cut_off(status: Option<&Status>) -> Option<String> {
    let Some(status) = status else { return Some("the connection broke".into()) };
    let has_ended = status.status.as_deref() == Some("Success") || code_of(status).is_some();
    let why = || status.message.clone().unwrap_or_else(|| "the program did not run to its end".into());
    (!has_ended).then(why)
}

/// The exit code of the program, which the kubelet reports as a cause of the failure.
fn exit_code(status: Option<&Status>) -> u8 {
    let Some(status) = status else { return EXIT_UNAVAILABLE };
    if status.status.as_deref() == Some("Success") {
        return EXIT_WELL;
    }
    code_of(status).unwrap_or(EXIT_UNAVAILABLE)
}

fn code_of(status: &Status) -> Option<u8> {
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    codes.find_map(|cause| cause.message.as_ref()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Letters;
    use serde_json::json;

    #[test]
    fn options_are_passed_on_as_they_are() {
        let options = ["--partition", "3", "--json"].map(str::to_owned).to_vec();
        let asked = DeadLetterArgs { name: "prod".into(), action: Letters::Replay, options };
        assert_eq!(
            words(&asked).join(" "),
            "/usr/bin/sluice-gateway dead-letter replay --partition 3 --json"
        );
    }

    #[test]
    fn it_ends_as_the_program_in_the_pod_does() {
        let failed = |causes| json!({"status": "Failure", "details": {"causes": causes}});
        for (status, code, why) in [
            (json!({"status": "Success"}), 0, None),
            (failed(json!([{"reason": "ExitCode", "message": "69"}])), 69, None),
            (
                failed(json!([{"reason": "ExitCode", "message": "many"}])),
                EXIT_UNAVAILABLE,
                Some("the program did not run to its end"),
            ),
            (
                json!({"status": "Failure", "message": "container not found"}),
                EXIT_UNAVAILABLE,
                Some("container not found"),
            ),
        ] {
            let read: Status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!((exit_code(Some(&read)), cut_off(Some(&read)).as_deref()), (code, why), "{status}");
        }
        assert_eq!(
            (exit_code(None), cut_off(None).as_deref()),
            (EXIT_UNAVAILABLE, Some("the connection broke"))
        );
    }

    /// A pipe that its reader has closed.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn it_ends_when_nobody_reads_on_although_the_program_has_not_ended() {
        let (_open, told) = tokio::io::duplex(64);
        let (mut closed, mut to) = (Closed, Vec::new());
        let ended = pass_on_both((Some(&b"a letter\n"[..]), &mut closed), (Some(told), &mut to));
        let ended = tokio::time::timeout(std::time::Duration::from_secs(10), ended).await;
        assert_eq!(ended.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn what_is_written_is_passed_on_whole() {
        let text = "a line of a letter\n".repeat(2_000);
        let mut to = Vec::new();
        pass_on(Some(text.as_bytes()), &mut to).await.unwrap();
        assert_eq!(to, text.as_bytes());
    }
}
