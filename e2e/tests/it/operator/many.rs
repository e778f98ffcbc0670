//! Many pipelines at once: all become Ready, then the operator writes nothing more, and an edit does not wait for silent gateways.

use e2e_bench::operator_scale::{Order, measure};
use e2e_fixtures::local_operator::Silent;

use crate::own_operator::program;
use crate::prelude::*;

/// In the quiet time, each pipeline is reconciled at least once; before it, there were 100 s without a write. There are more silent
/// gateways than parallel reconciles.
const ORDER: Order = Order { pipelines: 30, quiet: Duration::from_secs(35), silent: Silent(60) };

/// The small form of `e2e-bench operator-scale`, which counts requests in a proxy between the operator and the API server.
#[test]
#[ignore = "group operator"]
fn a_second_reconcile_writes_nothing_whatever_the_number_of_pipelines() -> Result<()> {
    let report =
        without_operator(Uses::OwnOperator, async |_, target| measure(&ORDER, target, &program()).await)?;
    ensure!(report.holds(), "{}", report.lines().join("\n"));
    Ok(())
}
