//! Messages that Kafka deleted before they were read. Each gateway counts them from its start; this module adds them up over all gateways
//! and their restarts, to find out when there are more.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::LossStatus;
use std::collections::BTreeMap;

/// Adds up the counts of gateways, by ordinal. A gateway that does not answer keeps its former count. If a gateway restarts between two
/// answers, too few messages are counted; never too many.
pub(super) fn loss(before: Option<&LossStatus>, seen: &BTreeMap<u32, i64>, now: &Time) -> Option<LossStatus> {
    let mut gateways = before.map(|before| before.gateways.clone()).unwrap_or_default();
    let mut more = 0_i64;
    for (gateway, count) in seen {
        let gateway = gateway.to_string();
        let known = gateways.remove(&gateway).unwrap_or(0);
        // A smaller count means that the gateway has restarted, and has counted all of these since.
        let news = if *count < known { *count } else { count.saturating_sub(known) };
        more = more.saturating_add(news);
        if *count > 0 {
            gateways.insert(gateway, *count);
        }
    }
    match before {
        Some(before) if more == 0 => Some(LossStatus { gateways, ..before.clone() }),
        None if more == 0 => None,
        _ => {
            let messages = before.map_or(0, |before| before.messages).saturating_add(more);
            Some(LossStatus { messages, last_time: now.clone(), gateways })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn losses_add_up_over_gateways_and_their_restarts() {
        let mut said = None;
        // What two gateways say, and what it comes to.
        for (second, first, second_one, expected) in [
            (1, Some(0), Some(0), None),
            (2, Some(40), Some(0), Some((40, 2))),
            (3, Some(40), Some(7), Some((47, 3))),
            (4, None, Some(7), Some((47, 3))),
            (5, Some(40), None, Some((47, 3))),
            (6, Some(0), Some(7), Some((47, 3))),
            (7, Some(5), Some(7), Some((52, 7))),
            (8, Some(5), Some(3), Some((55, 8))),
        ] {
            let now = Time(Timestamp::from_second(second).unwrap());
            let counts = [(0, first), (11, second_one)];
            let seen: BTreeMap<u32, i64> =
                counts.into_iter().filter_map(|(gateway, count)| Some((gateway, count?))).collect();
            said = loss(said.as_ref(), &seen, &now);
            let found = said.as_ref().map(|said| (said.messages, said.last_time.0.as_second()));
            assert_eq!(found, expected, "{second}");
        }
        assert_eq!(said.unwrap().gateways, [("0".to_owned(), 5), ("11".to_owned(), 3)].into());
    }
}
