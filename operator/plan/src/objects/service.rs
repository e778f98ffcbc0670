//! The headless Service: a stable name for each gateway, and where metrics are scraped. And the Service that OTLP clients send to.

use crate::{
    identity::Identity,
    names::{ADMIN_PORT, ADMIN_PORT_NAME, GATEWAY, OTLP_GRPC, OTLP_HTTP},
    otlp_service::OtlpService,
};
use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
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

/// The Service of an edge, or of gateways that accept OTLP. Only pods that are ready are behind it. `appProtocol` tells proxies and load balancers
/// what they forward; with TLS
/// it is `https` for both, since they do not see more.
pub(crate) fn otlp_service(identity: &Identity, service: &OtlpService) -> Service {
    let OtlpService { name, component, asked, ports: [grpc, http], has_tls } = service;
    let mut metadata = identity.metadata(name, component);
    let theirs = asked.labels.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    metadata.labels.get_or_insert_default().extend(theirs);
    let annotations = asked.annotations.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    let port = |(name, number, protocol): (&str, u32, &str)| ServicePort {
        name: Some(name.into()),
        port: i32::try_from(number).unwrap_or(i32::MAX),
        protocol: Some("TCP".into()),
        app_protocol: Some(if *has_tls { "https" } else { protocol }.into()),
        target_port: Some(IntOrString::String(name.into())),
        ..ServicePort::default()
    };
    let ports =
        [grpc.map(|number| (OTLP_GRPC, number, "grpc")), http.map(|number| (OTLP_HTTP, number, "http"))];
    Service {
        metadata: ObjectMeta {
            annotations: (!asked.annotations.is_empty()).then(|| annotations.collect()),
            ..metadata
        },
        spec: Some(ServiceSpec {
            type_: Some(asked.kind.name().into()),
            load_balancer_class: asked.load_balancer_class.clone(),
            selector: Some(identity.names.selector(component)),
            ports: Some(ports.into_iter().flatten().map(port).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
