//! Shows a query with its answer, and commands to continue with.

use e2e_fixtures::oracle::Server;
use e2e_fixtures::spans::Run;
use e2e_stack::say;
use e2e_stack::target::Resolved;

/// Queries the slowest operations of the run, and prints the answer.
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

/// Prints three commands to continue with.
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
