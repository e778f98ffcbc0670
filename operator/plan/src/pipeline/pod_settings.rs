//! What the spec sets within pods, checked: variables, volumes, name resolution, user and security contexts. Gateways and Jobs get it
//! alike, since a Job reaches the same servers from the same image.
//!
//! Nothing that is not set is in a pod, so that a pipeline without these fields has the pods that it had before there were such.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EnvVar, HostAlias, PodDNSConfig, PodSecurityContext, PodSpec, SecurityContext,
    Volume, VolumeMount,
};
use sluice_crds::{DnsPolicy, PodTemplate, UserAndGroup};
use sluice_gateway_config::Violations;
use std::net::IpAddr;

/// Characters of the name of a volume.
const VOLUME_CHARS_MAX: usize = 63;

/// Characters of a name that stands in `/etc/hosts`.
const HOST_CHARS_MAX: usize = 253;

/// What is set within pods; by default nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodSettings {
    env: Vec<EnvVar>,
    volumes: Vec<Volume>,
    mounts: Vec<VolumeMount>,
    dns_policy: Option<&'static str>,
    dns_config: Option<PodDNSConfig>,
    host_aliases: Vec<HostAlias>,
    user_and_group: UserAndGroup,
    security: PodSecurityContext,
    container_security: SecurityContext,
}

impl PodSettings {
    /// Reads what the spec says, or adds what is wrong with it.
    pub fn of(template: &PodTemplate, found: &mut Violations) -> Self {
        check(template, found);
        Self {
            env: template.env.iter().cloned().map(without_empty_value).collect(),
            volumes: template.volumes.clone(),
            mounts: template.volume_mounts.iter().cloned().map(without_defaults).collect(),
            dns_policy: template.dns_policy.map(|policy| match policy {
                DnsPolicy::ClusterFirst => "ClusterFirst",
                DnsPolicy::Default => "Default",
                DnsPolicy::None => "None",
            }),
            dns_config: template.dns_config.clone(),
            host_aliases: template.host_aliases.clone(),
            user_and_group: template.user_and_group.unwrap_or_default(),
            security: template.security_context.clone().unwrap_or_default(),
            container_security: template.container_security_context.clone().unwrap_or_default(),
        }
    }

    /// The pod, and its one container, with that behind what the operator sets.
    pub fn within(&self, pod: PodSpec) -> PodSpec {
        let containers = pod.containers.into_iter().map(|container| self.within_container(container));
        let dns_policy = self.dns_policy.map(str::to_owned);
        PodSpec {
            containers: containers.collect(),
            volumes: with(pod.volumes, &self.volumes),
            dns_policy: dns_policy.or(pod.dns_policy),
            dns_config: self.dns_config.clone().or(pod.dns_config),
            host_aliases: with(pod.host_aliases, &self.host_aliases),
            security_context: pod.security_context.map(|ours| self.pod_security(ours)),
            ..pod
        }
    }

    fn within_container(&self, container: Container) -> Container {
        Container {
            env: with(container.env, &self.env),
            volume_mounts: with(container.volume_mounts, &self.mounts),
            security_context: container.security_context.map(|ours| self.container_security(ours)),
            ..container
        }
    }

    /// The spec's fields in the place of ours. If the spec names a user, the groups follow it. The kubelet gives the files of a volume to
    /// another group only if the volume's group changes. With the old group, the new user could not write to the old user's files.
    fn pod_security(&self, ours: PodSecurityContext) -> PodSecurityContext {
        let theirs = self.security.clone();
        let user = theirs.run_as_user;
        let is_fixed = self.user_and_group == UserAndGroup::Fixed;
        let group = |ours: Option<i64>| user.or(ours.filter(|_| is_fixed));
        PodSecurityContext {
            run_as_non_root: theirs.run_as_non_root.or(ours.run_as_non_root),
            run_as_user: group(ours.run_as_user),
            run_as_group: theirs.run_as_group.or_else(|| group(ours.run_as_group)),
            fs_group: theirs.fs_group.or_else(|| group(ours.fs_group)),
            fs_group_change_policy: theirs.fs_group_change_policy.or(ours.fs_group_change_policy),
            seccomp_profile: theirs.seccomp_profile.or(ours.seccomp_profile),
            ..theirs
        }
    }

    fn container_security(&self, ours: SecurityContext) -> SecurityContext {
        let theirs = self.container_security.clone();
        let dropped = ours.capabilities.and_then(|capabilities| capabilities.drop);
        let capabilities = theirs.capabilities.unwrap_or_default();
        SecurityContext {
            allow_privilege_escalation: theirs.allow_privilege_escalation.or(ours.allow_privilege_escalation),
            read_only_root_filesystem: theirs.read_only_root_filesystem.or(ours.read_only_root_filesystem),
            capabilities: Some(Capabilities { drop: capabilities.drop.or(dropped), ..capabilities }),
            ..theirs
        }
    }
}

/// A list with more behind it; one that is not there stays so when there is no more.
fn with<T: Clone>(list: Option<Vec<T>>, more: &[T]) -> Option<Vec<T>> {
    if more.is_empty() {
        return list;
    }
    Some(list.into_iter().flatten().chain(more.iter().cloned()).collect())
}

/// The API server leaves out an empty value, and what it stored would never be what is wanted.
fn without_empty_value(variable: EnvVar) -> EnvVar {
    EnvVar { value: variable.value.filter(|value| !value.is_empty()), ..variable }
}

/// The API server leaves out values that are the default.
fn without_defaults(mount: VolumeMount) -> VolumeMount {
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    VolumeMount {
        read_only: mount.read_only.filter(|is_read_only| *is_read_only),
        sub_path: said(mount.sub_path),
        sub_path_expr: said(mount.sub_path_expr),
        ..mount
    }
}

