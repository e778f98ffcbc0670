//! Many pipelines at once: all become Ready, then nothing is written any more, and an edit waits for no gateway that is silent.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e_bench::operator_scale::{Order, measure};
use e2e_fixtures::local_operator::Silent;
use e2e_stack::programs::{self, Form};

use crate::environment::without_operator;
use crate::turns::Uses;

/// The operator's program, when it is not to be compiled.
const PROGRAM: &str = "SLUICE_OPERATOR_PROGRAM";

/// Each pipeline is looked at at least once within it, and was in the 100 s without a write before.
/// More gateways are silent than there are reconciles at the same time.
const ORDER: Order = Order { pipelines: 30, quiet: Duration::from_secs(35), silent: Silent(60) };

/// The small form of `e2e-bench operator-scale`, which has a front that counts between the operator and the API server.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "group operator"]
async fn a_second_reconcile_writes_nothing_whatever_the_number_of_pipelines() -> Result<()> {
    let report =
        without_operator(Uses::OwnOperator, async |_, target| measure(&ORDER, target, &program()).await)
            .await?;
    ensure!(report.holds(), "{}", report.lines().join("\n"));
    Ok(())
}

/// The operator's program: the one that is asked for, else that of this checkout, which `cargo verify` has compiled for its image.
pub fn program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(|| programs::OPERATOR.file(Form::Checked), PathBuf::from)
}
