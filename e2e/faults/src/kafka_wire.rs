//! The parts of Kafka's protocol that a front needs: the call of a frame, and the contents of an `OffsetCommit`.
//!
//! A frame has 4 bytes of length and then that many bytes. A request begins with:
//!
//! | bytes | field |
//! | --- | --- |
//! | 2 | API key |
//! | 2 | API version |
//! | 4 | correlation id, which the answer begins with |
//! | 2 + n | client id; a length of −1 means none |
//! | varint … | tagged fields, in versions that are called flexible |
//!
//! Source: Kafka's protocol guide, message formats of 4.1. Numbers are big-endian. Pure. Limits: a frame that cannot be read is forwarded
//! unchanged, and scenarios do not act on it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use e2e_fixtures::kafka_fields::Fields;

/// API keys that scenarios act on.
pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const METADATA: i16 = 3;
pub const OFFSET_COMMIT: i16 = 8;
pub const JOIN_GROUP: i16 = 11;
pub const HEARTBEAT: i16 = 12;
pub const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

/// First version of `Metadata` with compact strings and tagged fields.
const METADATA_FLEXIBLE: i16 = 9;

/// First version of `OffsetCommit` with compact strings and tagged fields.
const OFFSET_COMMIT_FLEXIBLE: i16 = 8;

/// Last version of `JoinGroup` without them.
const JOIN_GROUP_PLAIN_MAX: i16 = 5;

/// The beginning of the metadata of a planned range; base64 follows. The gateway's `ranges/plan.rs` documents the fields.
const PLAN_MAGIC: &str = "sluice-plan/1:";
/// The same for a plan that names parted blocks, behind the cuts.
const PARTED_PLAN_MAGIC: &str = "sluice-plan/2:";

/// Bytes of a plan between its horizon and its t0: the topic's id, the cluster and the destination.
const PLAN_IDS_BYTES: usize = 16 + 8;

/// The parts of a request that a front reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub api: i16,
    pub version: i16,
    pub correlation: i32,
    pub client: String,
    /// What an `OffsetCommit` commits; empty for every other call.
    pub commits: Vec<Commit>,
}

/// One partition in an `OffsetCommit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub topic: String,
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    pub metadata: String,
}

/// The limits at which ranges of a partition end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub version: u8,
    /// Bytes of messages.
    pub bytes: u64,
    pub messages: u64,
}

impl Commit {
    /// The bytes of the plan; `None` if the metadata is no plan.
    fn plan(&self) -> Option<Vec<u8>> {
        let metadata = self.metadata.as_str();
        let text = metadata.strip_prefix(PLAN_MAGIC).or_else(|| metadata.strip_prefix(PARTED_PLAN_MAGIC))?;
        STANDARD_NO_PAD.decode(text).ok()
    }

    /// The rule in force; `None` if the metadata is no plan.
    pub fn rule(&self) -> Option<Rule> {
        let body = self.plan()?;
        let mut fields = Fields::of(&body);
        fields.varint()?;
        let version = *fields.take(1)?.first()?;
        Some(Rule { version, bytes: fields.varint()?, messages: fields.varint()? })
    }

    /// The last cut that is planned ahead of the offset; `None` without one, or if the metadata is no plan.
    pub fn last_planned_cut(&self) -> Option<i64> {
        let body = self.plan()?;
        let mut fields = Fields::of(&body);
        let offset = i64::try_from(fields.varint()?).ok()?;
        fields.take(1)?;
        // The rule's bytes and messages, the routing epoch, the horizon.
        for _ in 0..4 {
            fields.varint()?;
        }
        fields.take(PLAN_IDS_BYTES)?;
        fields.varint()?;
        let cuts = fields.varint()?;
        let ahead = (0..cuts).try_fold(0, |sum: i64, _| {
            fields.varint().and_then(|distance| sum.checked_add(i64::try_from(distance).ok()?))
        })?;
        (cuts > 0).then_some(offset + ahead)
    }

    /// Whether the plan marks a block as parted.
    pub fn is_parted(&self) -> bool {
        self.metadata.starts_with(PARTED_PLAN_MAGIC)
    }
}

impl Request {
    /// Reads a frame, without its length.
    pub fn read(frame: &[u8]) -> Option<Request> {
        let mut fields = Fields::of(frame);
        let (api, version, correlation) = (fields.i16()?, fields.i16()?, fields.i32()?);
        let client = fields.string()?;
        let commits = match api {
            OFFSET_COMMIT => offset_commits(&mut fields, version).unwrap_or_default(),
            _ => Vec::new(),
        };
        Some(Request { api, version, correlation, client, commits })
    }
}