fn check(template: &PodTemplate, found: &mut Violations) {
    let at = |field: &str| format!("spec.gateway.podTemplate.{field}");
    for EnvVar { name, value_from, .. } in &template.env {
        found.add_if(!is_variable(name), &at("env"), || {
            format!("{name:?} is not the name of a variable: letters, digits, '_', '-' and '.', and no digit at the beginning")
        });
        let sources = value_from.as_ref().map_or(1, |from| {
            usize::from(from.config_map_key_ref.is_some())
                + usize::from(from.field_ref.is_some())
                + usize::from(from.resource_field_ref.is_some())
                + usize::from(from.secret_key_ref.is_some())
        });
        found.add_if(sources != 1, &at("env"), || {
            format!("valueFrom of {name:?} must have exactly one of configMapKeyRef, fieldRef, resourceFieldRef and secretKeyRef")
        });
    }
    for Volume { name, .. } in &template.volumes {
        found.add_if(!is_label(name, VOLUME_CHARS_MAX), &at("volumes"), || {
            format!("{name:?} is not the name of a volume: at most {VOLUME_CHARS_MAX} of a-z, 0-9 and '-', and no '-' at an end")
        });
    }
    let servers = template.dns_config.iter().flat_map(|config| config.nameservers.iter().flatten());
    for server in servers.filter(|server| server.parse::<IpAddr>().is_err()) {
        found.add(at("dnsConfig.nameservers"), format!("{server:?} is not an IP address"));
    }
    for HostAlias { ip, hostnames } in &template.host_aliases {
        found.add_if(ip.parse::<IpAddr>().is_err(), &at("hostAliases"), || {
            format!("{ip:?} is not an IP address")
        });
        for name in hostnames.iter().flatten().filter(|name| !is_host(name)) {
            found.add(
                at("hostAliases"),
                format!("{name:?} is not a host name: parts of a-z, 0-9 and '-' with '.' between them"),
            );
        }
    }
}

fn is_variable(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(legal) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn is_host(text: &str) -> bool {
    text.len() <= HOST_CHARS_MAX && text.split('.').all(|part| is_label(part, VOLUME_CHARS_MAX))
}

fn is_label(text: &str, chars_max: usize) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=chars_max).contains(&text.len())
        && text.bytes().all(legal)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the operator sets.
    fn ours() -> PodSecurityContext {
        PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(65_532),
            run_as_group: Some(65_532),
            fs_group: Some(65_532),
            fs_group_change_policy: Some("OnRootMismatch".into()),
            ..PodSecurityContext::default()
        }
    }

    fn ids(user_and_group: UserAndGroup, security: PodSecurityContext) -> [Option<i64>; 3] {
        let settings = PodSettings { user_and_group, security, ..PodSettings::default() };
        let context = settings.pod_security(ours());
        assert_eq!(context.run_as_non_root, Some(true));
        assert_eq!(context.fs_group_change_policy.as_deref(), Some("OnRootMismatch"));
        [context.run_as_user, context.run_as_group, context.fs_group]
    }

    #[test]
    fn groups_follow_the_user_unless_the_spec_names_them() {
        let none = PodSecurityContext::default;
        let user = |user| PodSecurityContext { run_as_user: Some(user), ..none() };
        let group = |group| PodSecurityContext { fs_group: Some(group), ..none() };
        let both = PodSecurityContext { fs_group: Some(7), ..user(1_000) };
        for (who, security, expected) in [
            (UserAndGroup::Fixed, none(), [Some(65_532); 3]),
            (UserAndGroup::Fixed, user(1_000), [Some(1_000); 3]),
            (UserAndGroup::Fixed, group(7), [Some(65_532), Some(65_532), Some(7)]),
            (UserAndGroup::Fixed, both, [Some(1_000), Some(1_000), Some(7)]),
            (UserAndGroup::Assigned, none(), [None; 3]),
            (UserAndGroup::Assigned, group(7), [None, None, Some(7)]),
        ] {
            let words = format!("{who:?} {security:?}");
            assert_eq!(ids(who, security), expected, "{words}");
        }
    }

    #[test]
    fn capabilities_that_are_added_leave_all_others_dropped() {
        let added = Capabilities { add: Some(vec!["SYS_PTRACE".into()]), ..Capabilities::default() };
        let container_security = SecurityContext { capabilities: Some(added), ..SecurityContext::default() };
        let settings = PodSettings { container_security, ..PodSettings::default() };
        let drop = Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() });
        let ours = SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: drop,
            ..SecurityContext::default()
        };
        let found = settings.container_security(ours);
        let capabilities = found.capabilities.unwrap();
        assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
        assert_eq!(capabilities.add, Some(vec!["SYS_PTRACE".to_owned()]));
        assert_eq!(found.allow_privilege_escalation, Some(false));
    }

    #[test]
    fn what_the_server_would_leave_out_is_left_out() {
        let variable = EnvVar { name: "A".into(), value: Some(String::new()), ..EnvVar::default() };
        assert_eq!(without_empty_value(variable).value, None);
        let mount =
            VolumeMount { read_only: Some(false), sub_path: Some(String::new()), ..VolumeMount::default() };
        assert_eq!(without_defaults(mount), VolumeMount::default());
    }

    #[test]
    fn names_are_spelt_as_kubernetes_wants_them() {
        for (name, is_one) in [("A", true), ("_a.b-C1", true), ("", false), ("1a", false), ("a=b", false)] {
            assert_eq!(is_variable(name), is_one, "{name}");
        }
        for (name, is_one) in
            [("kafka-0.kafka", true), ("a", true), ("A", false), ("a..b", false), ("-a", false)]
        {
            assert_eq!(is_host(name), is_one, "{name}");
        }
    }
}
