//! What a person looks at: a query that ClickHouse answers, and how to go on from there.

use anyhow::Context as _;

use e2e_fixtures::oracle::Server;
use e2e_fixtures::spans::Run;
use e2e_stack::clickhouse;
use e2e_stack::say;
use e2e_stack::target::{Address, Resolved};

/// The server for this machine. User and password, where needed, are in the URL; without them it is the user `default`.
pub fn server(address: &Address) -> anyhow::Result<Server> {
    let Login { url, user, password } = login(&address.host)?;
    Ok(Server::new(&url, &user, &password))
}

/// User and password for the gateways: those of the local stack, or those in a given URL.
pub fn gateway_user(resolved: &Resolved) -> anyhow::Result<(String, String)> {
    if resolved.clickhouse.pods == clickhouse::PODS_URL {
        return Ok((clickhouse::USER.to_owned(), clickhouse::PASSWORD.to_owned()));
    }
    let Login { user, password, .. } = login(&resolved.clickhouse.pods)?;
    Ok((user, password))
}

/// A URL as a pipeline names it: without user and password.
pub fn plain_url(address: &Address) -> anyhow::Result<String> {
    Ok(login(&address.pods)?.url)
}

/// A URL without its user and password, and these.
struct Login {
    url: String,
    user: String,
    password: String,
}

fn login(url: &str) -> anyhow::Result<Login> {
    let (scheme, rest) = url.split_once("://").context("the URL of ClickHouse has no scheme")?;
    let (credentials, place) = rest.rsplit_once('@').unwrap_or(("default:", rest));
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    Ok(Login { url: format!("{scheme}://{place}"), user: user.to_owned(), password: password.to_owned() })
}

/// Asks which operations of the run are the slowest, and shows the answer.
pub async fn answer(server: &Server, database: &str, table: &str, run: Run) -> anyhow::Result<()> {
    let query = format!(
        "SELECT ServiceName AS service, SpanName AS operation, count() AS spans, \
         round(quantile(0.99)(Duration) / 1e6, 1) AS p99_ms, countIf(StatusCode = 'Error') AS errors \
         FROM `{database}`.`{table}` WHERE startsWith(TraceId, '{}') \
         GROUP BY service, operation ORDER BY p99_ms DESC LIMIT 5",
        run.trace_id_prefix()
    );
    say::line("");
    say::line(&query);
    say::line(server.text(&query, "PrettyCompactMonoBlock").await?.trim_end());
    Ok(())
}

/// Three lines on what to do next.
pub fn around(resolved: &Resolved, database: &str, table: &str) {
    let kubeconfig = resolved.kubeconfig.display();
    say::line("");
    say::line(&format!("look    kubectl --kubeconfig {kubeconfig} -n {} get tp,pods,pvc", super::NAMESPACE));
    say::line(&format!(
        "ask     curl '{}' --data-binary 'SELECT count() FROM {database}.{table}'",
        resolved.clickhouse.host
    ));
    say::line("stop    Ctrl-C");
}
