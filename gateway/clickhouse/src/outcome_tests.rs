//! Every code, status and message, with their meaning.

use super::*;

#[test]
fn codes_are_sorted_and_occur_once() {
    assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
}

#[test]
#[rustfmt::skip]
fn every_code_has_its_class_whatever_the_status() {
    let table: &[(Class, &[u32])] = &[
        (Class::Done, &[389]),
        (Class::Retry, &[3, 40, 76, 107, 271, 364, 425, 439]),
        (Class::BackPressure, &[
            160, 173, 198, 201, 202, 203, 241, 242, 243, 252, 254, 265, 279, 285, 286, 290, 574, 700, 733, 745, 749,
            762, 776, 778, 904,
        ]),
        (Class::InDoubt, &[
            NOT_THE_SERVERS, 49, 74, 75, 159, 172, 204, 209, 210, 216, 225, 236, 244, 319, 394, 395, 499, 500, 659, 735, 777, 999,
            1000, 1001, 1002,
        ]),
        (Class::RefreshSchema, &[
            8, 10, 16, 20, 32, 33, 36, 44, 47, 53, 70, 115, 128, 131, 229, 321, 349, 472, 691,
        ]),
        (Class::Poison, &[6, 26, 27, 38, 41, 72, 117, 190, 441, 469]),
        (Class::Split, &[158, 307, 396]),
        (Class::Halt, &[
            48, 60, 62, 81, 164, 167, 168, 192, 193, 194, 195, 218, 291, 344, 381, 392, 452, 496, 497, 512, 516, 720, 731, 764,
            774,
        ]),
    ];
    let mut seen = 0;
    for (class, codes) in table {
        for code in *codes {
            seen += 1;
            for status in [400, 404, 408, 500, 503] {
                assert_eq!(classify(Some(*code), status, ""), *class, "code {code}");
            }
        }
    }
    assert_eq!(seen, CODES.len() + 1, "every code of the table, and 252");
}

/// Server messages after a code, with and without text that changes the class.
const MESSAGES: [&str; 6] = [
    "",
    "Code: 252. DB::Exception: Too many parts (3001 with average size of 1.00 MiB) in table 'a.b' in partition '20261121'.",
    "Code: 252. DB::Exception: Too many parts (100001) in all partitions in total in table 'a.b'.",
    "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100).",
    "Code: 117. DB::Exception: Type of 'c' must be JSON(a Int64): (while reading header): While executing",
    "<html><h1>502 Bad Gateway</h1></html>",
];

/// Statuses that the server uses for exceptions, and others that would mean something else without a code.
const STATUSES: [u16; 10] = [200, 400, 401, 403, 404, 408, 413, 429, 500, 503];

/// The message of [`MESSAGES`] that changes this code's class, and the new class.
fn changed_by(code: u32, message: usize) -> Option<Class> {
    match (code, message) {
        (252, 2) => Some(Class::Halt),
        (252, 3) => Some(Class::Split),
        (117, 4) => Some(Class::RefreshSchema),
        _ => None,
    }
}

#[test]
#[rustfmt::skip]
fn every_code_has_its_class_and_the_one_after_it_and_no_message_changes_others_than_117_and_252() {
    let table: &[(Class, Class, &[u32])] = &[
        (Class::Done,          Class::Done,         &[389]),
        (Class::Retry,         Class::Retry,        &[3, 107]),
        (Class::Retry,         Class::BackPressure, &[76, 364, 425, 439]),
        (Class::Retry,         Class::Halt,         &[40]),
        (Class::BackPressure,  Class::BackPressure, &[160, 201, 202, 203, 242, 252, 254, 265, 279, 285, 286, 290]),
        (Class::BackPressure,  Class::Split,        &[173, 241]),
        (Class::BackPressure,  Class::Halt,         &[243]),
        (Class::InDoubt,       Class::InDoubt,      &[159, 209, 210, 216, 236, 319, 394, 499]),
        (Class::InDoubt,       Class::BackPressure, &[225, 999]),
        (Class::InDoubt,       Class::Poison,       &[49, 1000, 1001, 1002]),
        (Class::RefreshSchema, Class::Poison,       &[33, 44, 53, 321, 349]),
        (Class::RefreshSchema, Class::Split,        &[128, 131, 229]),
        (Class::RefreshSchema, Class::Halt,         &[8, 10, 16, 36, 47, 115, 472]),
        (Class::Poison,        Class::Poison,       &[6, 26, 27, 38, 41, 72, 117, 441, 469]),
        (Class::Halt,          Class::Halt,         &[60, 62, 81, 164, 192, 193, 194, 218, 497, 512, 516]),
    ];
    for (first, then, codes) in table {
        for code in *codes {
            assert_eq!(in_vain(Some(*code), *first), *then, "code {code}");
            for (number, message) in MESSAGES.into_iter().enumerate() {
                let changed = changed_by(*code, number);
                let expected = changed.unwrap_or(*first);
                for status in STATUSES {
                    assert_eq!(classify(Some(*code), status, message), expected, "code {code}, {message}");
                }
                // The message means the same the next time.
                let after = changed.unwrap_or(*then);
                assert_eq!(in_vain(Some(*code), expected), after, "code {code}, {message}");
            }
        }
    }
}

