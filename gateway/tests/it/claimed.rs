//! A success answer that does not come from ClickHouse: a proxy has answered instead, and may or may not have forwarded the rows.

use sluice_clickhouse::outcome::{Actor, Class, NOT_THE_SERVERS};
use sluice_gateway::delivery::tries::{At, Failure, Next, Tries};
use std::time::Duration;

const CLAIMED: Failure =
    Failure { class: Class::InDoubt, code: Some(NOT_THE_SERVERS), is_query_limit: false };

/// Seconds after a block was first sent.
fn at(seconds: u64) -> At {
    let now = Duration::from_hours(1) + Duration::from_secs(seconds);
    At {
        now,
        age_budget: Duration::from_mins(30),
        heard: Some(now),
        insert_timeout: Duration::from_secs(30),
        random: 1.0,
    }
}

#[test]
fn it_leaves_a_block_in_doubt_and_is_the_networks_once_it_does_not_pass() {
    let mut tries = Tries::new(false);
    for seconds in 0..8 {
        assert_eq!(tries.sending(&at(seconds)), None, "it is sent under its own token");
        let next = tries.failed(CLAIMED, &at(seconds));
        let is_expected = match next {
            Next::SendAgain { may_double: false, .. } => seconds < 4,
            Next::Halt { actor: Actor::Network, .. } => seconds >= 4,
            _ => false,
        };
        assert!(is_expected, "{next:?} after {seconds} s");
        assert_eq!(tries.doubt_since(), Some(at(0).now));
    }
    // An answer of the server itself counts again.
    let refused = Failure { class: Class::BackPressure, code: Some(202), is_query_limit: false };
    assert!(matches!(tries.failed(refused, &at(9)), Next::SendAgain { .. }));
}
