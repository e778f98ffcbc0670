//! What gateways, Jobs and the edge have in common: restricted security, the config, the Secrets.

use crate::{
    identity::{Identity, secrets::Mounted, tokens::MountedToken},
    names::{
        ADMIN_PORT, ADMIN_PORT_NAME, CONFIG_FILE, CONFIG_FOLDER, OTLP_GRPC, OTLP_GRPC_PORT, OTLP_HTTP,
        OTLP_HTTP_PORT, TOKEN_FILE, secret_folder, secret_volume, token_folder, token_volume,
    },
    otlp_service::OtlpService,
};
use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, ContainerPort, KeyToPath, PodSecurityContext,
        PodSpec, ProjectedVolumeSource, ResourceRequirements, SeccompProfile, SecretVolumeSource,
        SecurityContext, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use sluice_crds::UsedKey;
use sluice_gateway_config::ByteSize;

/// The user and group of the image. Any other user can read all that is in it.
const USER: i64 = 65_532;

/// Readable only by the group, which is the pod's `fsGroup`: files of a Secret belong to root.
const SECRET_MODE: i32 = 0o440;

pub(super) const CONFIG_VOLUME: &str = "config";

/// A pod of this pipeline, scheduled as the spec says: the container with config and Secrets mounted. It follows restricted pod security
/// unless the spec says otherwise.
pub(crate) fn pod(identity: &Identity, config_map: &str, container: Container) -> PodSpec {
    let mut mounts = vec![mount(CONFIG_VOLUME, CONFIG_FOLDER)];
    let folders = identity.secrets.iter();
    mounts.extend(folders.map(|secret| mount(secret_volume(secret.of), &secret_folder(secret.of))));
    let folders = identity.tokens.iter();
    mounts.extend(folders.map(|token| mount(token_volume(token.of), &token_folder(token.of))));
    mounts.extend(container.volume_mounts.unwrap_or_default());
    let pod = identity.added.settings.within(PodSpec {
        service_account_name: Some(identity.account.clone()),
        automount_service_account_token: Some(false),
        // Services of the namespace would come in as hundreds of variables that nothing here reads.
        enable_service_links: Some(false),
        security_context: Some(pod_security()),
        containers: vec![Container {
            image: Some(identity.image.clone()),
            image_pull_policy: Some(identity.image_pull_policy.into()),
            security_context: Some(container_security()),
            // The end of the log is the reason that people see, without access to the log.
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            volume_mounts: Some(mounts),
            ..container
        }],
        volumes: Some(volumes(identity, config_map)),
        ..PodSpec::default()
    });
    identity.added.place(pod)
}

/// The path of the config in the container.
pub(crate) fn config_path() -> String {
    format!("{CONFIG_FOLDER}/{CONFIG_FILE}")
}

/// Memory is requested and limited alike, in whole Mi: what a gateway may use is its own, whatever its neighbours do.
pub(crate) fn resources(
    memory: ByteSize,
    cpu_request: &str,
    cpu_limit: Option<&str>,
) -> ResourceRequirements {
    let memory = Quantity(format!("{}Mi", memory.mib_ceil()));
    let limit = cpu_limit.map(|cpu| ("cpu".to_owned(), Quantity(cpu.to_owned())));
    ResourceRequirements {
        requests: Some(
            [("cpu".to_owned(), Quantity(cpu_request.to_owned())), ("memory".to_owned(), memory.clone())]
                .into(),
        ),
        limits: Some(limit.into_iter().chain([("memory".to_owned(), memory)]).collect()),
        ..ResourceRequirements::default()
    }
}

/// The port of metrics and probes. At gateways it is the first one, which the API server's proxy takes for a path without a port. At edges it is the
/// last, as it always was: another order would replace their pods.
pub(crate) fn admin_port() -> ContainerPort {
    port(ADMIN_PORT_NAME, ADMIN_PORT)
}

/// The ports of OTLP behind a Service.
pub(crate) fn otlp_ports(service: &OtlpService) -> Vec<ContainerPort> {
    let [grpc, http] = service.ports;
    let all = [grpc.map(|_| (OTLP_GRPC, OTLP_GRPC_PORT)), http.map(|_| (OTLP_HTTP, OTLP_HTTP_PORT))];
    all.into_iter().flatten().map(|(name, number)| port(name, number)).collect()
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

pub(crate) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.into(),
        mount_path: path.into(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

fn volumes(identity: &Identity, config_map: &str) -> Vec<Volume> {
    let config = Volume {
        name: CONFIG_VOLUME.into(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map.into(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let secrets = identity.secrets.iter().map(volume_of_secret);
    [config].into_iter().chain(secrets).chain(identity.tokens.iter().map(volume_of_token)).collect()
}

fn volume_of_secret(mounted: &Mounted) -> Volume {
    Volume {
        name: secret_volume(mounted.of).into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(mounted.secret.clone()),
            default_mode: Some(SECRET_MODE),
            // Whatever else is in the Secret stays there.
            items: Some(mounted.keys.iter().map(item).collect()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A token for this audience and for nothing else. The account's own token, which the API server takes, is not mounted.
fn volume_of_token(token: &MountedToken) -> Volume {
    let projected = ServiceAccountTokenProjection {
        audience: Some(token.audience.clone()),
        expiration_seconds: Some(token.expiration_seconds),
        path: TOKEN_FILE.into(),
    };
    Volume {
        name: token_volume(token.of).into(),
        projected: Some(ProjectedVolumeSource {
            default_mode: Some(SECRET_MODE),
            sources: Some(vec![VolumeProjection {
                service_account_token: Some(projected),
                ..VolumeProjection::default()
            }]),
        }),
        ..Volume::default()
    }
}

/// The file has the name of the default key: the config is the same whatever key the value comes from.
fn item(key: &UsedKey) -> KeyToPath {
    KeyToPath { key: key.key.clone(), path: key.of.default_key().into(), ..KeyToPath::default() }
}

fn pod_security() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        // A full queue volume is not walked through at each start.
        fs_group_change_policy: Some("OnRootMismatch".into()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
        ..PodSecurityContext::default()
    }
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}
