//! Blocks of a pipeline that reads Kafka.

use crate::{
    spool::{Held, bytes},
    table::{NOTHING, number, time},
};
use serde::Serialize;
use sluice_gateway_config::exposition::Line;

/// Blocks that are not inserted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueuedBlocks {
    blocks: Option<u64>,
    rows: Option<u64>,
    bytes: Option<u64>,
    /// Age of the oldest block.
    oldest_seconds: Option<u64>,
    /// What its files may have; 0 before the volume is read.
    #[serde(skip)]
    bytes_max: Option<u64>,
}

impl Held for QueuedBlocks {
    const COLUMNS: &'static [&'static str] = &["BLOCKS", "ROWS", "BYTES", "OLDEST"];

    fn take(&mut self, line: &Line<'_>) {
        match line.name {
            "sluice_gateway_spool_blocks" => self.blocks = line.whole(),
            "sluice_gateway_spool_rows" => self.rows = line.whole(),
            "sluice_gateway_spool_bytes" => self.bytes = line.whole(),
            "sluice_gateway_spool_bytes_max" => self.bytes_max = line.whole(),
            "sluice_gateway_spool_oldest_seconds" => self.oldest_seconds = line.whole(),
            _ => {}
        }
    }

    fn cells(&self) -> Vec<String> {
        let oldest = self.oldest_seconds.map_or_else(|| NOTHING.to_owned(), time);
        vec![number(self.blocks), number(self.rows), bytes(self.bytes), oldest]
    }

    fn is_unread(&self) -> bool {
        self.bytes_max == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::Said, spool::Volumes};

    #[test]
    fn every_gateway_is_told() {
        let text = "sluice_gateway_spool_blocks 3\nsluice_gateway_spool_rows 30000\nsluice_gateway_spool_bytes 24000000\n\
            sluice_gateway_spool_oldest_seconds 61.5\nsluice_gateway_queue_volume_bytes{state=\"total\"} 1000000000\n\
            sluice_gateway_queue_volume_bytes{state=\"free\"} 970000000\n";
        let said = [
            Said { pod: "p-gateway-0".into(), text: Ok(text.into()) },
            Said { pod: "p-gateway-1".into(), text: Err("refused".into()) },
        ];
        let found = Volumes::<QueuedBlocks>::of(&said);
        assert_eq!(
            found.to_string(),
            "GATEWAY      BLOCKS   ROWS   BYTES     OLDEST   VOLUME     FREE\n\
             p-gateway-0       3  30000  22 MiB  1 min 1 s  953 MiB  925 MiB\n\
             p-gateway-1       -      -       -          -        -        -\n\
             p-gateway-1 does not answer: refused\n"
        );
        assert_eq!(
            (
                found.is_whole(),
                Volumes::<QueuedBlocks>::of(&said[..1]).is_whole(),
                Volumes::<QueuedBlocks>::of(&[]).is_whole()
            ),
            (false, true, false)
        );
        assert_eq!(serde_json::to_value(&found).unwrap()["gateways"][0]["bytes"], 24_000_000);
    }

    /// A gateway claims its volume at its start, and reads it once the table can be used.
    #[test]
    fn a_volume_that_is_not_read_yet_is_not_said_to_be_empty() {
        let text = |bytes_max: u64| {
            format!(
                "sluice_gateway_spool_blocks 0\nsluice_gateway_spool_rows 0\nsluice_gateway_spool_bytes 0\n\
                 sluice_gateway_spool_bytes_max {bytes_max}\nsluice_gateway_spool_oldest_seconds 0\n\
                 sluice_gateway_queue_volume_bytes{{state=\"total\"}} 1000000000\n\
                 sluice_gateway_queue_volume_bytes{{state=\"free\"}} 970000000\n"
            )
        };
        let of =
            |text: String| Volumes::<QueuedBlocks>::of(&[Said { pod: "p-gateway-0".into(), text: Ok(text) }]);
        let unread = of(text(0));
        let told = unread.to_string();
        assert!(
            told.starts_with(
                "GATEWAY      BLOCKS  ROWS  BYTES  OLDEST   VOLUME     FREE\n\
                 p-gateway-0       -     -      -       -  953 MiB  925 MiB\n\
                 p-gateway-0 has not read its volume yet, and what the volume holds is not known: "
            ),
            "{told}"
        );
        let json = serde_json::to_value(&unread).unwrap();
        assert_eq!(json["gateways"][0]["isUnread"], true);
        assert!(json["gateways"][0]["rows"].is_null(), "{json}");
        let read = of(text(950_000_000));
        assert!(!unread.is_whole() && read.is_whole() && !read.to_string().contains("not read"), "{read}");
        // Without a volume there is nothing to read.
        let none = of("sluice_gateway_spool_blocks 0\nsluice_gateway_spool_bytes_max 0\n".into());
        assert!(none.is_whole(), "{none}");
    }
}
