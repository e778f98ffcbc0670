//! The shop's services and their resources.
//!
//! Job: 24 services with four pods each, 14 resource attributes as the Kubernetes and cloud detectors of the SDKs set
//! them. Place in the flow: encoded once by `rich::Shop::new`, copied into every `ResourceSpans`.

use super::super::dice::Dice;
use super::super::wire::Wire;
use super::super::{Run, field};
use super::conventions::Text;

const NAMES: [&str; 24] = [
    "frontend",
    "checkout",
    "cart",
    "catalogue",
    "payment",
    "shipping",
    "currency",
    "email",
    "recommend",
    "advert",
    "search",
    "inventory",
    "pricing",
    "identity",
    "session",
    "review",
    "invoice",
    "ledger",
    "fraud",
    "notify",
    "warehouse",
    "returns",
    "loyalty",
    "gateway",
];

const LANGUAGES: [(&str, &str); 4] =
    [("java", "1.55.0"), ("go", "1.38.0"), ("python", "1.37.0"), ("nodejs", "2.1.0")];

/// Pods of one service.
const INSTANCES: u64 = 4;

/// Different resources: 24 services with four pods each.
pub(super) const COUNT: u64 = 24 * INSTANCES;

/// Instrumentation scope of every span.
pub(super) const SCOPE: &str = "io.opentelemetry.instrumentation";

/// The fields of the `Resource` message of pod `index`, which is below [`COUNT`].
pub(super) fn encoded(run: Run, index: u64) -> Vec<u8> {
    let mut dice = Dice::new(run.id, index);
    let name = NAMES[usize::try_from(index % 24).unwrap_or(0)];
    let (language, sdk_version) = LANGUAGES[usize::try_from(index % 4).unwrap_or(0)];
    let mut instance = Text::default();
    instance.uuid(&mut dice);
    let pod = format!("{name}-{:010x}-{:05x}", dice.below(1 << 40), dice.below(1 << 20));
    let node = format!("ip-10-0-{}-{}.compute.internal", dice.below(16), dice.below(256));
    let version = format!("1.{}.{}", dice.below(30), dice.below(10));
    let mut wire = Wire::default();
    for (key, value) in [
        ("service.name", name),
        ("service.namespace", "shop"),
        ("service.version", &version),
        ("service.instance.id", instance.as_str()),
        ("k8s.namespace.name", "shop"),
        ("k8s.deployment.name", name),
        ("k8s.pod.name", &pod),
        ("k8s.node.name", &node),
        ("host.name", &node),
        ("cloud.provider", "aws"),
        ("cloud.region", "eu-central-1"),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.language", language),
        ("telemetry.sdk.version", sdk_version),
    ] {
        wire.text_attribute(field::RESOURCE_ATTRIBUTES, key, value);
    }
    wire.as_bytes().to_vec()
}
