//! Commits offsets of a group with arbitrary bytes as metadata. It speaks the protocol itself, since the Kafka client accepts only text.
//!
//! The request is an `OffsetCommit` of version 7, the last one without compact strings:
//!
//! | bytes | field |
//! | --- | --- |
//! | 2 + 2 + 4 | API key, version, correlation id |
//! | 2 + n | client id |
//! | 2 + n | group |
//! | 4 | generation: −1, that of no member |
//! | 2 + n | member: empty |
//! | 2 | instance: −1 for none |
//! | 4 | topics: 1 |
//! | 2 + n | topic |
//! | 4 | partitions; of each: |
//! | 4 + 8 + 4 | partition, offset, leader's epoch: −1 for not known |
//! | 2 + n | metadata |
//!
//! The answer ends with the partitions: 4 bytes each, and an error code in 2. Source: Kafka's protocol guide, message formats of 4.1.
//! Brokers read strings as UTF-8: other bytes come back as replacement characters. Owner: the course. Limits: one topic. The request goes
//! to the coordinator, and the group must have no member. [`ANSWER_TIMEOUT`], [`ANSWER_BYTES_MAX`].

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::kafka_wire::OFFSET_COMMIT;

const VERSION: i16 = 7;

/// The client id in the broker's log.
const CLIENT: &[u8] = b"somebody-else";

/// Null, as a number or as the length of a string.
const NONE: i8 = -1;

/// Longest exchange: a new coordinator takes this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer, many times that for all partitions of a topic.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Bytes of a partition in the answer: its number and the error code.
const ANSWERED_BYTES: usize = 4 + 2;

/// One partition's commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCommit {
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    pub metadata: Vec<u8>,
}

/// Sends these commits to the broker at `host:port`, the coordinator of the group.
pub async fn commit(broker: &str, group: &str, topic: &str, commits: &[ForeignCommit]) -> Result<()> {
    let frame = request(group, topic, commits)?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, exchange(broker, &frame)).await;
    let answer = answer.with_context(|| format!("{broker} does not answer a commit"))??;
    let partitions = answer.len().checked_sub(commits.len() * ANSWERED_BYTES);
    let partitions = partitions.with_context(|| format!("an answer of {} bytes", answer.len()))?;
    let stored = answer[partitions..].chunks(ANSWERED_BYTES).all(|said| said.ends_with(&[0, 0]));
    ensure!(stored, "{broker} refuses a commit: {:?}", &answer[partitions..]);
    Ok(())
}

async fn exchange(broker: &str, frame: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(broker).await.with_context(|| format!("reach {broker}"))?;
    let length = u32::try_from(frame.len()).context("write a commit's length")?;
    stream.write_all(&[&length.to_be_bytes()[..], frame].concat()).await.context("send a commit")?;
    let length = stream.read_u32().await.context("read the length of an answer to a commit")?;
    let length = usize::try_from(length).context("hold an answer to a commit")?;
    ensure!(length <= ANSWER_BYTES_MAX, "an answer of {length} bytes to a commit");
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).await.context("read an answer to a commit")?;
    Ok(answer)
}

fn request(group: &str, topic: &str, commits: &[ForeignCommit]) -> Result<Vec<u8>> {
    let mut frame = Vec::new();
    frame.extend(OFFSET_COMMIT.to_be_bytes());
    frame.extend(VERSION.to_be_bytes());
    frame.extend(0_i32.to_be_bytes());
    put_string(&mut frame, CLIENT)?;
    put_string(&mut frame, group.as_bytes())?;
    frame.extend(i32::from(NONE).to_be_bytes());
    put_string(&mut frame, b"")?;
    frame.extend(i16::from(NONE).to_be_bytes());
    frame.extend(1_i32.to_be_bytes());
    put_string(&mut frame, topic.as_bytes())?;
    frame.extend(i32::try_from(commits.len()).context("count partitions")?.to_be_bytes());
    for commit in commits {
        frame.extend(commit.partition.to_be_bytes());
        frame.extend(commit.offset.to_be_bytes());
        frame.extend(i32::from(NONE).to_be_bytes());
        put_string(&mut frame, &commit.metadata)?;
    }
    Ok(frame)
}

fn put_string(frame: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    let length = i16::try_from(bytes.len()).context("a string is longer than its length can say")?;
    frame.extend(length.to_be_bytes());
    frame.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka_wire::{Commit, Request};

    #[test]
    fn a_commit_of_another_program_is_read_as_one() {
        let foreign = |partition: i32, metadata: &[u8]| ForeignCommit {
            partition,
            offset: 40 + i64::from(partition),
            metadata: metadata.to_vec(),
        };
        let frame = request("group", "spans", &[foreign(0, "é".as_bytes()), foreign(1, &[0xff])]).unwrap();
        let request = Request::read(&frame).unwrap();
        assert_eq!((request.api, request.version), (OFFSET_COMMIT, VERSION));
        let read = |partition: i32, metadata: &str| Commit {
            topic: "spans".into(),
            partition,
            offset: 40 + i64::from(partition),
            metadata: metadata.into(),
        };
        assert_eq!(request.commits, [read(0, "é"), read(1, "\u{fffd}")]);
    }

    #[test]
    fn what_no_length_can_say_is_not_sent() {
        let metadata = vec![b'm'; 1 << 15];
        assert!(request("group", "spans", &[ForeignCommit { partition: 0, offset: 0, metadata }]).is_err());
    }
}
