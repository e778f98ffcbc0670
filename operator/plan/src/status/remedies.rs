//! What helps if ClickHouse or its table cannot be used, or if a gateway has ended, as the end of a message. The schema Job and gateways say what
//! failed, and at which server.

use crate::{
    names::{COMPONENT, INSTANCE, SCHEMA},
    observed::{EXIT_KILLED, Termination},
};
use sluice_crds::{SchemaManagement, TracePipeline, status::reason};

/// What helps for a reason of `SinkReachable` or `SchemaReady`; `None` where the words about it say that.
pub(super) fn of_sink(pipeline: &TracePipeline, reason: &str) -> Option<String> {
    let management = pipeline.spec.sink.clickhouse.schema.management;
    let creates = matches!(management, SchemaManagement::CreateIfMissing | SchemaManagement::Evolve);
    let create = if creates { "" } else { ", or set schema.management: CreateIfMissing" };
    let evolve = if management == SchemaManagement::Evolve {
        ""
    } else {
        "; schema.management: Evolve adds missing columns"
    };
    match reason {
        reason::UNREACHABLE => {
            Some("check sink.clickhouse.endpoints, that the server runs, DNS and NetworkPolicies".to_owned())
        }
        reason::AUTH_FAILED => {
            Some("check user, password and grants in ClickHouse (gateway/TABLE.md, Grants)".to_owned())
        }
        reason::DATABASE_MISSING => Some(format!(
            "check that sink.clickhouse.endpoints lead to the right servers, and create the database{create}"
        )),
        reason::TABLE_MISSING => {
            Some(format!("create the table (sluice-gateway ddl print has the statement){create}"))
        }
        reason::COLUMN_MISMATCH => Some(format!("the log has the whole list{evolve}")),
        reason::SERVERS_NOT_REACHED => Some(
            "bring them back: the schema Job runs again, and rows are written to the other servers"
                .to_owned(),
        ),
        reason::JOB_FAILED => Some(format!(
            "the operator runs the schema Job again: {} has what it says",
            logs(pipeline, SCHEMA)
        )),
        _ => None,
    }
}

/// The command that prints the logs of a component.
pub(super) fn logs(pipeline: &TracePipeline, component: &str) -> String {
    let name = pipeline.metadata.name.as_deref().unwrap_or_default();
    format!("kubectl logs -l {INSTANCE}={name},{COMPONENT}={component}")
}

/// What helps if the container of this gateway ended, as the end of a message; `None` if it ended after a signal. The exit codes are those of
/// `gateway/DELIVERY.md`, Shutdown.
pub(super) fn of_end((namespace, pod): (&str, &str), end: &Termination) -> Option<String> {
    let helps = match end.exit_code {
        0 => return None,
        1 => "an error while it ran, such as a volume that cannot be written; Kubernetes starts it again; ".to_owned(),
        64 => "its config is wrong: correct the fields that it names; ".to_owned(),
        69 => "Kafka or ClickHouse is away or refuses it, the table or a topic has changed, or its memory limit is too small for its config; \
               Kubernetes starts it again; "
            .to_owned(),
        EXIT_KILLED if end.is_out_of_memory() => {
            "its memory was not enough: increase gateway.resources.limits.memory; ".to_owned()
        }
        EXIT_KILLED => format!(
            "it was killed, such as by the kubelet after a minute without an answer to its liveness probe: kubectl describe pod {pod} -n \
             {namespace} has the events; "
        ),
        _ => String::new(),
    };
    Some(format!(
        ". Exit code {}: {helps}kubectl logs {pod} -n {namespace} --previous has its last words",
        end.exit_code
    ))
}