/// The correlation id that an answer begins with.
pub fn correlation_of_answer(frame: &[u8]) -> Option<i32> {
    Fields::of(frame).i32()
}

/// Makes a `JoinGroup` ask for another session timeout, so that the group notices a silent member sooner. Every other frame stays
/// unchanged.
pub fn set_session_timeout(frame: &mut [u8], milliseconds: i32) {
    let found = session_timeout_at(frame);
    if let Some(place) = found.and_then(|at| frame.get_mut(at..at + 4)) {
        place.copy_from_slice(&milliseconds.to_be_bytes());
    }
}

/// The answer to a `Metadata` of this version without the cluster's id, as some brokers answer. An unreadable frame stays unchanged.
pub fn without_cluster(frame: &[u8], version: i16) -> Vec<u8> {
    let Some((from, to)) = cluster_at(frame, version) else { return frame.to_vec() };
    // A null string: a length of 0, or of -1 in the plain form.
    let none: &[u8] = if version >= METADATA_FLEXIBLE { &[0] } else { &[0xff, 0xff] };
    [&frame[..from], none, &frame[to..]].concat()
}

/// Where an answer to a `Metadata` of version 2 or later names the cluster.
fn cluster_at(frame: &[u8], version: i16) -> Option<(usize, usize)> {
    let mut fields = Fields::of(frame);
    let flexible = version >= METADATA_FLEXIBLE;
    fields.i32()?;
    if flexible {
        fields.tags()?;
    }
    if version >= 3 {
        fields.i32()?;
    }
    for _ in 0..fields.count(flexible)? {
        fields.i32()?;
        fields.text(flexible)?;
        fields.i32()?;
        fields.text(flexible)?;
        if flexible {
            fields.tags()?;
        }
    }
    let from = frame.len() - fields.left();
    fields.text(flexible)?;
    (version >= 2).then(|| (from, frame.len() - fields.left()))
}

fn session_timeout_at(frame: &[u8]) -> Option<usize> {
    let mut fields = Fields::of(frame);
    let (api, version) = (fields.i16()?, fields.i16()?);
    fields.i32()?;
    fields.string()?;
    fields.string()?;
    (api == JOIN_GROUP && version <= JOIN_GROUP_PLAIN_MAX).then(|| frame.len() - fields.left())
}

