//! What users of the nearest projects complain about, and the tests that fail when it becomes true here.
//!
//! Checked is that each of these tests is there, is compiled into its test program and is not left out. What it checks is its own.
//!
//! The complaints are issues of open-telemetry/opentelemetry-operator, kedacore/keda, Altinity/clickhouse-operator,
//! strimzi/strimzi-kafka-operator, kube-rs/kube and others.

use std::{fs, path::Path};

const PLAN: &str = "operator/plan/tests/it";
const OPERATOR: &str = "operator/tests/it";
const E2E: &str = "e2e/tests/it";
const CRDS: &str = "crds/tests/it";
const CONFIG: &str = "e2e/tests/config";

/// A complaint, one place where it is made, and the folder and name of each test.
type Complaint = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const COMPLAINTS: &[Complaint] = &[
    (
        "a changed volumeClaimTemplate fails for ever or deletes the StatefulSet",
        "opentelemetry-operator#1491, #4203",
        &[
            (CRDS, "each_transition_rule_sees_the_change"),
            (E2E, "every_rule_about_a_change_sees_it_on_the_server"),
            (OPERATOR, "claims_grow_and_the_workload_is_made_anew_without_its_pods"),
            (E2E, "volumes_grow_around_their_gateways_and_go_once_they_are_drained"),
        ],
    ),
    (
        "a resize stops after the first claim",
        "clickhouse-operator#188, Altinity/clickhouse-operator#1263",
        &[(OPERATOR, "growing_goes_on_from_wherever_the_operator_was_cut_off")],
    ),
    (
        "replicas that an autoscaler set are reset",
        "opentelemetry-operator#729, #4400",
        &[
            (OPERATOR, "a_number_that_somebody_else_set_is_kept_and_everything_else_is_applied"),
            (PLAN, "the_number_is_whose_the_mode_says"),
        ],
    ),
    (
        "scaling by Kafka's lag flaps",
        "keda#1556, #1983, #7405",
        &[
            (PLAN, "no_hour_has_more_changes_than_the_budget"),
            (PLAN, "a_lag_of_thirty_seconds_is_none_and_keeps_no_surplus"),
        ],
    ),
    (
        "replica counts that leave every pod as many partitions as before",
        "keda#2581, #7517",
        &[
            (PLAN, "replicas_stay_within_partitions_and_bounds"),
            (PLAN, "partitions_that_are_added_become_steps"),
        ],
    ),
    (
        "to zero or to the most when Kafka is unwell",
        "keda#4098, #2612, #4910",
        &[(PLAN, "no_scale_down_on_missing_samples"), (PLAN, "a_missing_answer_holds")],
    ),
    (
        "one stuck or hot partition scales everything to the most",
        "keda#3997, #5880",
        &[
            (PLAN, "a_poison_message_is_no_reason_for_more"),
            (PLAN, "a_hot_partition_is_named_and_is_no_reason_for_all_gateways"),
        ],
    ),
    (
        "more replicas although the sink is slow",
        "numaflow#136, #1853",
        &[(PLAN, "no_scale_up_while_the_sink_is_the_limit")],
    ),
    (
        "scaling in strands what is in a pod's queue",
        "opentelemetry-collector-contrib#30916, logging-operator#952",
        &[
            (OPERATOR, "gateways_that_are_too_many_leave_once_they_are_empty"),
            (OPERATOR, "a_volume_without_a_gateway_is_drained_and_then_goes_or_stays"),
        ],
    ),
    (
        "webhooks and their certificates break installations",
        "opentelemetry-helm-charts#1167, #1201",
        &[(OPERATOR, "no_template_of_the_chart_has_a_webhook_or_a_certificate")],
    ),
    (
        "Argo CD shows the definition or a pipeline as out of sync for ever",
        "strimzi-kafka-operator#12058, #13074",
        &[
            (E2E, "the_definitions_come_back_from_the_server_as_they_were_sent"),
            (E2E, "a_pipeline_comes_back_from_the_server_as_it_was_sent"),
            (CRDS, "nothing_is_written_that_an_api_server_would_drop"),
        ],
    ),
    (
        "Argo CD prunes what the operator made",
        "strimzi-kafka-operator#9554, #11635",
        &[(PLAN, "nothing_of_the_pipelines_own_metadata_reaches_an_object")],
    ),
    (
        "the status cannot gate a sync wave",
        "opentelemetry-operator#1355, clickhouse-operator#1086",
        &[
            (CONFIG, "every_state_is_seen_as_it_is_meant"),
            (PLAN, "every_reason_is_that_of_a_state"),
            (PLAN, "each_step_of_a_rollout_has_its_words"),
        ],
    ),
    (
        "a wrong spec shows as a crash loop, or makes the operator panic",
        "opentelemetry-operator#1771, #2628",
        &[
            (PLAN, "gateways_that_cannot_work_are_refused_with_each_field_and_the_number_that_would_do"),
            (E2E, "a_hundred_mutated_pipelines_leave_operator_and_others_unharmed"),
        ],
    ),
    (
        "an operator that is restarted or upgraded rolls all workloads",
        "clickhouse-operator#1032, #1221, opentelemetry-operator#598",
        &[
            (PLAN, "another_operator_with_the_same_image_changes_nothing"),
            (PLAN, "an_operator_with_another_image_replaces_no_gateway_and_runs_no_job"),
            (E2E, "the_chart_is_installed_upgraded_and_removed_around_a_pipeline"),
            (PLAN, "the_revisions_of_the_samples_are_those_of_every_released_operator"),
            (E2E, "a_restarted_operator_writes_nothing"),
        ],
    ),
    (
        "a StatefulSet cannot recover from a bad roll-out by itself",
        "kubernetes#67250, zookeeper-operator#547",
        &[
            (PLAN, "what_fails_goes_back_by_itself_and_the_others_never_notice"),
            (OPERATOR, "a_pod_that_is_stuck_is_deleted_one_at_a_time"),
            (E2E, "a_change_goes_one_first_and_back_when_it_fails"),
        ],
    ),
    (
        "a claim was deleted, and data with it",
        "clickhouse-operator#730",
        &[
            (PLAN, "no_volume_is_deleted_before_it_is_drained"),
            (OPERATOR, "rights_about_volumes_are_few_and_deleting_can_be_taken_away"),
        ],
    ),
    (
        "changed bounds of the autoscaler restart pods",
        "opentelemetry-operator#2585",
        &[(PLAN, "another_number_of_gateways_is_no_reason_to_restart_them")],
    ),
    (
        "rows lost or doubled around a fail-over",
        "clickhouse-kafka-connect#24, #384",
        &[(E2E, "a_killed_gateway_loses_nothing")],
    ),
    (
        "pods that an autoscaler adds have no identity",
        "strimzi-kafka-operator#3331",
        &[(PLAN, "a_gateway_is_known_by_its_ordinal_whoever_added_it")],
    ),
    (
        "another kind of consumer does not fit into the source",
        "keda#7920",
        &[(CRDS, "the_source_has_room_for_another_kind")],
    ),
    (
        "no buffer on disk for aggregators",
        "vector-operator#250",
        &[(E2E, "a_gateway_is_confined_with_its_memory_and_volume")],
    ),
    (
        "two operators that both believe to lead",
        "kube#485, kaniop#866",
        &[(E2E, "a_leader_that_cannot_renew_ends_before_another_writes")],
    ),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything below a folder of the repository, as one text.
fn all(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { all(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}

/// A file and the modules below it, as one text. A file that no `mod` names is not compiled, so that its tests are not run.
fn compiled(file: &Path, below: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let files = declared(&text).into_iter().map(|module| below.join(module));
    let modules: String = files.map(|path| compiled(&path.with_extension("rs"), &path)).collect();
    text + &modules
}

/// Modules that a text declares in files of their own, as paths below its folder. Left out are those behind a `cfg` or with a path of
/// their own, and all in a block that is.
fn declared(code: &str) -> Vec<String> {
    // The indentation of each open block, and the folder of its files; none if it is left out.
    let mut blocks: Vec<(&str, Option<String>)> = Vec::new();
    let (mut found, mut conditions) = (Vec::new(), false);
    for line in code.lines() {
        let item = line.trim_start();
        let indentation = &line[..line.len() - item.len()];
        if item == "}" && blocks.last().is_some_and(|(of_block, _)| *of_block == indentation) {
            blocks.pop();
        }
        let folder = blocks.last().map_or(Some(String::new()), |(_, folder)| folder.clone());
        let folder = folder.filter(|_| !conditions);
        if let Some(rest) = item.strip_prefix("pub ").unwrap_or(item).strip_prefix("mod ") {
            if let Some(module) = rest.strip_suffix(';') {
                found.extend(folder.map(|folder| folder + module));
            } else if let Some(module) = rest.strip_suffix(" {") {
                blocks.push((indentation, folder.map(|folder| format!("{folder}{module}/"))));
            }
        }
        conditions = item.starts_with("#[cfg") || item.starts_with("#[path");
    }
    found
}

/// Whether a text has a test of this name that is run: between the item before and the function stands that it is one, and nothing that
/// leaves it out.
fn runs(code: &str, name: &str) -> bool {
    code.match_indices(&format!("fn {name}(")).any(|(at, _)| {
        // What stands on the line of `fn` itself, such as `async`, is none of it.
        let (above, _) = code[..at].rsplit_once('\n').unwrap_or_default();
        let is_above = |line: &&str| line.starts_with("#[") || line.starts_with("///");
        let attributes: Vec<&str> = above.lines().rev().map(str::trim).take_while(is_above).collect();
        let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        // A group takes its turn in `cargo verify`; what is left out for another reason never runs.
        let is_ignored =
            |line: &&str| line.starts_with("#[ignore") && !line.starts_with("#[ignore = \"group ");
        let is_left_out = |line: &&str| is_ignored(line) || line.starts_with("#[cfg");
        attributes.iter().any(is_test) && !attributes.iter().any(is_left_out)
    })
}

#[test]
fn each_complaint_has_a_test_that_is_run() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let programs = [PLAN, OPERATOR, E2E, CRDS, CONFIG]
        .map(|folder| (folder, compiled(&top.join(folder).join("main.rs"), &top.join(folder))));
    for (complaint, evidence, tests) in COMPLAINTS {
        assert!(!tests.is_empty() && evidence.contains('#'), "{complaint}");
        for (folder, test) in *tests {
            let (_, code) = programs.iter().find(|(found, _)| found == folder).unwrap();
            assert!(runs(code, test), "{complaint} ({evidence}): no test {test} in {folder}");
        }
    }
}

#[test]
fn what_no_module_names_is_not_compiled() {
    let found = declared(
        "mod one;\n#[cfg(any())]\nmod left_out;\n#[path = \"x.rs\"]\nmod elsewhere;\n// mod said;\n\
         mod here {\n    pub mod two;\n    fn inside() {\n    }\n    mod deeper {\n        pub mod three;\n    }\n}\n\
         #[cfg(any())]\nmod not_here {\n    pub mod left_out_too;\n}\nlet model = 1;\nmod four;\n",
    );
    assert_eq!(found, ["one", "here/two", "here/deeper/three", "four"]);
}

#[test]
fn a_function_that_is_no_test_or_is_left_out_counts_for_nothing() {
    for (above, is_run) in [
        ("#[test]\n", true),
        ("#[tokio::test]\nasync ", true),
        ("#[tokio::test(flavor = \"multi_thread\")]\nasync ", true),
        ("    /// Why.\n    #[test]\n    ", true),
        ("#[test]\n#[ignore = \"slow\"]\n", false),
        ("#[ignore]\n#[test]\n", false),
        ("#[test]\n#[ignore = \"group chart\"]\n", true),
        ("#[cfg(any())]\n#[test]\n", false),
        ("#[test]\n#[cfg_attr(all(), ignore)]\n", false),
        ("", false),
        ("#[test]\nfn other() {}\n", false),
    ] {
        assert_eq!(runs(&format!("use x;\n{above}fn it_holds() {{}}\n"), "it_holds"), is_run, "{above}");
    }
}

#[test]
fn no_template_of_the_chart_has_a_webhook_or_a_certificate() {
    let templates = all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/sluice/templates"));
    for kind in
        ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "cert-manager.io", "kind: Secret"]
    {
        assert!(!templates.contains(kind), "{kind}");
    }
    assert!(!read("crds/tracepipelines.yaml").contains("webhook"), "the definition converts by a webhook");
}

#[test]
fn rights_about_volumes_are_few_and_deleting_can_be_taken_away() {
    let rules = read("charts/sluice/templates/_helpers.tpl");
    let lines: Vec<&str> = rules.lines().map(str::trim_start).collect();
    let resources = lines.iter().enumerate().filter(|(_, line)| line.starts_with("resources:"));
    assert!(resources.clone().count() >= 8, "{lines:?}");
    let of_claims = resources.clone().filter(|(_, line)| line.contains("persistentvolumeclaims"));
    assert_eq!(of_claims.count(), 1, "rights about claims are in one place: {lines:?}");
    for (at, line) in resources {
        for forbidden in ["persistentvolumes", "\"*\"", "'*'", "[*]"] {
            assert!(!line.contains(forbidden), "{line}");
        }
        if line.contains("persistentvolumeclaims") {
            let only_if = "{{ if .Values.volumes.delete }}, delete{{ end }}";
            assert_eq!(lines[at + 1], format!("verbs: [get, list, watch, patch{only_if}]"));
        }
    }
}
