//! Which identity of AWS this process has. The webhooks of EKS write it into the environment of a pod when the pod is made.
//!
//! | identity | variables |
//! | --- | --- |
//! | IRSA (a role for a ServiceAccount) | `AWS_ROLE_ARN`, `AWS_WEB_IDENTITY_TOKEN_FILE`; `AWS_REGION`, `AWS_ROLE_SESSION_NAME` and `AWS_ENDPOINT_URL_STS` if they are set |
//! | EKS Pod Identity | `AWS_CONTAINER_CREDENTIALS_FULL_URI`, `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE` |
//!
//! With both, IRSA is used, as by AWS's own libraries. The role of a node (instance metadata) is not used: all pods of a node would have it.

use crate::{
    Error,
    http_client::{self, Server},
};
use http::Uri;
use sluice_gateway_config::security::is_aws_region;
use std::net::IpAddr;

/// Where the agent of EKS Pod Identity answers, and that of ECS, over IPv4 and IPv6. These addresses do not leave the node.
const AGENTS: [&str; 3] = ["169.254.170.23", "169.254.170.2", "[fd00:ec2::23]"];

/// The name of a session of a role where no variable has one. AWS shows it in its records.
const SESSION: &str = "sluice";

/// An identity.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PodIdentity {
    /// A token of the ServiceAccount, which AWS STS takes for a role.
    WebIdentity { endpoint: String, role: String, session: String, token_file: String },
    /// A token of the ServiceAccount, which an agent on the node takes.
    Agent { endpoint: String, token_file: String },
}

impl PodIdentity {
    /// That of this process; `region` is asked where its environment names none.
    ///
    /// # Errors
    /// [`Error::NoIdentity`] or [`Error::Endpoint`].
    pub fn of_process(region: &str) -> Result<Self, Error> {
        Self::of(|name| std::env::var(name).ok(), region)
    }

    fn of(variable: impl Fn(&str) -> Option<String>, region: &str) -> Result<Self, Error> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        match (set("AWS_ROLE_ARN"), set("AWS_WEB_IDENTITY_TOKEN_FILE")) {
            (Some(role), Some(token_file)) => {
                let near = set("AWS_REGION").filter(|near| is_aws_region(near));
                let endpoint =
                    set("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| sts(near.as_deref().unwrap_or(region)));
                let session = set("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| SESSION.to_owned());
                check(Server::AwsSts, &endpoint, &[])?;
                return Ok(Self::WebIdentity { endpoint, role, session, token_file });
            }
            (Some(_), None) if set("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_none() => {
                return Err(none("AWS_ROLE_ARN is set, AWS_WEB_IDENTITY_TOKEN_FILE is not"));
            }
            (None, Some(_)) if set("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_none() => {
                return Err(none("AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is not"));
            }
            _ => {}
        }
        match (set("AWS_CONTAINER_CREDENTIALS_FULL_URI"), set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
            (Some(endpoint), Some(token_file)) => {
                check(Server::EksPodIdentity, &endpoint, &AGENTS)?;
                Ok(Self::Agent { endpoint, token_file })
            }
            (Some(_), None) => Err(none(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI is set, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE is not",
            )),
            (None, _) => Err(none(
                "neither AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set",
            )),
        }
    }
}

fn none(reason: &str) -> Error {
    Error::NoIdentity { reason: reason.to_owned() }
}

/// AWS STS of a region.
fn sts(region: &str) -> String {
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://sts.{region}.amazonaws.com{china}/")
}

/// A token is sent to the endpoint: over TLS, or without leaving the node.
fn check(server: Server, endpoint: &str, on_node: &[&str]) -> Result<(), Error> {
    let url = http_client::url(server, endpoint)?;
    if url.scheme_str() == Some("https") || is_on_node(&url, on_node) {
        return Ok(());
    }
    let reason = "a token is sent to it, and it is neither https:// nor on this node".to_owned();
    Err(Error::Endpoint { server, endpoint: endpoint.to_owned(), reason })
}

fn is_on_node(url: &Uri, on_node: &[&str]) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    on_node.contains(&host) || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &[(&str, &str)] =
        &[("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"), ("AWS_WEB_IDENTITY_TOKEN_FILE", "/irsa")];
    const AGENT: &[(&str, &str)] = &[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/eks"),
    ];

