//! Logs, dead letters and damage of a pipeline with `source.otlp`.

use crate::{
    spool::{Held, bytes},
    table::{NOTHING, number},
};
use serde::Serialize;
use sluice_gateway_config::exposition::Line;

/// Requests that are not inserted, and what must stay on the volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Logs {
    /// Requests in all logs that are not inserted.
    waiting_requests: Option<u64>,
    log_bytes: Option<u64>,
    /// What the logs may have.
    log_bytes_max: Option<u64>,
    dead_letter_bytes: Option<u64>,
    /// Whether a file of a log, or of dead letters, cannot be read as a whole.
    is_damaged: Option<bool>,
}

impl Held for Logs {
    const COLUMNS: &'static [&'static str] = &["WAITING", "LOGS", "LIMIT", "LETTERS", "DAMAGED"];

    fn take(&mut self, line: &Line<'_>) {
        match line.name {
            // One line for each log.
            "sluice_gateway_lag_messages" => {
                let others = self.waiting_requests.unwrap_or(0);
                self.waiting_requests = line.whole().map(|waiting| others.saturating_add(waiting));
            }
            "sluice_gateway_log_bytes" => self.log_bytes = line.whole(),
            "sluice_gateway_log_bytes_max" => self.log_bytes_max = line.whole(),
            "sluice_gateway_dead_letter_log_bytes" => self.dead_letter_bytes = line.whole(),
            "sluice_gateway_log_damaged" => self.is_damaged = line.whole().map(|is_damaged| is_damaged > 0),
            _ => {}
        }
    }

    fn cells(&self) -> Vec<String> {
        let damage = self.is_damaged.map_or(NOTHING, |is_damaged| if is_damaged { "yes" } else { "no" });
        let sizes = [self.log_bytes, self.log_bytes_max, self.dead_letter_bytes].map(bytes);
        [vec![number(self.waiting_requests)], sizes.to_vec(), vec![damage.to_owned()]].concat()
    }

    /// The logs are read at the start, whatever the table is.
    fn is_unread(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::Said, spool::Volumes};

    #[test]
    fn logs_letters_and_damage_of_every_gateway_are_listed() {
        let text = "sluice_gateway_lag_messages{partition=\"0\",topic=\"otlp\"} 5\n\
            sluice_gateway_lag_messages{partition=\"1\",topic=\"otlp\"} 7\n\
            sluice_gateway_log_bytes 24000000\nsluice_gateway_log_bytes_max 880000000\n\
            sluice_gateway_dead_letter_log_bytes 4096\nsluice_gateway_log_damaged 1\n\
            sluice_gateway_queue_volume_bytes{state=\"total\"} 1000000000\n\
            sluice_gateway_queue_volume_bytes{state=\"free\"} 970000000\n";
        let said = [
            Said { pod: "p-gateway-0".into(), text: Ok(text.into()) },
            Said { pod: "p-gateway-1".into(), text: Err("refused".into()) },
        ];
        let found = Volumes::<Logs>::of(&said);
        assert_eq!(
            found.to_string(),
            "GATEWAY      WAITING    LOGS    LIMIT  LETTERS  DAMAGED   VOLUME     FREE\n\
             p-gateway-0       12  22 MiB  839 MiB   4096 B  yes      953 MiB  925 MiB\n\
             p-gateway-1        -       -        -        -  -              -        -\n\
             p-gateway-1 does not answer: refused\n"
        );
        assert_eq!(
            (
                found.is_whole(),
                Volumes::<Logs>::of(&said[..1]).is_whole(),
                Volumes::<Logs>::of(&[]).is_whole()
            ),
            (false, true, false)
        );
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["gateways"][0]["waitingRequests"], 12);
        assert_eq!(json["gateways"][0]["logBytes"], 24_000_000);
        assert_eq!(json["gateways"][0]["deadLetterBytes"], 4_096);
        assert_eq!(json["gateways"][0]["isDamaged"], true);
        assert_eq!(json["gateways"][1]["silent"], "refused");
    }
}
