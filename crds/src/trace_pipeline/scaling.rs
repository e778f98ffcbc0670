//! Who sets the number of gateways, and within which bounds.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who sets the number of gateways, and within which bounds.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
        .message("minReplicas must not be more than maxReplicas"),
    validation = Rule::new("!has(self.maxReplicas) || !has(self.fallbackReplicas) || self.fallbackReplicas <= self.maxReplicas")
        .message("fallbackReplicas must not be more than maxReplicas"),
    validation = Rule::new(
        "!has(self.maxReplicas) || !has(self.schedules) \
         || self.schedules.all(s, !has(s.minReplicas) || has(s.maxReplicas) || s.minReplicas <= self.maxReplicas)")
        .message("minReplicas of a schedule must not be more than maxReplicas, unless the schedule has a maxReplicas of its own"),
    validation = Rule::new("!has(self.idle) || self.mode == 'Auto'")
        .message("idle needs scaling.mode Auto: in the other modes the spec or another client sets the number of gateways"),
    validation = Rule::new("has(self.idle) == (has(self.minReplicas) && self.minReplicas == 0)")
        .message("minReplicas 0 and idle are set together: idle says when the last gateway leaves, and how the position in Kafka is kept")
)]
pub struct Scaling {
    /// Fixed (the default): replicas, or as many gateways as partitionsPerReplica makes. Auto: the operator, from arrival rate, lag and the
    /// capacity of a gateway. Recommend: as Fixed, or the present number when replicas is not set; status.scaling has what Auto would do.
    /// External: a client of the scale subresource, such as an HPA, KEDA or kubectl scale.
    #[serde(default)]
    pub mode: ScalingMode,

    /// Minimum number of gateways, in Auto and Recommend; 0 to 1000. Default 1. 0 is for topics that are idle (see idle).
    #[serde(default = "replicas_min")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_replicas: u32,

    /// Maximum number of gateways, in Auto and Recommend; 1 to 1000, and never more than partitions. When it is not set, the number of
    /// partitions; with source.otlp, Auto and Recommend need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: Option<u32>,

    /// The target lag: a backlog is read within this time, and an older one sooner. A duration such as 90s or 1m30s, from 30s to 24h. Default
    /// 10m.
    #[serde(default = "target_lag")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('30s') && duration(self) <= duration('24h')")
        .message("targetLag is a duration from 30s to 24h in whole h, m and s, such as 10m or 1h30m"))]
    pub target_lag: String,

    /// The operator removes gateways when fewer would have been enough for this time: a duration such as 90s or 1m30s, from 1m to 1h. Default
    /// 10m.
    #[serde(default = "scale_down_after")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('1m') && duration(self) <= duration('1h')")
        .message("scaleDownAfter is a duration from 1m to 1h in whole h, m and s, such as 10m or 1m30s"))]
    pub scale_down_after: String,

    /// Minimum number of gateways when Kafka or the gateways have not answered for five minutes, in Auto; 1 to 1000. The operator never
    /// removes gateways in that case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub fallback_replicas: Option<u32>,

    /// No gateways while the topics are idle, in Auto, with minReplicas 0. When it is not set, gateways stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,

    /// Other bounds at some times of the week, in Auto and Recommend; at most 16. The first that is active counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub schedules: Vec<Schedule>,

    /// How gateways are drained before they are removed, in every mode.
    #[serde(default)]
    pub drain: Drain,
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            mode: ScalingMode::default(),
            min_replicas: replicas_min(),
            max_replicas: None,
            target_lag: target_lag(),
            scale_down_after: scale_down_after(),
            fallback_replicas: None,
            idle: None,
            schedules: Vec::new(),
            drain: Drain::default(),
        }
    }
}

fn replicas_min() -> u32 {
    1
}

fn target_lag() -> String {
    "10m".to_owned()
}

fn scale_down_after() -> String {
    "10m".to_owned()
}

