//! What the operator asks an API server, in the words of Kubernetes' rules; and everything that was asked on this thread.

use hyper::{Method, Uri};
use std::{cell::RefCell, collections::BTreeSet};

thread_local! {
    /// A test has a thread of its own, with the server and the operator on it.
    static ASKED: RefCell<BTreeSet<Right>> = const { RefCell::new(BTreeSet::new()) };
}

/// A right that a request takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Empty for what was there before groups.
    pub group: String,
    /// `statefulsets`, `tracepipelines/status`
    pub resource: String,
    pub verb: String,
}

impl Right {
    pub fn new(group: &str, resource: &str, verb: &str) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), verb: verb.to_owned() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub right: Right,
    /// None for all of them, and for what is in none.
    pub namespace: Option<String>,
    pub labels: String,
    /// Whether the answer has nothing of an object but its metadata.
    pub is_metadata: bool,
}

impl Request {
    /// `None` for what is no object: who may ask for anything may ask for the version.
    pub fn of(method: &Method, uri: &Uri, accept: &str) -> Option<Self> {
        let parts: Vec<&str> = uri.path().split('/').skip(1).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let resource = match rest {
            [plural] | [plural, _] => (*plural).to_owned(),
            [plural, _, subresource] => format!("{plural}/{subresource}"),
            _ => return None,
        };
        let word = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .into_iter()
                .find_map(|(found, value)| (found == name).then(|| decoded(value)))
                .unwrap_or_default()
        };
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if rest.len() == 1 => "deletecollection",
            Method::DELETE => "delete",
            _ if word("watch") == "true" => "watch",
            _ if rest.len() == 1 => "list",
            _ => "get",
        };
        Some(Self {
            right: Right::new(group, &resource, verb),
            namespace,
            labels: word("labelSelector"),
            is_metadata: accept.contains("as=PartialObjectMetadata"),
        })
    }
}

/// What selectors are made of.
fn decoded(text: &str) -> String {
    text.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/")
}

/// Notes that it was asked for.
pub fn note(right: Right) {
    ASKED.with_borrow_mut(|asked| asked.insert(right));
}

/// All that was asked for on this thread.
pub fn on_this_thread() -> BTreeSet<Right> {
    ASKED.with_borrow(Clone::clone)
}

#[test]
fn a_request_takes_the_right_that_kubernetes_rules_name() {
    for (method, uri, expected) in [
        (
            Method::GET,
            "/api/v1/secrets?labelSelector=a%2Fb%3Dc%2Cd%3De&limit=5",
            ("", "secrets", "list", "a/b=c,d=e"),
        ),
        (Method::GET, "/api/v1/namespaces/n/pods?&watch=true", ("", "pods", "watch", "")),
        (Method::GET, "/api/v1/namespaces/n/pods/p", ("", "pods", "get", "")),
        (Method::PATCH, "/api/v1/namespaces/n/pods/p/resize?", ("", "pods/resize", "patch", "")),
        (
            Method::POST,
            "/apis/events.k8s.io/v1/namespaces/n/events?",
            ("events.k8s.io", "events", "create", ""),
        ),
        (Method::DELETE, "/apis/batch/v1/namespaces/n/jobs/j", ("batch", "jobs", "delete", "")),
        (Method::DELETE, "/apis/batch/v1/namespaces/n/jobs", ("batch", "jobs", "deletecollection", "")),
    ] {
        let request = Request::of(&method, &uri.parse().unwrap(), "application/json").unwrap();
        let (group, resource, verb, labels) = expected;
        assert_eq!(
            (request.right, request.labels.as_str()),
            (Right::new(group, resource, verb), labels),
            "{uri}"
        );
        assert_eq!(request.namespace.is_some(), uri.contains("namespaces"), "{uri}");
    }
    assert_eq!(Request::of(&Method::GET, &"/version".parse().unwrap(), ""), None);
}