#[test]
fn an_unknown_code_and_an_answer_without_one_go_by_their_status_whatever_they_say() {
    for message in MESSAGES {
        for status in STATUSES {
            for code in [None, Some(12345), Some(253)] {
                assert_eq!(
                    classify(code, status, message),
                    classify(code, status, ""),
                    "{code:?} {status}: {message}"
                );
            }
        }
    }
}

#[test]
fn lists_of_codes_are_sorted_and_hold_known_ones() {
    for list in [BEFORE_THE_ROWS, SHORTAGE] {
        assert!(list.is_sorted_by(|a, b| a < b));
        assert!(list.iter().all(|code| known(*code).is_some()), "{list:?}");
    }
}

#[test]
fn an_attempt_without_an_answer_is_in_doubt_from_the_first_byte_on() {
    // Refused, not found, no connection in time, reset before anything was sent; then reset, silence, a cut answer.
    assert_eq!(no_answer(false), Class::Retry);
    assert_eq!(no_answer(true), Class::InDoubt);
    assert!(!may_be_stored(None, Class::Retry, true));
    assert!(may_be_stored(None, Class::InDoubt, false));
}

#[test]
fn an_error_of_a_view_comes_after_the_rows_of_the_table() {
    let table = [
        // code, status; without views, with views
        (Some(117), 400, false, true),
        (Some(349), 500, false, true),
        (Some(252), 500, false, true),
        (Some(242), 500, false, true),
        (Some(60), 404, false, true),
        (Some(12345), 400, false, true),
        (Some(395), 500, true, true),
        (Some(241), 500, true, true),
        (Some(173), 500, true, true),
        (Some(243), 500, true, true),
        (Some(319), 500, true, true),
        (Some(285), 500, false, true),
        (Some(286), 500, true, true),
        (Some(12345), 500, true, true),
        (Some(33), 500, false, false),
        (Some(516), 403, false, false),
        (Some(202), 500, false, false),
        // The profile refuses the statement; a limit of it may also refuse the statement of a view.
        (Some(731), 500, false, false),
        (Some(168), 400, false, true),
        (Some(389), 500, false, false),
        (Some(NOT_THE_SERVERS), 200, true, true),
        (None, 502, true, true),
        (None, 429, false, false),
    ];
    for (code, status, without, with) in table {
        let class = classify(code, status, "");
        assert_eq!(may_be_stored(code, class, false), without, "{code:?} {status}");
        assert_eq!(may_be_stored(code, class, true), with, "{code:?} {status} with views");
    }
}

#[test]
fn a_server_without_keeper_is_under_pressure_beside_the_doubt() {
    for (code, expected) in [(202, true), (999, true), (225, true), (319, false), (117, false)] {
        assert_eq!(is_pressure(Some(code), classify(Some(code), 500, "")), expected, "{code}");
    }
    assert!(is_pressure(None, classify(None, 429, "")));
    assert!(!is_pressure(None, Class::Retry));
}

#[test]
fn what_is_not_the_servers_is_told_apart() {
    for (code, is_its) in [(None, false), (Some(NOT_THE_SERVERS), false), (Some(60), true)] {
        assert_eq!(is_servers(code), is_its, "{code:?}");
    }
}

#[test]
fn every_halt_names_who_acts() {
    let table = [
        (Some(516), Actor::Access),
        (Some(497), Actor::Access),
        (Some(60), Actor::Table),
        (Some(16), Actor::Table),
        (Some(48), Actor::Table),
        (Some(164), Actor::Settings),
        (Some(472), Actor::Settings),
        (Some(168), Actor::Settings),
        (Some(731), Actor::Settings),
        (Some(243), Actor::Server),
        (Some(252), Actor::Server),
        (Some(62), Actor::Settings),
        (Some(271), Actor::Program),
        (None, Actor::Network),
        (Some(NOT_THE_SERVERS), Actor::Network),
    ];
    for (code, actor) in table {
        assert_eq!(who_acts(code), actor, "{code:?}");
    }
    let labels: std::collections::HashSet<_> = Actor::ALL.iter().map(|actor| actor.label()).collect();
    assert_eq!(labels.len(), Actor::ALL.len());
}

#[test]
fn the_memory_of_one_query_is_told_apart_by_its_message() {
    let rest = "would use 17.01 MiB (attempt to allocate chunk of 1.00 MiB), maximum: 15.26 MiB";
    for (code, message, expected) in [
        (Some(241), "Query memory limit exceeded: ", true),
        (Some(241), "Memory limit (for query) exceeded: ", true),
        (Some(241), "User memory limit exceeded: ", false),
        (Some(241), "(total) memory limit exceeded: ", false),
        (Some(173), "Query memory limit exceeded: ", false),
        (None, "Query memory limit exceeded: ", false),
    ] {
        assert_eq!(
            is_query_limit(code, &format!("Code: 241. DB::Exception: {message}{rest}")),
            expected,
            "{message}"
        );
    }
}

