//! What an answer of ClickHouse to an INSERT means.
//!
//! Job: from exception code, HTTP status and, for one code, the message, to what the caller does next. Place in the
//! flow: the insert client calls [`classify`] for every answer; delivery acts on the [`Class`], and goes on without
//! end. [`in_vain`] is the other half of the table, what a class becomes once acting on it has not helped; delivery does not
//! ask for it yet. Pure; the tables below are the whole of it.
//!
//! The HTTP status alone says little: 241 (memory), 242 (read-only table), 252 (too many parts) and 319 (status
//! unknown) all come as 500, and so does 33 (unreadable rows).
//!
//! Sources: `src/Common/ErrorCodes.cpp` and `src/Server/HTTP/exceptionCodeToHTTPStatus.cpp` of ClickHouse, statuses
//! measured on 26.7, and what other writers retry (ClickHouse's Kafka Connect sink, `Utils.java`).

/// What the caller does with a block after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The rows are in the table: settle the block.
    Done,
    /// Nothing was stored: send it again after a backoff.
    Retry,
    /// The server has too much to do: pause the partitions, send again slowly.
    BackPressure,
    /// The rows may or may not be in the table: send again, under the same token and to the same shard only.
    InDoubt,
    /// The table may have changed: describe it again, then send once more.
    RefreshSchema,
    /// The rows cannot be stored as they are: bisect, dead-letter the rows that remain.
    Poison,
    /// The block is too much at once: send it in parts.
    Split,
    /// A person must act (access, table, settings): keep the rows, stop this table's inserts, say so, ask again slowly.
    Halt,
}

impl Class {
    /// All classes, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::Retry,
        Self::BackPressure,
        Self::InDoubt,
        Self::RefreshSchema,
        Self::Poison,
        Self::Split,
        Self::Halt,
    ];

    /// The class as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::BackPressure => "back_pressure",
            Self::InDoubt => "in_doubt",
            Self::RefreshSchema => "refresh_schema",
            Self::Poison => "poison",
            Self::Split => "split",
            Self::Halt => "halt",
        }
    }
}

/// `TOO_MANY_PARTS`, whose meaning is in its message.
const TOO_MANY_PARTS: u32 = 252;

