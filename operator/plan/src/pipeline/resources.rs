//! Memory and CPU of the spec as numbers. The API server's rules have seen them already; an object that was stored before
//! the rules were there may still break them, so that nothing here trusts a text.

use crate::ground::quantity::millicores;
use sluice_crds::Resources;
use sluice_gateway_config::{ByteSize, Violations};

/// Memory and CPU of one gateway, as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sized {
    /// Memory, requested and limit at once.
    pub memory: ByteSize,
    /// CPU that is reserved, as the user wrote it.
    pub cpu_request: String,
    /// CPU at the most, as the user wrote it.
    pub cpu_limit: Option<String>,
    /// Whole cores of the request, at least 1.
    pub cores: u32,
}

/// Reads the resources, or adds what is wrong with them.
pub(crate) fn read(resources: &Resources, found: &mut Violations) -> Option<Sized> {
    let at = |field: &str| format!("spec.gateway.resources.{field}");
    let memory =
        resources.memory.parse::<ByteSize>().map_err(|e| found.add(at("memory"), e.to_string())).ok();
    let request = millicores(&resources.cpu_request);
    found.add_if(request.is_none(), &at("cpuRequest"), || not_cpu(&resources.cpu_request));
    if let Some(limit) = &resources.cpu_limit {
        found.add_if(millicores(limit).is_none(), &at("cpuLimit"), || not_cpu(limit));
    }
    Some(Sized {
        memory: memory?,
        cpu_request: resources.cpu_request.clone(),
        cpu_limit: resources.cpu_limit.clone(),
        cores: (request? / 1_000).max(1),
    })
}

/// CPU that is reserved for the pod of a Job. Chosen: the schema Job sends a few queries, and the drain Job sends
/// blocks that are ready on the volume.
pub(crate) const JOB_CPU_REQUEST: &str = "50m";

/// CPU that a Job's pod may use at the most: as much as a gateway, if that is limited. A namespace whose quota is on limits takes no pod
/// without one.
pub(crate) fn of_job(cpu_limit: Option<&str>) -> Option<&str> {
    let is_enough = |limit| millicores(limit) >= millicores(JOB_CPU_REQUEST);
    cpu_limit.map(|limit| if is_enough(limit) { limit } else { JOB_CPU_REQUEST })
}

fn not_cpu(text: &str) -> String {
    format!("{text:?} is not a number of cores, such as 500m or 2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_whole_cores_and_at_least_one() {
        let cores = |cpu: &str| {
            let resources = Resources { cpu_request: cpu.into(), ..Resources::default() };
            read(&resources, &mut Violations::default()).unwrap().cores
        };
        assert_eq!((cores("100m"), cores("1999m"), cores("2")), (1, 1, 2));
    }

    #[test]
    fn all_that_is_wrong_is_named() {
        let mut found = Violations::default();
        let resources = Resources {
            memory: "much".into(),
            cpu_request: "x".into(),
            cpu_limit: Some("y".into()),
            ..Resources::default()
        };
        assert_eq!(read(&resources, &mut found), None);
        assert_eq!(found.iter().count(), 3, "{found}");
    }

    #[test]
    fn a_job_may_use_as_much_as_a_gateway_and_what_it_reserves_at_the_least() {
        for (limit, expected) in
            [(None, None), (Some("2"), Some("2")), (Some("20m"), Some("50m")), (Some("?"), Some("50m"))]
        {
            assert_eq!(of_job(limit), expected, "{limit:?}");
        }
    }
}