    fn of(variables: &[&[(&str, &str)]]) -> Result<PodIdentity, String> {
        let all = variables.concat();
        let variable = |name: &str| {
            let mut found = all.iter().rev().filter(|(known, _)| *known == name);
            found.next().map(|(_, value)| (*value).to_owned())
        };
        PodIdentity::of(variable, "eu-central-1").map_err(|error| error.to_string())
    }

    fn web(endpoint: &str, session: &str) -> PodIdentity {
        PodIdentity::WebIdentity {
            endpoint: endpoint.into(),
            role: "arn:aws:iam::1:role/r".into(),
            session: session.into(),
            token_file: "/irsa".into(),
        }
    }

    #[test]
    fn irsa_asks_sts_of_the_pods_region_else_of_the_brokers() {
        let default = web("https://sts.eu-central-1.amazonaws.com/", "sluice");
        assert_eq!(of(&[WEB]), Ok(default));
        assert_eq!(of(&[WEB, &[("AWS_REGION", "not a region")]]), of(&[WEB]));
        let china = web("https://sts.cn-north-1.amazonaws.com.cn/", "sluice");
        assert_eq!(of(&[WEB, AGENT, &[("AWS_REGION", "cn-north-1")]]), Ok(china));
        let own = [("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1"), ("AWS_ROLE_SESSION_NAME", "traces")];
        assert_eq!(of(&[WEB, &own]), Ok(web("http://127.0.0.1:1", "traces")));
    }

    #[test]
    fn the_agent_of_the_node_is_asked_where_there_is_no_role_in_the_environment() {
        for endpoint in ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials"] {
            let found = of(&[AGENT, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint)]]);
            let expected = PodIdentity::Agent { endpoint: endpoint.into(), token_file: "/eks".into() };
            assert_eq!(found, Ok(expected));
        }
        assert_eq!(of(&[AGENT, &[("AWS_ROLE_ARN", "r")]]), of(&[AGENT]));
    }

    #[test]
    fn without_an_identity_it_is_told_which_variable_is_missing() {
        for (variables, expected) in [
            (&[][..], "neither AWS_ROLE_ARN with"),
            (&WEB[..1], "AWS_ROLE_ARN is set, AWS_WEB_IDENTITY_TOKEN_FILE is not"),
            (&WEB[1..], "AWS_WEB_IDENTITY_TOKEN_FILE is set, AWS_ROLE_ARN is not"),
            (&AGENT[..1], "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE is not"),
            (&[("AWS_ROLE_ARN", ""), ("AWS_WEB_IDENTITY_TOKEN_FILE", "")][..], "neither"),
        ] {
            let said = of(&[variables]).unwrap_err();
            assert!(said.contains(expected) && said.contains("awsMskIam.secretRef"), "{said}");
        }
    }

    #[test]
    fn a_token_leaves_the_node_over_tls_only() {
        for endpoint in ["http://sts.example.com", "http://169.254.170.23/", "http://10.0.0.1/", "ftp://a"] {
            let said = of(&[WEB, &[("AWS_ENDPOINT_URL_STS", endpoint)]]).unwrap_err();
            assert!(said.contains("AWS STS endpoint"), "{said}");
        }
        for endpoint in ["http://example.com/", "http://169.254.169.254/", "169.254.170.23"] {
            let said = of(&[AGENT, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint)]]).unwrap_err();
            assert!(said.contains("EKS Pod Identity agent"), "{said}");
        }
    }
}
