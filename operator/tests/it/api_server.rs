//! An API server over real HTTP that keeps objects in memory. It does only what these tests need:
//!
//! - A patch of any kind is a deep merge, in which a null removes a field. The resource version rises only if the object changes.
//! - A server-side apply also removes the fields that its manager applied before, applies no more, and no other manager applied.
//! - It knows the owner of the number of replicas, and answers with conflicts (`replicas.rs`).
//! - A deleted object stays until its last finalizer is removed.
//! - A watch never gets an event.
//! - Tests script all other refusals.

use crate::{asked, replicas};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::net::TcpListener;

/// An answer, or one whose body never ends.
type Answer = Either<Full<Bytes>, StreamBody<stream::Pending<Result<Frame<Bytes>, Infallible>>>>;

/// A request that may change something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub method: String,
    /// `configmaps/prod-config-0123456789`, `tracepipelines/prod/status`
    pub what: String,
    pub field_manager: String,
    /// The propagation policy of a deletion; empty without one.
    pub propagation: String,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// The last apply of each field manager, for each object.
    applied: BTreeMap<String, BTreeMap<String, Value>>,
    version: u64,
    writes: Vec<Write>,
    events: Vec<Value>,
    /// Objects that were read by name.
    reads: Vec<String>,
    /// All requests for objects.
    asked: Vec<asked::Request>,
    refusals: Vec<(String, u16, Value)>,
    /// Writes that still reach the server; `None` for all.
    writes_left: Option<u32>,
    /// Fields of a status that the CRD does not have.
    dropped: Vec<&'static str>,
}

/// The server; it ends with the test.
#[derive(Clone)]
pub struct ApiServer {
    pub url: String,
    state: Arc<Mutex<State>>,
}

