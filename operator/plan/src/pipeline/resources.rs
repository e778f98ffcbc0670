//! Memory and CPU of the spec as numbers. The API server's rules have seen them already; an object that was stored before
//! the rules were there may still break them, so that nothing here trusts a text.

use crate::ground::quantity::millicores;
use sluice_crds::{EdgeResources, Resources};
use sluice_gateway_config::{ByteSize, Violations};

/// Memory and CPU of one gateway, as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sized {
    /// Memory, requested and limit at once.
    pub memory: ByteSize,
    /// The path of the field that says it.
    pub memory_field: &'static str,
    /// CPU that is reserved, as the user wrote it.
    pub cpu_request: String,
    /// CPU at the most, as the user wrote it.
    pub cpu_limit: Option<String>,
    /// Whole cores of the request, at least 1.
    pub cores: u32,
}

/// Reads the resources, or adds what is wrong with them.
pub(crate) fn read(resources: &Resources, found: &mut Violations) -> Option<Sized> {
    let (memory, request, limit) = (resources.memory(), resources.cpu_request(), resources.cpu_limit());
    let bytes = memory.text.parse::<ByteSize>().map_err(|e| found.add(memory.field, e.to_string())).ok();
    let reserved = resources.requests.as_ref().and_then(|requests| requests.memory.as_deref());
    if let Some((reserved, bytes)) = reserved.zip(bytes) {
        let is_equal = reserved.parse::<ByteSize>().is_ok_and(|reserved| reserved == bytes);
        found.add_if(!is_equal, "spec.gateway.resources.requests.memory", || {
            format!(
                "{reserved} is not the limit, {}: set limits.memory to the same, or remove it",
                memory.text
            )
        });
    }
    let cores = millicores(&request.text);
    found.add_if(cores.is_none(), request.field, || not_cpu(&request.text));
    if let Some(limit) = &limit {
        let most = millicores(&limit.text);
        found.add_if(most.is_none(), limit.field, || not_cpu(&limit.text));
        // A rule of the API server compares them as well, but not two forms of an object that was stored before there was the rule.
        let is_less = most.zip(cores).is_some_and(|(most, cores)| most < cores);
        found.add_if(is_less, limit.field, || {
            format!("{} is less than the CPU that is reserved, {}", limit.text, request.text)
        });
    }
    Some(Sized {
        memory: bytes?,
        memory_field: memory.field,
        cpu_request: request.text,
        cpu_limit: limit.map(|limit| limit.text),
        cores: (cores? / 1_000).max(1),
    })
}

/// Reads the resources of the edge, or adds what is wrong with them.
pub(crate) fn read_edge(resources: &EdgeResources, found: &mut Violations) -> Option<Sized> {
    const MEMORY: &str = "spec.edge.resources.limits.memory";
    let (memory, request, limit) = (resources.memory(), resources.cpu_request(), resources.cpu_limit());
    let bytes = memory.parse::<ByteSize>().map_err(|e| found.add(MEMORY, e.to_string())).ok();
    let cores = millicores(&request);
    found.add_if(cores.is_none(), "spec.edge.resources.requests.cpu", || not_cpu(&request));
    if let Some(limit) = &limit {
        let (at, most) = ("spec.edge.resources.limits.cpu", millicores(limit));
        found.add_if(most.is_none(), at, || not_cpu(limit));
        let is_less = most.zip(cores).is_some_and(|(most, cores)| most < cores);
        found.add_if(is_less, at, || {
            format!(
                "{limit} is less than the CPU that is reserved, {request}: increase it, or lower requests.cpu"
            )
        });
    }
    Some(Sized {
        memory: bytes?,
        memory_field: MEMORY,
        cpu_request: request,
        cpu_limit: limit,
        cores: (cores? / 1_000).max(1),
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
    use sluice_crds::{Cpu, ResourceLimits, ResourceRequests};

    #[test]
    fn workers_are_whole_cores_and_at_least_one() {
        let cores = |cpu: &str| {
            let requests = ResourceRequests { cpu: Some(Cpu::Text(cpu.into())), memory: None };
            let resources = Resources { requests: Some(requests), ..Resources::default() };
            read(&resources, &mut Violations::default()).unwrap().cores
        };
        assert_eq!((cores("100m"), cores("1999m"), cores("2")), (1, 1, 2));
    }

    #[test]
    fn all_that_is_wrong_is_named() {
        let mut found = Violations::default();
        let resources = Resources {
            memory: Some("much".into()),
            cpu_request: Some("x".into()),
            cpu_limit: Some("y".into()),
            ..Resources::default()
        };
        assert_eq!(read(&resources, &mut found), None);
        assert_eq!(found.iter().count(), 3, "{found}");
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_field_that_says_it() {
        let limits = |cpu: u32| ResourceLimits { cpu: Some(Cpu::Cores(cpu)), memory: Some("1Gi".into()) };
        let reserved = |memory: &str| ResourceRequests { cpu: None, memory: Some(memory.into()) };
        let former =
            Resources { cpu_request: Some("4".into()), limits: Some(limits(2)), ..Resources::default() };
        let less =
            Resources { requests: Some(reserved("512Mi")), limits: Some(limits(2)), ..Resources::default() };
        for (resources, expected) in [
            (former, "spec.gateway.resources.limits.cpu: 2 is less than the CPU that is reserved, 4"),
            (less, "spec.gateway.resources.requests.memory: 512Mi is not the limit, 1Gi"),
        ] {
            let mut found = Violations::default();
            read(&resources, &mut found);
            assert!(found.to_string().contains(expected), "{found}");
        }
        let equal =
            Resources { requests: Some(reserved("1024Mi")), limits: Some(limits(2)), ..Resources::default() };
        let mut found = Violations::default();
        assert!(read(&equal, &mut found).is_some() && found.iter().count() == 0, "{found}");
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
