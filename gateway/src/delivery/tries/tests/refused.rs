//! Blocks that the server refuses before it reads a row, with a code that no table has.

use super::*;

/// A profile that refuses every INSERT, by a code that is not known: its status is 500, so the rows may be stored.
const PROFILE: Failure = Failure { class: Class::InDoubt, code: Some(9_999), is_query_limit: false };

#[test]
fn rows_that_the_server_did_not_read_are_neither_cut_nor_counted_twice() {
    let mut tries = Tries::new(false);
    assert_eq!(tries.sending(&at(NOW)), None);
    let refused = |tries: &mut Tries| {
        for _ in 1..IN_DOUBT_TRIES_MAX {
            assert_eq!(name(tries.failed(PROFILE, &at(NOW))), "again elsewhere");
        }
        assert_eq!(name(tries.failed(PROFILE, &at(NOW))), "describe");
        assert_eq!(name(tries.described(Described::Unchanged, &at(NOW))), "again here");
        tries.failed(PROFILE, &at(NOW))
    };
    assert_eq!(name(refused(&mut tries)), "ask fate");
    assert!(tries.doubt_since().is_some());
    assert_eq!(name(tries.clone().told(Fate::Absent, &at(NOW))), "bisect");
    assert_eq!(name(tries.told(Fate::Refused, &at(NOW))), "settings");
    assert_eq!((tries.doubt_since(), tries.sending(&at(NOW))), (None, None), "it is sent whole, later");
    // The profile is as before.
    assert_eq!(name(tries.failed(PROFILE, &at(NOW))), "ask fate");
}

#[test]
fn a_block_that_was_refused_before_the_start_is_sent_again_or_split_as_one_that_is_absent() {
    let (mut old, late) = (Tries::new(false), at(NOW + 30 * MINUTE));
    old.sending(&at(NOW));
    old.failed(PROFILE, &at(NOW));
    assert_eq!(old.sending(&late), Some(Next::AskFate(Why::TooOld)));
    assert_eq!((name(old.told(Fate::Refused, &late)), old.doubt_since()), ("again here", None));
    let mut large = Tries::new(true);
    large.sending(&at(NOW));
    assert_eq!(name(large.failed(failure(252, Class::Split), &at(NOW))), "ask fate");
    assert_eq!(name(large.told(Fate::Refused, &at(NOW))), "split");
}