#[test]
fn too_many_parts_is_told_apart_by_its_message() {
    let table = [
        (
            "Too many parts (3001 with average size of 1.00 MiB) in table 'a.b'. Merges are processing",
            Class::BackPressure,
        ),
        ("Too many parts (100001) in all partitions in total in table 'a.b'.", Class::Halt),
        ("Too many partitions for single INSERT block (more than 100).", Class::Split),
    ];
    for (message, class) in table {
        assert_eq!(classify(Some(252), 500, message), class, "{message}");
        assert_eq!(in_vain(Some(252), class), class);
    }
}

#[test]
fn an_answer_without_a_known_code_goes_by_its_status() {
    let table = [
        (Some(12345), 400, Class::Poison),
        (Some(12345), 401, Class::Halt),
        (Some(12345), 403, Class::Halt),
        (Some(12345), 404, Class::Halt),
        (Some(12345), 429, Class::BackPressure),
        (Some(12345), 501, Class::InDoubt),
        (Some(12345), 500, Class::InDoubt),
        (Some(12345), 200, Class::InDoubt),
        (None, 200, Class::Done),
        (None, 204, Class::InDoubt),
        (None, 301, Class::Halt),
        (None, 400, Class::Halt),
        (None, 401, Class::Halt),
        (None, 403, Class::Halt),
        (None, 404, Class::Halt),
        (None, 408, Class::InDoubt),
        (None, 413, Class::Split),
        (None, 429, Class::BackPressure),
        (None, 500, Class::InDoubt),
        (None, 502, Class::InDoubt),
        (None, 503, Class::InDoubt),
        (None, 504, Class::InDoubt),
    ];
    for (code, status, class) in table {
        assert_eq!(classify(code, status, ""), class, "{code:?} {status}");
    }
}

#[test]
fn what_does_not_help_is_followed_by_something_else_or_by_patience() {
    let table = [
        (Some(33), Class::RefreshSchema, Class::Poison),
        (Some(131), Class::RefreshSchema, Class::Split),
        (Some(115), Class::RefreshSchema, Class::Halt),
        (Some(271), Class::Retry, Class::Halt),
        (Some(241), Class::BackPressure, Class::Split),
        (Some(202), Class::BackPressure, Class::BackPressure),
        (Some(319), Class::InDoubt, Class::InDoubt),
        (Some(1002), Class::InDoubt, Class::Poison),
        (Some(12345), Class::InDoubt, Class::Poison),
        (Some(12345), Class::Poison, Class::Poison),
        (Some(60), Class::Halt, Class::Halt),
        (Some(395), Class::InDoubt, Class::Poison),
        (Some(NOT_THE_SERVERS), Class::InDoubt, Class::Halt),
        (Some(396), Class::Split, Class::Halt),
        (None, Class::InDoubt, Class::InDoubt),
        (None, Class::Retry, Class::Retry),
    ];
    for (code, class, then) in table {
        assert_eq!(in_vain(code, class), then, "{code:?} {class:?}");
    }
}

#[test]
fn nothing_turns_into_a_settled_block_by_trying_again() {
    for (code, first, then) in CODES {
        assert_eq!(*first == Class::Done, *then == Class::Done, "code {code}");
    }
    let labels: std::collections::HashSet<_> = Class::ALL.iter().map(|class| class.label()).collect();
    assert_eq!(labels.len(), Class::ALL.len());
}

#[test]
fn other_types_than_the_tables_are_told_apart_from_rows_that_cannot_be_read() {
    let types =
        "Type of 'c' must be JSON(a Int64), not JSON(a UInt64): (while reading header): While executing";
    assert_eq!(classify(Some(117), 400, types), Class::RefreshSchema);
    assert_eq!(in_vain(Some(117), Class::RefreshSchema), Class::RefreshSchema, "never dead-lettered");
    assert_eq!(classify(Some(117), 400, "Found duplicated path"), Class::Poison);
}

#[test]
fn an_insert_that_waits_for_a_quorum_is_sent_again_under_its_token() {
    // Too few replicas, another quorum, its wait over; then a replica without Keeper, and a user who may not write.
    for (code, message, first) in [
        (285, "Number of alive replicas (1) is less than requested quorum (2/3).", Class::BackPressure),
        (286, "Quorum for previous write has not been satisfied yet.", Class::BackPressure),
        (319, "Unknown quorum status. The data was inserted in the local replica", Class::InDoubt),
        (159, "Timeout exceeded", Class::InDoubt),
        (394, "Query was cancelled", Class::InDoubt),
        (164, "Replica is not active right now", Class::BackPressure),
        (164, "gateway: Cannot execute query in readonly mode", Class::Halt),
    ] {
        let class = classify(Some(code), 500, message);
        assert_eq!(class, first, "{code} {message}");
        assert_eq!(in_vain(Some(code), class), first, "{code} {message}");
    }
}