fn offset_commits(fields: &mut Fields<'_>, version: i16) -> Option<Vec<Commit>> {
    let flexible = version >= OFFSET_COMMIT_FLEXIBLE;
    if flexible {
        fields.tags()?;
    }
    fields.text(flexible)?;
    if version >= 1 {
        fields.i32()?;
        fields.text(flexible)?;
    }
    if version >= 7 {
        fields.text(flexible)?;
    }
    if (2..=4).contains(&version) {
        fields.take(8)?;
    }
    let mut commits = Vec::new();
    for _ in 0..fields.count(flexible)? {
        let topic = fields.text(flexible)?;
        for _ in 0..fields.count(flexible)? {
            let (partition, offset) = (fields.i32()?, fields.i64()?);
            if version >= 6 {
                fields.i32()?;
            }
            if version == 1 {
                fields.take(8)?;
            }
            let metadata = fields.text(flexible)?;
            if flexible {
                fields.tags()?;
            }
            commits.push(Commit { topic: topic.clone(), partition, offset, metadata });
        }
        if flexible {
            fields.tags()?;
        }
    }
    Some(commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len()).unwrap();
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    }

    fn compact(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len() + 1).unwrap()], text.as_bytes()].concat()
    }

    fn header(api: i16, version: i16) -> Vec<u8> {
        [&api.to_be_bytes()[..], &version.to_be_bytes(), &77_i32.to_be_bytes(), &string("gw")].concat()
    }

    #[test]
    fn an_offset_commit_is_read_in_its_plain_and_in_its_compact_form() {
        let mut plain = header(OFFSET_COMMIT, 7);
        plain.extend([string("group"), 5_i32.to_be_bytes().to_vec(), string("member")].concat());
        plain.extend((-1_i16).to_be_bytes());
        plain.extend([1_i32.to_be_bytes().to_vec(), string("spans"), 1_i32.to_be_bytes().to_vec()].concat());
        plain.extend([&3_i32.to_be_bytes()[..], &42_i64.to_be_bytes(), &0_i32.to_be_bytes()].concat());
        plain.extend(string("note"));
        let mut flexible = [header(OFFSET_COMMIT, 9), vec![0]].concat();
        flexible.extend([compact("group"), 5_i32.to_be_bytes().to_vec(), compact("member")].concat());
        // No instance id; one topic with one partition.
        flexible.extend([vec![0, 2], compact("spans"), vec![2]].concat());
        flexible.extend([&3_i32.to_be_bytes()[..], &42_i64.to_be_bytes(), &0_i32.to_be_bytes()].concat());
        flexible.extend([compact("note"), vec![0, 0, 0]].concat());
        let commit = Commit { topic: "spans".into(), partition: 3, offset: 42, metadata: "note".into() };
        for (frame, version) in [(plain, 7), (flexible, 9)] {
            let request = Request::read(&frame).unwrap();
            assert_eq!((request.api, request.version, request.correlation), (OFFSET_COMMIT, version, 77));
            assert_eq!((request.client.as_str(), request.commits), ("gw", vec![commit.clone()]));
        }
    }

    #[test]
    fn a_cluster_is_named_no_more_and_all_else_stays() {
        let broker = |text: fn(&str) -> Vec<u8>| {
            [&1_i32.to_be_bytes()[..], &text("host"), &9092_i32.to_be_bytes(), &text("rack")].concat()
        };
        let start = [77_i32.to_be_bytes(), 0_i32.to_be_bytes()].concat();
        let plain = [&start[..], &1_i32.to_be_bytes(), &broker(string)].concat();
        let flexible = [&start[..4], &[0], &start[4..], &[2], &broker(compact), &[0]].concat();
        for (before, version, named, none) in
            [(plain, 5, string("cluster"), vec![0xff, 0xff]), (flexible, 12, compact("cluster"), vec![0])]
        {
            let rest = [3, 2, 1];
            let answer = [&before[..], &named, &rest].concat();
            assert_eq!(without_cluster(&answer, version), [&before[..], &none, &rest].concat(), "{version}");
            let cut = &answer[..before.len() - 1];
            assert_eq!(without_cluster(cut, version), cut);
        }
    }

    #[test]
    fn what_is_cut_short_is_no_request_and_no_commit() {
        let whole = header(OFFSET_COMMIT, 9);
        assert!((0..whole.len()).all(|end| Request::read(&whole[..end]).is_none()));
        assert_eq!(Request::read(&whole).unwrap().commits, []);
    }

    #[test]
    fn a_session_is_shortened_and_nothing_else() {
        let mut frame = [header(JOIN_GROUP, 5), string("group")].concat();
        let at = frame.len();
        frame.extend([45_000_i32.to_be_bytes(), 300_000_i32.to_be_bytes()].concat());
        let before = frame.clone();
        set_session_timeout(&mut frame, 6_000);
        assert_eq!(frame[at..at + 4], 6_000_i32.to_be_bytes());
        assert_eq!((&frame[..at], &frame[at + 4..]), (&before[..at], &before[at + 4..]));
        let mut other = [header(HEARTBEAT, 3), string("group"), vec![9; 8]].concat();
        let before = other.clone();
        set_session_timeout(&mut other, 6_000);
        assert_eq!(other, before);
    }

    #[test]
    fn the_last_cut_of_a_plan_is_found_and_its_rule() {
        // Offset 300, rule 1 with 4,096 bytes and 500 messages, epoch 0, a horizon 1,000 ahead.
        let mut body = vec![0xac, 0x02, 1, 0x80, 0x20, 0xf4, 0x03, 0, 0xe8, 0x07];
        body.extend([7; PLAN_IDS_BYTES]);
        // t0 = 5, two cuts: 130 ahead, and 3 behind that one; a checksum.
        body.extend([5, 2, 0x82, 0x01, 3, 1, 2, 3, 4]);
        let metadata = format!("{PLAN_MAGIC}{}", STANDARD_NO_PAD.encode(&body));
        let commit = Commit { topic: "t".into(), partition: 0, offset: 300, metadata };
        assert_eq!(commit.last_planned_cut(), Some(433));
        assert_eq!(commit.rule(), Some(Rule { version: 1, bytes: 4_096, messages: 500 }));
        let without = Commit { metadata: String::new(), ..commit };
        assert_eq!((without.last_planned_cut(), without.rule()), (None, None));
    }
}