/// Codes, their class, and the class once that has not helped. Sorted by code.
#[rustfmt::skip]
const CODES: &[(u32, Class, Class)] = &[
    (3,    Class::Retry,         Class::Retry),         // UNEXPECTED_END_OF_FILE: the body was cut; one block stores nothing
    (6,    Class::Poison,        Class::Poison),        // CANNOT_PARSE_TEXT
    (8,    Class::RefreshSchema, Class::Halt),          // THERE_IS_NO_COLUMN
    (10,   Class::RefreshSchema, Class::Halt),          // NOT_FOUND_COLUMN_IN_BLOCK
    (16,   Class::RefreshSchema, Class::Halt),          // NO_SUCH_COLUMN_IN_TABLE
    (26,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_QUOTED_STRING
    (27,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_INPUT_ASSERTION_FAILED
    (32,   Class::RefreshSchema, Class::Poison),        // ATTEMPT_TO_READ_AFTER_EOF: as 33, inside a JSON value
    (33,   Class::RefreshSchema, Class::Poison),        // CANNOT_READ_ALL_DATA: another schema, or a cut body
    (36,   Class::RefreshSchema, Class::Halt),          // BAD_ARGUMENTS
    (38,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_DATE
    (40,   Class::Retry,         Class::Halt),          // CHECKSUM_DOESNT_MATCH: the network once, our bug twice
    (41,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_DATETIME
    (44,   Class::RefreshSchema, Class::Poison),        // ILLEGAL_COLUMN
    (47,   Class::RefreshSchema, Class::Halt),          // UNKNOWN_IDENTIFIER
    (49,   Class::InDoubt,       Class::Poison),        // LOGICAL_ERROR: may depend on the data, so bisect in the end
    (53,   Class::RefreshSchema, Class::Poison),        // TYPE_MISMATCH
    (60,   Class::Halt,          Class::Halt),          // UNKNOWN_TABLE: may be being created
    (62,   Class::Halt,          Class::Halt),          // SYNTAX_ERROR: our bug
    (72,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_NUMBER
    (76,   Class::Retry,         Class::BackPressure),  // CANNOT_OPEN_FILE
    (81,   Class::Halt,          Class::Halt),          // UNKNOWN_DATABASE
    (107,  Class::Retry,         Class::Retry),         // FILE_DOESNT_EXIST
    (115,  Class::RefreshSchema, Class::Halt),          // UNKNOWN_SETTING: an older server than the one probed
    (117,  Class::Poison,        Class::Poison),        // INCORRECT_DATA: also a path that occurs twice
    (128,  Class::RefreshSchema, Class::Split),         // TOO_LARGE_ARRAY_SIZE: usually shifted bytes
    (131,  Class::RefreshSchema, Class::Split),         // TOO_LARGE_STRING_SIZE: usually shifted bytes
    (159,  Class::InDoubt,       Class::InDoubt),       // TIMEOUT_EXCEEDED
    (160,  Class::BackPressure,  Class::BackPressure),  // TOO_SLOW
    (164,  Class::Halt,          Class::Halt),          // READONLY: the user's profile
    (173,  Class::BackPressure,  Class::Split),         // CANNOT_ALLOCATE_MEMORY
    (190,  Class::Poison,        Class::Poison),        // SIZES_OF_ARRAYS_DONT_MATCH
    (192,  Class::Halt,          Class::Halt),          // UNKNOWN_USER
    (193,  Class::Halt,          Class::Halt),          // WRONG_PASSWORD
    (194,  Class::Halt,          Class::Halt),          // REQUIRED_PASSWORD
    (195,  Class::Halt,          Class::Halt),          // IP_ADDRESS_NOT_ALLOWED
    (201,  Class::BackPressure,  Class::BackPressure),  // QUOTA_EXCEEDED: until its interval ends
    (202,  Class::BackPressure,  Class::BackPressure),  // TOO_MANY_SIMULTANEOUS_QUERIES
    (203,  Class::BackPressure,  Class::BackPressure),  // NO_FREE_CONNECTION
    (209,  Class::InDoubt,       Class::InDoubt),       // SOCKET_TIMEOUT
    (210,  Class::InDoubt,       Class::InDoubt),       // NETWORK_ERROR
    (216,  Class::InDoubt,       Class::InDoubt),       // QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: the earlier attempt
    (218,  Class::Halt,          Class::Halt),          // TABLE_IS_DROPPED
    (225,  Class::InDoubt,       Class::BackPressure),  // NO_ZOOKEEPER: may come after the commit
    (229,  Class::RefreshSchema, Class::Split),         // QUERY_IS_TOO_LARGE
    (236,  Class::InDoubt,       Class::InDoubt),       // ABORTED
    (241,  Class::BackPressure,  Class::Split),         // MEMORY_LIMIT_EXCEEDED
    (242,  Class::BackPressure,  Class::BackPressure),  // TABLE_IS_READ_ONLY: the replica lost its Keeper session
    (243,  Class::BackPressure,  Class::Halt),          // NOT_ENOUGH_SPACE
    (254,  Class::BackPressure,  Class::BackPressure),  // NO_ACTIVE_REPLICAS
    (265,  Class::BackPressure,  Class::BackPressure),  // NO_AVAILABLE_REPLICA
    (271,  Class::Retry,         Class::Halt),          // CANNOT_DECOMPRESS: what 26.7 says for a bad checksum
    (279,  Class::BackPressure,  Class::BackPressure),  // ALL_CONNECTION_TRIES_FAILED
    (285,  Class::BackPressure,  Class::BackPressure),  // TOO_FEW_LIVE_REPLICAS: before the write
    (286,  Class::BackPressure,  Class::BackPressure),  // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    (290,  Class::BackPressure,  Class::BackPressure),  // LIMIT_EXCEEDED
    (291,  Class::Halt,          Class::Halt),          // DATABASE_ACCESS_DENIED
    (319,  Class::InDoubt,       Class::InDoubt),       // UNKNOWN_STATUS_OF_INSERT: quorum timeout, rows usually there
    (321,  Class::RefreshSchema, Class::Poison),        // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
    (349,  Class::RefreshSchema, Class::Poison),        // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
    (364,  Class::Retry,         Class::BackPressure),  // RECEIVED_ERROR_TOO_MANY_REQUESTS
    (389,  Class::Done,          Class::Done),          // INSERT_WAS_DEDUPLICATED
    (394,  Class::InDoubt,       Class::InDoubt),       // QUERY_WAS_CANCELLED
    (425,  Class::Retry,         Class::BackPressure),  // SYSTEM_ERROR
    (439,  Class::Retry,         Class::BackPressure),  // CANNOT_SCHEDULE_TASK
    (441,  Class::Poison,        Class::Poison),        // CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING
    (452,  Class::Halt,          Class::Halt),          // SETTING_CONSTRAINT_VIOLATION: the user's profile
    (469,  Class::Poison,        Class::Poison),        // VIOLATED_CONSTRAINT
    (472,  Class::RefreshSchema, Class::Halt),          // READONLY_SETTING
    (497,  Class::Halt,          Class::Halt),          // ACCESS_DENIED
    (499,  Class::InDoubt,       Class::InDoubt),       // S3_ERROR
    (512,  Class::Halt,          Class::Halt),          // SET_NON_GRANTED_ROLE
    (516,  Class::Halt,          Class::Halt),          // AUTHENTICATION_FAILED
    (735,  Class::InDoubt,       Class::InDoubt),       // QUERY_WAS_CANCELLED_BY_CLIENT
    (999,  Class::InDoubt,       Class::BackPressure),  // KEEPER_EXCEPTION: may come after the commit
    (1000, Class::InDoubt,       Class::Poison),        // POCO_EXCEPTION
    (1001, Class::InDoubt,       Class::Poison),        // STD_EXCEPTION
    (1002, Class::InDoubt,       Class::Poison),        // UNKNOWN_EXCEPTION: may depend on the data
];

/// The class of an answer with exception code `code`, HTTP status `http_status` (200 to 599) and text `message`.
pub fn classify(code: Option<u32>, http_status: u16, message: &str) -> Class {
    match code {
        Some(TOO_MANY_PARTS) => too_many_parts(message),
        Some(code) => known(code).map_or_else(|| unknown_code(http_status), |(first, _)| first),
        None => no_code(http_status),
    }
}

/// The class once acting on `class` has not helped: after the schema was read again and had not changed, or after as
/// many tries as the caller allows. A class that stays the same is tried on without end.
pub fn in_vain(code: Option<u32>, class: Class) -> Class {
    let Some(code) = code else { return class };
    match known(code) {
        Some((first, then)) if first == class => then,
        // The data may be the reason, of which an unknown code does not tell.
        None if code != TOO_MANY_PARTS && class == Class::InDoubt => Class::Poison,
        _ => class,
    }
}

fn known(code: u32) -> Option<(Class, Class)> {
    CODES.iter().find(|(known, ..)| *known == code).map(|(_, first, then)| (*first, *then))
}

/// 252 is three errors. The texts are ClickHouse's, unchanged since 21.x.
fn too_many_parts(message: &str) -> Class {
    if message.contains("Too many partitions for single INSERT block") {
        Class::Split
    } else if message.contains("in all partitions in total") {
        // Parts of a whole table do not go away by waiting.
        Class::Halt
    } else {
        Class::BackPressure
    }
}

/// A code that is not in the table: below 500 the server blames the request.
fn unknown_code(http_status: u16) -> Class {
    match http_status {
        400..=499 => Class::Poison,
        _ => Class::InDoubt,
    }
}

/// No code: the answer may not even be ClickHouse's, but a proxy's.
fn no_code(http_status: u16) -> Class {
    match http_status {
        200 => Class::Done,
        413 => Class::Split,
        429 => Class::BackPressure,
        // Rows must not be dead-lettered because a proxy refused a request.
        300..=499 => Class::Halt,
        _ => Class::InDoubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_occur_once() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn every_code_has_its_class_whatever_the_status() {
        let table: &[(Class, &[u32])] = &[
            (Class::Done, &[389]),
            (Class::Retry, &[3, 40, 76, 107, 271, 364, 425, 439]),
            (
                Class::BackPressure,
                &[160, 173, 201, 202, 203, 241, 242, 243, 252, 254, 265, 279, 285, 286, 290],
            ),
            (Class::InDoubt, &[49, 159, 209, 210, 216, 225, 236, 319, 394, 499, 735, 999, 1000, 1001, 1002]),
            (Class::RefreshSchema, &[8, 10, 16, 32, 33, 36, 44, 47, 53, 115, 128, 131, 229, 321, 349, 472]),
            (Class::Poison, &[6, 26, 27, 38, 41, 72, 117, 190, 441, 469]),
            (Class::Halt, &[60, 62, 81, 164, 192, 193, 194, 195, 218, 291, 452, 497, 512, 516]),
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
            (Some(12345), 404, Class::Poison),
            (Some(12345), 500, Class::InDoubt),
            (Some(12345), 200, Class::InDoubt),
            (None, 200, Class::Done),
            (None, 204, Class::InDoubt),
            (None, 301, Class::Halt),
            (None, 400, Class::Halt),
            (None, 401, Class::Halt),
            (None, 403, Class::Halt),
            (None, 404, Class::Halt),
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
}
