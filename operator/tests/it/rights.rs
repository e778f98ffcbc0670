//! What the operator may do is what it does: every right of SECURITY.md is used by it, and it asks for nothing else. `cargo verify` holds the
//! chart's roles to the same table.
//!
//! What is used is seen by playing scenes of other tests once more, on one thread, against the server that notes what it is asked.

use crate::{
    api_server::ApiServer,
    apply_failure,
    asked::{self, Right},
    bench::Bench,
    connections, edge, life, quiet, replaced, resize, schema, volumes, watches,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Config,
    runtime::events::{Event, EventType},
};
use sluice_operator::run::lease::{Lease, LeaseName};
use std::collections::BTreeSet;

/// Together they do all that the operator does; each of them is a test by itself.
const SCENES: [fn(); 17] = [
    watches::each_watch_sees_what_the_table_says_and_no_more,
    a_lease_is_made_held_and_given_back,
    what_happens_twice_is_one_event_and_other_words_are_another,
    life::orphans_go_on_and_are_taken_over_by_a_pipeline_of_the_same_name,
    volumes::claims_grow_and_the_workload_is_made_anew_without_its_pods,
    volumes::a_volume_without_a_gateway_is_drained_and_then_goes_or_stays,
    replaced::each_volume_is_replaced_once_its_gateway_is_empty,
    schema::a_failed_job_is_read_and_run_again_and_what_runs_goes_on,
    resize::a_killed_gateway_is_given_more_in_place_once_and_it_is_said,
    quiet::what_is_switched_off_goes_and_comes_back_with_the_switch,
    quiet::a_pod_monitor_comes_and_goes_with_its_switch_and_is_looked_at_no_more_than_that,
    quiet::another_spec_rolls_the_gateways_and_leaves_few_configs_behind,
    quiet::a_secret_is_read_again_once_it_has_changed,
    connections::a_connection_says_how_many_pipelines_reference_it,
    edge::an_edge_is_made_told_of_and_taken_away_and_gateways_do_not_notice,
    edge::an_edge_that_is_left_behind_goes_on_and_is_taken_over,
    apply_failure::pods_that_kubernetes_does_not_make_are_told_in_its_words,
];

/// Asked by Kubernetes on clusters with the admission plugin `OwnerReferencesPermissionEnforcement`: of a client that makes an object whose
/// owner is not to go before it, or that changes the owners of an object. They are no requests of their own.
const NEVER_A_REQUEST: [(&str, &str, &str); 1] = [("sluice.dev", "tracepipelines/finalizers", "update")];

#[test]
fn every_right_is_used_and_nothing_is_asked_for_without_one() {
    for play in SCENES {
        play();
    }
    let mut used = asked::on_this_thread();
    used.extend(NEVER_A_REQUEST.map(|(group, resource, verb)| Right::new(group, resource, verb)));
    let granted = granted();
    let idle: Vec<_> = granted.difference(&used).collect();
    assert!(idle.is_empty(), "rights in SECURITY.md that nothing uses: {idle:#?}");
    let missing: Vec<_> = used.difference(&granted).collect();
    assert!(missing.is_empty(), "asked for without a right in SECURITY.md: {missing:#?}");
}

/// The rows of a table of SECURITY.md whose header begins with this word, without the marks around names.
pub fn rows(first: &str) -> Vec<Vec<String>> {
    let text = include_str!("../../SECURITY.md");
    let header = format!("| {first} | ");
    let table = text.lines().skip_while(|line| !line.starts_with(&header)).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    table.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn granted() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for row in rows("where") {
        let [_, group, resources, verbs, _] = row.as_slice() else { panic!("{row:?}") };
        let group = if group == "core" { "" } else { group };
        for resource in resources.split(", ") {
            rights.extend(verbs.split(", ").map(|verb| Right::new(group, resource, verb)));
        }
    }
    assert!(rights.len() >= 60, "{rights:?}");
    rights
}

#[tokio::test]
async fn a_lease_is_made_held_and_given_back() {
    let server = ApiServer::start().await;
    let client = Client::try_from(Config::new(server.url.parse().unwrap())).unwrap();
    let name =
        LeaseName { namespace: "sluice-system".into(), name: "sluice".into(), identity: "first".into() };
    let mut lease = Lease::new(client, name);
    lease.acquired(|| ()).await;
    let holder = || server.get("leases/sluice").unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder(), "first");
    lease.release().await;
    assert_ne!(holder(), "first");
}

#[tokio::test]
async fn what_happens_twice_is_one_event_and_other_words_are_another() {
    let bench = Bench::start().await;
    let event = |note: &str| Event {
        type_: EventType::Normal,
        reason: "VolumeReplaced".into(),
        note: Some(note.to_owned()),
        action: "Reconcile".into(),
        secondary: None,
    };
    let regarding = ObjectReference {
        name: Some("prod".into()),
        namespace: Some("tracing".into()),
        ..Default::default()
    };
    let world = bench.world();
    for note in ["gateway 1 was empty", "gateway 1 was empty", "gateway 0 was empty"] {
        world.shared.events.publish(&event(note), &regarding).await.unwrap();
    }
    let methods: Vec<String> = bench.server.take_writes().into_iter().map(|write| write.method).collect();
    assert_eq!(methods, ["POST", "PATCH", "POST"]);
}
