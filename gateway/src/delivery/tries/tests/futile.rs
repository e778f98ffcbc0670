//! Blocks in doubt that the server refuses whole, again and again.

use super::*;

/// What follows each of this many equal failures, if the fate is unknown each time.
fn after(tries: u32, views: bool, failure: Failure) -> Vec<&'static str> {
    let mut block = Tries::inherited(views, NOW);
    let mut names = Vec::new();
    for _ in 0..tries {
        block.described(Described::Unchanged, &at(NOW));
        let next = block.failed(failure, &at(NOW));
        names.push(if next == Next::AskFate(Why::BeforeParts) {
            name(block.told(Fate::Unknown, &at(NOW)))
        } else {
            name(next)
        });
    }
    names
}

#[test]
fn what_is_refused_for_its_content_goes_in_parts_after_some_tries() {
    for (tries, failure) in [
        (IN_DOUBT_TRIES_MAX, failure(252, Class::Split)),
        (IN_DOUBT_TRIES_MAX, failure(396, Class::Split)),
        (IN_DOUBT_TRIES_MAX, failure(229, Class::RefreshSchema)),
        (QUERY_LIMIT_TRIES_MAX, QUERY_LIMIT),
    ] {
        let names = after(tries, false, failure);
        let (last, before) = names.split_last().unwrap();
        assert_eq!(*last, "split, maybe twice", "{failure:?}");
        assert!(before.iter().all(|name| *name == "again elsewhere"), "{failure:?}: {names:?}");
    }
}

#[test]
fn what_may_pass_or_may_come_from_a_view_waits_until_its_token_is_old() {
    for (views, failure) in [(false, MEMORY), (true, QUERY_LIMIT), (true, failure(252, Class::Split))] {
        let names = after(2 * PRESSURE_TRIES_MAX, views, failure);
        assert!(names.iter().all(|name| *name == "again elsewhere"), "{failure:?}: {names:?}");
    }
}
