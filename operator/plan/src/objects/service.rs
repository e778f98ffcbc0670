//! The headless Service: a stable name for each gateway, and where metrics are scraped.

use crate::{
    identity::Identity,
    names::{ADMIN_PORT, ADMIN_PORT_NAME, GATEWAY},
};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// The Service. Gateways that are not ready have a name too: their metrics are wanted most.
pub(crate) fn service(identity: &Identity) -> Service {
    Service {
        metadata: identity.metadata(&identity.names.gateway(), GATEWAY),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".into()),
            publish_not_ready_addresses: Some(true),
            selector: Some(identity.names.selector(GATEWAY)),
            ports: Some(vec![ServicePort {
                name: Some(ADMIN_PORT_NAME.into()),
                port: ADMIN_PORT,
                protocol: Some("TCP".into()),
                target_port: Some(IntOrString::String(ADMIN_PORT_NAME.into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
