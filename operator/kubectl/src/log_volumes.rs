//! `kubectl sluice spool` of a pipeline with `source.otlp`: the logs, dead letters and damage on the queue volume of each gateway, from the metrics
//! of the gateways.

use crate::{
    cluster::Said,
    table::{NOTHING, number, size, table},
};
use serde::Serialize;
use sluice_gateway_config::exposition::lines;
use std::fmt;

/// Every gateway of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct LogVolumes {
    gateways: Vec<LogVolume>,
}

/// The queue volume of one gateway. Unknown values are not set.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogVolume {
    gateway: String,
    /// Requests in all logs that are not inserted.
    waiting_requests: Option<u64>,
    log_bytes: Option<u64>,
    /// What the logs may have.
    log_bytes_max: Option<u64>,
    dead_letter_bytes: Option<u64>,
    /// Whether a file of a log, or of dead letters, cannot be read as a whole.
    is_damaged: Option<bool>,
    volume_bytes: Option<u64>,
    volume_free_bytes: Option<u64>,
    /// Why the gateway does not answer; not set if it does.
    silent: Option<String>,
}

impl LogVolumes {
    pub(super) fn of(said: &[Said]) -> Self {
        Self { gateways: said.iter().map(LogVolume::of).collect() }
    }

    /// Whether there is a gateway and all answer.
    pub(super) fn is_whole(&self) -> bool {
        !self.gateways.is_empty() && self.gateways.iter().all(|one| one.silent.is_none())
    }
}

impl LogVolume {
    fn of(said: &Said) -> Self {
        let mut one = Self { gateway: said.pod.clone(), ..Self::default() };
        let text = match &said.text {
            Ok(text) => text,
            Err(why) => return Self { silent: Some(why.clone()), ..one },
        };
        for line in lines(text) {
            match (line.name, line.label("state").as_deref()) {
                // One line for each log.
                ("sluice_gateway_lag_messages", _) => {
                    let others = one.waiting_requests.unwrap_or(0);
                    one.waiting_requests = line.whole().map(|waiting| others.saturating_add(waiting));
                }
                ("sluice_gateway_log_bytes", _) => one.log_bytes = line.whole(),
                ("sluice_gateway_log_bytes_max", _) => one.log_bytes_max = line.whole(),
                ("sluice_gateway_dead_letter_log_bytes", _) => one.dead_letter_bytes = line.whole(),
                ("sluice_gateway_log_damaged", _) => {
                    one.is_damaged = line.whole().map(|is_damaged| is_damaged > 0);
                }
                ("sluice_gateway_queue_volume_bytes", Some("total")) => one.volume_bytes = line.whole(),
                ("sluice_gateway_queue_volume_bytes", Some("free")) => one.volume_free_bytes = line.whole(),
                _ => {}
            }
        }
        one
    }
}

impl fmt::Display for LogVolumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |value: Option<u64>| value.map_or_else(|| NOTHING.to_owned(), size);
        let damage = |is_damaged: Option<bool>| match is_damaged {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => NOTHING.to_owned(),
        };
        let header = ["GATEWAY", "WAITING", "LOGS", "LIMIT", "LETTERS", "DAMAGED", "VOLUME", "FREE"];
        let rows = self.gateways.iter().map(|one| {
            vec![
                one.gateway.clone(),
                number(one.waiting_requests),
                bytes(one.log_bytes),
                bytes(one.log_bytes_max),
                bytes(one.dead_letter_bytes),
                damage(one.is_damaged),
                bytes(one.volume_bytes),
                bytes(one.volume_free_bytes),
            ]
        });
        f.write_str(&table(&header, &rows.collect::<Vec<_>>()))?;
        for (gateway, why) in
            self.gateways.iter().filter_map(|one| Some((&one.gateway, one.silent.as_ref()?)))
        {
            writeln!(f, "{gateway} does not answer: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = LogVolumes::of(&said);
        assert_eq!(
            found.to_string(),
            "GATEWAY      WAITING    LOGS    LIMIT  LETTERS  DAMAGED   VOLUME     FREE\n\
             p-gateway-0       12  22 MiB  839 MiB   4096 B  yes      953 MiB  925 MiB\n\
             p-gateway-1        -       -        -        -  -              -        -\n\
             p-gateway-1 does not answer: refused\n"
        );
        assert_eq!(
            (found.is_whole(), LogVolumes::of(&said[..1]).is_whole(), LogVolumes::of(&[]).is_whole()),
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