impl ApiServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server =
            Self { url: format!("http://{}", listener.local_addr().unwrap()), state: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let serving = serving.clone();
                let answer = service_fn(move |request| {
                    let serving = serving.clone();
                    async move { Ok::<_, Infallible>(serving.answer(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        server
    }

    /// Only this many more writes reach the server. It answers the later ones with 503.
    pub fn cut_off_after(&self, writes: u32) {
        self.state.lock().unwrap().writes_left = Some(writes);
    }

    /// All writes reach the server again.
    pub fn go_on(&self) {
        self.state.lock().unwrap().writes_left = None;
    }

    /// From now on, the server answers with this status if path and method of a request contain `what`.
    pub fn refuse(&self, what: &str, code: u16) {
        self.refuse_saying(what, code, failure(code, "scripted"));
    }

    /// As [`Self::refuse`], with this body.
    pub fn refuse_saying(&self, what: &str, code: u16, body: Value) {
        self.state.lock().unwrap().refusals.push((what.to_owned(), code, body));
    }

    /// Ends all refusals.
    pub fn relent(&self) {
        self.state.lock().unwrap().refusals.clear();
    }

    /// From now on, the server drops this field of each status, as with an older CRD.
    pub fn drop_from_status(&self, field: &'static str) {
        self.state.lock().unwrap().dropped.push(field);
    }

    /// Stores an object. It is not counted as a write.
    pub fn put(&self, what: &str, object: Value) {
        let mut state = self.state.lock().unwrap();
        state.store(what, object);
    }

    /// Removes an object.
    pub fn remove(&self, what: &str) {
        let mut state = self.state.lock().unwrap();
        state.objects.remove(what);
        state.applied.remove(what);
    }

    /// Changes an object as another client would.
    pub fn change(&self, what: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state.lock().unwrap();
        let mut object = state.objects[what].clone();
        change(&mut object);
        state.store(what, object);
    }

    /// Sets the number of replicas through the scale subresource, as an HPA or `kubectl scale` does.
    pub fn scale_by(&self, manager: &str, what: &str, replicas: u32) {
        let mut state = self.state.lock().unwrap();
        let mut object = state.objects[what].clone();
        for loser in replicas::losers(&object, &replicas.into(), manager) {
            state.lose_replicas(what, &loser);
        }
        let before = object["spec"]["replicas"].clone();
        object["spec"]["replicas"] = replicas.into();
        if before != object["spec"]["replicas"] {
            replicas::note(&mut object, &before, (manager, true));
            state.store(what, object);
        }
    }

    pub fn get(&self, what: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(what).cloned()
    }

    /// All objects of a kind, by plural.
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let of_kind = state.objects.iter().filter(|(what, _)| what.starts_with(&format!("{plural}/")));
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// The write requests since the last call.
    pub fn take_writes(&self) -> Vec<Write> {
        std::mem::take(&mut self.state.lock().unwrap().writes)
    }

    /// The objects that were read by name since the last call.
    pub fn take_reads(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().reads)
    }

    /// All requests for objects since the last call.
    pub fn take_asked(&self) -> Vec<asked::Request> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    /// The events that were published since the last call, also refused ones.
    pub fn take_events(&self) -> Vec<Value> {
        std::mem::take(&mut self.state.lock().unwrap().events)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let header = |name| {
            request.headers().get(name).map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        let is_apply = header(CONTENT_TYPE).starts_with("application/apply-patch");
        let asked = asked::Request::of(&method, &uri, &header(ACCEPT));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let what = what(uri.path());
        let mut state = self.state.lock().unwrap();
        let is_watch = asked.as_ref().is_some_and(|asked| asked.right.verb == "watch");
        state.note(asked, &what);
        let manager =
            uri.query().unwrap_or_default().split('&').find_map(|p| p.strip_prefix("fieldManager="));
        let is_forced = uri.query().unwrap_or_default().split('&').any(|part| part == "force=true");
        let field_manager = manager.unwrap_or_default().replace("%2F", "/");
        if method == Method::POST && what == "events" {
            state.events.push(body.clone());
        }
        if method == Method::GET && what.contains('/') {
            state.reads.push(what.clone());
        }
        if method != Method::GET {
            let field_manager = field_manager.clone();
            let propagation = body["propagationPolicy"].as_str().unwrap_or_default().to_owned();
            let (method, what) = (method.to_string(), what.clone());
            state.writes.push(Write { method, what, field_manager, propagation });
        }
        let full = format!("{what} {method}");
        let scripted = state.refusals.iter().find(|(refused, ..)| full.contains(refused));
        let scripted = scripted.map(|(_, code, body)| (*code, body.clone()));
        let refusal = scripted.or_else(|| state.cuts_off(&method).then(|| (503, failure(503, "scripted"))));
        if is_watch && refusal.is_none() {
            return Response::new(Either::Right(StreamBody::new(stream::pending())));
        }
        let (code, answer) = match (refusal, method) {
            (Some(refusal), _) => refusal,
            (None, Method::GET) if !what.contains('/') => (200, state.listed(&what)),
            (None, Method::GET) => found(state.objects.get(&what).cloned()),
            (None, Method::PATCH) => state.patched(&what, body, (&field_manager, is_apply, is_forced)),
            (None, Method::DELETE) if !state.is_exactly(&what, &body["preconditions"]) => {
                (409, failure(409, "another version"))
            }
            (None, Method::DELETE) if !body["dryRun"].is_null() => found(state.objects.get(&what).cloned()),
            (None, Method::DELETE) if state.is_held(&what) => {
                let mut held = state.objects[&what].clone();
                held["metadata"]["deletionTimestamp"] = Timestamp::now().to_string().into();
                (200, state.store(&what, held))
            }
            (None, Method::DELETE) => {
                state.applied.remove(&what);
                found(state.objects.remove(&what))
            }
            // An event is not stored as an object.
            (None, _) if what == "events" => (201, body),
            (None, _) => (201, state.store(&format!("{what}/{}", text(&body["metadata"]["name"])), body)),
        };
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(answer.to_string()))));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }
}

/// `<plural>[/<name>[/status]]` of a path with or without a namespace.
fn what(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let skipped = if rest.first() == Some(&"namespaces") { 2 } else { 0 };
    rest.get(skipped..).unwrap_or_default().join("/")
}

impl State {
    fn cuts_off(&mut self, method: &Method) -> bool {
        if *method == Method::GET {
            return false;
        }
        let Some(left) = &mut self.writes_left else { return false };
        let is_cut_off = *left == 0;
        *left = left.saturating_sub(1);
        is_cut_off
    }

    /// Records a request and the right that it needs. A server-side apply of an object that does not exist also needs the right to create it.
    fn note(&mut self, asked: Option<asked::Request>, what: &str) {
        let Some(asked) = asked else { return };
        if asked.right.verb == "patch" && what.split('/').count() == 2 && !self.objects.contains_key(what) {
            asked::note(asked::Right { verb: "create".to_owned(), ..asked.right.clone() });
        }
        asked::note(asked.right.clone());
        self.asked.push(asked);
    }

    /// All objects of a kind, without regard to selectors.
    fn listed(&self, plural: &str) -> Value {
        let of_kind = self.objects.iter().filter(|(what, _)| what.starts_with(&format!("{plural}/")));
        let items: Vec<Value> = of_kind.map(|(_, object)| object.clone()).collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items})
    }

    /// Whether an object has the UID and the version that a request names.
    fn is_exactly(&self, what: &str, preconditions: &Value) -> bool {
        let Some(object) = self.objects.get(what) else { return true };
        ["uid", "resourceVersion"]
            .iter()
            .all(|field| preconditions[field].is_null() || preconditions[field] == object["metadata"][field])
    }

    /// Whether an object has a finalizer.
    fn is_held(&self, what: &str) -> bool {
        let finalizers = self.objects.get(what).map(|object| &object["metadata"]["finalizers"]);
        finalizers.and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
    }

    /// The answer to a patch of an object or of a subresource.
    fn patched(
        &mut self,
        what: &str,
        body: Value,
        (manager, is_apply, is_forced): (&str, bool, bool),
    ) -> (u16, Value) {
        let object = what.trim_end_matches("/status").trim_end_matches("/resize");
        if what.ends_with("/resize") && !self.is_exactly(object, &json!({"uid": body["metadata"]["uid"]})) {
            return (422, failure(422, "metadata.uid: field is immutable"));
        }
        // A real server reads a version of null as 0, and refuses it.
        if body["metadata"].get("resourceVersion").is_some_and(Value::is_null) {
            return (
                422,
                failure(422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            );
        }
        let is_gone = !body["metadata"]["uid"].is_null() && !self.objects.contains_key(object);
        if is_gone || !self.is_exactly(object, &body["metadata"]) {
            return (409, failure(409, "another object of that name, or another version"));
        }
        let conflict = if is_apply && !is_forced {
            replicas::conflict(self.objects.get(object), &body, manager)
        } else {
            None
        };
        conflict
            .map_or_else(|| (200, self.patch(object, body, (manager, is_apply))), |conflict| (409, conflict))
    }

    fn patch(&mut self, what: &str, mut patch: Value, (field_manager, is_apply): (&str, bool)) -> Value {
        let mut object = self.objects.get(what).cloned().unwrap_or_default();
        if let Some(status) = patch.get_mut("status").and_then(Value::as_object_mut) {
            status.retain(|field, _| !self.dropped.contains(&field.as_str()));
        }
        // The status has one manager: an apply replaces it.
        if !patch["status"].is_null() {
            object["status"] = Value::Null;
        }
        let replicas = patch["spec"]["replicas"].clone();
        if is_apply {
            self.give_up(what, &mut object, &patch, field_manager);
        }
        let taken_from =
            if is_apply { replicas::losers(&object, &replicas, field_manager) } else { Vec::new() };
        for loser in taken_from {
            self.lose_replicas(what, &loser);
        }
        let before = object["spec"]["replicas"].clone();
        merge(&mut object, patch);
        let finalizers = &object["metadata"]["finalizers"];
        let is_let_go = *finalizers == json!([]) || (finalizers.is_null() && self.is_held(what));
        if is_let_go && !object["metadata"]["deletionTimestamp"].is_null() {
            self.objects.remove(what);
            self.applied.remove(what);
            return object;
        }
        let managed = &mut object["metadata"]["managedFields"];
        let mut managers = managed.as_array().cloned().unwrap_or_default();
        if managers.iter().all(|entry| entry["manager"] != field_manager) {
            managers.push(json!({"manager": field_manager, "operation": "Apply"}));
        }
        *managed = managers.into();
        if is_apply && ["statefulsets/", "deployments/"].iter().any(|kind| what.starts_with(kind)) {
            replicas::note(&mut object, &before, (field_manager, !replicas.is_null()));
        }
        self.store(what, object)
    }

    /// A manager loses the number of replicas to another one.
    fn lose_replicas(&mut self, what: &str, manager: &str) {
        let applied = self.applied.get_mut(what).and_then(|managers| managers.get_mut(manager));
        if let Some(spec) = applied.and_then(|applied| applied["spec"].as_object_mut()) {
            spec.remove("replicas");
        }
    }

    /// Removes the fields that the manager applied before, applies no more, and no other manager applied.
    fn give_up(&mut self, what: &str, object: &mut Value, now: &Value, field_manager: &str) {
        let managers = self.applied.entry(what.to_owned()).or_default();
        let before = managers.insert(field_manager.to_owned(), now.clone()).unwrap_or_default();
        let others = managers.iter().filter(|(name, _)| *name != field_manager);
        give_up(object, (&before, now), &others.map(|(_, applied)| applied).collect::<Vec<_>>());
    }

    fn store(&mut self, what: &str, mut object: Value) -> Value {
        let before = self.objects.get(what);
        if before != Some(&object) {
            self.version += 1;
            let metadata = &mut object["metadata"];
            metadata["resourceVersion"] = self.version.to_string().into();
            if metadata["uid"].is_null() {
                metadata["uid"] = format!("uid-of-{what}").into();
                metadata["generation"] = 1.into();
                metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            self.objects.insert(what.to_owned(), object.clone());
        }
        object
    }
}

/// Removes the fields that are in `before` and not in `now`, and that no other manager applied.
fn give_up(object: &mut Value, (before, now): (&Value, &Value), others: &[&Value]) {
    let (Some(fields), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
    for (key, before) in before {
        let others: Vec<&Value> = others.iter().filter_map(|other| other.get(key)).collect();
        match (now.get(key), fields.get_mut(key)) {
            (Some(now), Some(field)) => give_up(field, (before, now), &others),
            (None, Some(_)) if others.is_empty() => drop(fields.remove(key)),
            (None, Some(field)) => give_up(field, (before, &json!({})), &others),
            _ => {}
        }
    }
}

fn merge(object: &mut Value, patch: Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    object.remove(&key);
                } else {
                    merge(object.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (object, patch) => *object = patch,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn found(object: Option<Value>) -> (u16, Value) {
    object.map_or_else(|| (404, failure(404, "not found")), |object| (200, object))
}

fn failure(code: u16, message: &str) -> Value {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "",
    };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": reason})
}