/// When gateways leave idle topics. They insert and commit what they hold before they leave. Gateways start again when a message arrives,
/// within a minute.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// How long no message must have arrived: a duration such as 30m or 1h30m, from 1m to 24h. Everything must be inserted and committed by then.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')")
        .message("after of idle is a duration from 1m to 24h in whole h, m and s, such as 30m or 1h30m"))]
    pub after: String,

    /// After this time without a gateway one starts again, and leaves after the time in after. A duration such as 24h or 1h30m, from 1h to
    /// 144h. Default 24h. Kafka deletes the committed offsets of a group without members after the brokers' offsets.retention.minutes (7 days by
    /// default): set less than that.
    #[serde(default = "refresh_every")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') && duration(self) >= duration('1h') && duration(self) <= duration('144h')")
        .message("refreshEvery of idle is a duration from 1h to 144h in whole h, m and s, such as 24h or 1h30m"))]
    pub refresh_every: String,
}

fn refresh_every() -> String {
    "24h".to_owned()
}

/// Who sets the number of gateways.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScalingMode {
    /// The spec.
    #[default]
    Fixed,
    /// The operator.
    Auto,
    /// The spec; the status has what the operator would do.
    Recommend,
    /// A client of the scale subresource.
    External,
}

/// Other bounds at some times of the week.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
        .message("minReplicas of a schedule must not be more than its maxReplicas"),
    validation = Rule::new("has(self.minReplicas) || has(self.maxReplicas)")
        .message("a schedule has minReplicas or maxReplicas, or both"),
    validation = Rule::new("!has(self.timeZone) || !has(self.utcOffset)")
        .message("a schedule has timeZone or utcOffset, and not both: remove utcOffset, which does not follow daylight saving time")
)]
pub struct Schedule {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// Days on which it begins. When there is none, every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub days: Vec<Day>,

    /// When it begins, as hours and minutes from 00:00 to 23:59.
    #[schemars(length(max = 5))]
    #[x_kube(validation = Rule::new("self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')")
        .message("from is hours and minutes from 00:00 to 23:59, such as 07:30"))]
    pub from: String,

    /// When it ends, as hours and minutes from 00:00 to 23:59; on the next day when that is not after the beginning.
    #[schemars(length(max = 5))]
    #[x_kube(validation = Rule::new("self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')")
        .message("to is hours and minutes from 00:00 to 23:59, such as 19:00"))]
    pub to: String,

    /// Time zone of from and to, by its name in the IANA database, such as Europe/Berlin. On the day on which clocks are set forward, a time
    /// that does not exist is the moment of the change; on the day on which they are set back, a time that exists twice is the first one. A
    /// name that is not in the operator's database is refused (SpecInvalid). When neither it nor utcOffset is set, from and to are in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
        .message("timeZone is a name of the IANA time zone database, such as Europe/Berlin"))]
    pub time_zone: Option<String>,

    /// Offset of from and to from UTC, such as +02:00, in summer and winter. When neither it nor timeZone is set, they are in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6))]
    #[x_kube(validation = Rule::new("self.matches('^[+-](0[0-9]|1[0-4]):[0-5][0-9]$')")
        .message("utcOffset is a sign, hours and minutes from -14:59 to +14:59, such as +02:00"))]
    pub utc_offset: Option<String>,

    /// Minimum number of gateways while it is active; 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: Option<u32>,

    /// Maximum number of gateways while it is active; 1 to 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: Option<u32>,
}

/// A day of the week.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of days say what they are")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// How gateways are drained before they are removed: they give up their partitions and insert what they hold.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// How long a drain may take: a duration such as 90s or 1m30s, from 10s to 6h. Default 15m.
    #[serde(default = "drain_timeout")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self != '' && self.matches('^([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?$') \
         && duration(self) >= duration('10s') && duration(self) <= duration('6h')")
        .message("timeout is a duration from 10s to 6h in whole h, m and s, such as 15m or 1h30m"))]
    pub timeout: String,

    /// What happens to gateways that take longer. Abort (the default): all of them stay, and the operator tries again after the same time.
    /// Force: they are removed; with queue.mode Disabled, other gateways read again what Kafka still has of it. It cannot be used with
    /// delivery.commit AfterEnqueue. Job: they are removed. In both cases a Job inserts what is on their volumes before the volumes are
    /// deleted. With source.otlp only Abort: no Job inserts what is in logs.
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout: drain_timeout(), on_timeout: OnTimeout::default() }
    }
}

fn drain_timeout() -> String {
    "15m".to_owned()
}

/// What happens to gateways that are not empty in time.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnTimeout {
    /// They stay.
    #[default]
    Abort,
    /// They are removed.
    Force,
    /// They are removed, and a Job drains their volumes.
    Job,
}
