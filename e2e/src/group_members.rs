//! Who is in a consumer group, asked of the broker with `ConsumerGroupDescribe`, which librdkafka has no call for.
//!
//! Source: Kafka's protocol guide, API key 69, version 0, of 4.1. By this protocol alone the broker says in which rack a member is: it knows
//! groups of `groupProtocol: Consumer`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kafka_fields::Fields;

/// Longest wait for the broker's answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Bytes of an answer: a member takes some hundred, and 64 bytes for each of its partitions' topics.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// A member of a group, as the broker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The client's id.
    pub client: String,
    /// Empty for none.
    pub rack: String,
}

/// The members of `group`, at the broker `host:port` that coordinates it.
///
/// # Errors
/// A broker that does not answer, or with an error: one that has no such group of this protocol among them.
pub async fn members(broker: &str, group: &str) -> Result<Vec<Member>> {
    let answer = tokio::time::timeout(ANSWER, ask(broker, group)).await;
    let answer = answer.context("the broker does not answer")??;
    read(&answer).with_context(|| format!("understand the broker's answer {answer:?}"))?
}

async fn ask(broker: &str, group: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(group.len() + 1).ok().filter(|length| *length < 128);
    let length = length.context("the group's name needs more than a byte for its length")?;
    // Key, version, number of the request, no client's name, no tagged fields.
    let mut request =
        [&69_i16.to_be_bytes()[..], &[0, 0], &1_i32.to_be_bytes(), &(-1_i16).to_be_bytes(), &[0]].concat();
    // One group, its name, no rights, no tagged fields.
    request.extend([&[2, length], group.as_bytes(), &[0, 0]].concat());
    let mut stream = TcpStream::connect(broker).await.with_context(|| format!("connect to {broker}"))?;
    let bytes = u32::try_from(request.len()).context("a long request")?;
    stream.write_all(&[&bytes.to_be_bytes()[..], &request].concat()).await.context("ask for the group")?;
    let bytes = usize::try_from(stream.read_u32().await.context("read an answer's length")?)?;
    ensure!(bytes <= ANSWER_BYTES_MAX, "an answer of {bytes} bytes");
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).await.context("read the answer")?;
    Ok(answer)
}

/// `None` when the answer is cut short.
fn read(answer: &[u8]) -> Option<Result<Vec<Member>>> {
    let mut fields = Fields::of(answer);
    // Number, tagged fields, throttle time.
    fields.i32()?;
    fields.tags()?;
    fields.i32()?;
    // Of the one group that was asked for.
    fields.count(true)?;
    let error = fields.i16()?;
    let message = fields.text(true)?;
    if error != 0 {
        return Some(Err(anyhow::anyhow!("error {error}: {message}")));
    }
    // Group and its state, two epochs, the assignor.
    fields.text(true)?;
    fields.text(true)?;
    fields.take(4 + 4)?;
    fields.text(true)?;
    let mut members = Vec::new();
    for _ in 0..fields.count(true)? {
        members.push(member(&mut fields)?);
    }
    Some(Ok(members))
}

fn member(fields: &mut Fields<'_>) -> Option<Member> {
    // Its id and the instance's.
    fields.text(true)?;
    fields.text(true)?;
    let rack = fields.text(true)?;
    // Its epoch.
    fields.i32()?;
    let client = fields.text(true)?;
    // Its host, and its topics by name or by pattern.
    fields.text(true)?;
    for _ in 0..fields.count(true)? {
        fields.text(true)?;
    }
    fields.text(true)?;
    // What it has, and what it is to have.
    assignment(fields)?;
    assignment(fields)?;
    fields.tags()?;
    Some(Member { client, rack })
}

/// Passes over the partitions of a member.
fn assignment(fields: &mut Fields<'_>) -> Option<()> {
    for _ in 0..fields.count(true)? {
        // The topic's id and its name.
        fields.take(16)?;
        fields.text(true)?;
        for _ in 0..fields.count(true)? {
            fields.i32()?;
        }
        fields.tags()?;
    }
    fields.tags()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len() + 1).unwrap()], text.as_bytes()].concat()
    }

    fn group(members: &[Vec<u8>]) -> Vec<u8> {
        let head =
            [&[0; 9][..], &[2, 0, 0, 0], &text("group"), &text("Stable"), &[0; 8], &text("uniform")].concat();
        [head, vec![u8::try_from(members.len() + 1).unwrap()], members.concat()].concat()
    }

    fn one(rack: &str, client: &str) -> Vec<u8> {
        // A topic with partition 3; nothing that is to come.
        let has = [&[2][..], &[7; 16], &text("spans"), &[2, 0, 0, 0, 3, 0, 0]].concat();
        let topics = [&[2][..], &text("spans"), &[0]].concat();
        let names = [&text("id")[..], &[0], &text(rack), &[0; 4], &text(client), &text("host")].concat();
        [names, topics, has, vec![1, 0, 0]].concat()
    }

    #[test]
    fn every_member_of_an_answer_is_read() {
        let whole = group(&[one("zone-a", "a"), one("", "b")]);
        let found = read(&whole).unwrap().unwrap();
        let member = |client: &str, rack: &str| Member { client: client.into(), rack: rack.into() };
        assert_eq!(found, [member("a", "zone-a"), member("b", "")]);
        assert!((0..whole.len()).all(|end| read(&whole[..end]).is_none()));
        assert_eq!(read(&group(&[])).unwrap().unwrap(), []);
    }

    #[test]
    fn a_refusal_is_an_error_with_the_brokers_words() {
        let refused = [&[0; 9][..], &[2, 0, 16], &text("not here")].concat();
        assert_eq!(read(&refused).unwrap().unwrap_err().to_string(), "error 16: not here");
    }
}
