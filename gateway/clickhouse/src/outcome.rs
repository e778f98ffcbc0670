//! What an answer of ClickHouse to an INSERT means.
//!
//! Job: from exception code, HTTP status and, for one code, the message, to what the caller does next. Place in the
//! flow: the insert client calls [`classify`] for every answer and [`no_answer`] where there is none; who tries a block
//! again acts on the [`Class`], and asks [`in_vain`] what it becomes once acting on it has not helped, [`may_be_stored`]
//! whether the rows may be in the table all the same, and [`who_acts`] whom to name. Pure; the tables below are the whole of it.
//!
//! The HTTP status alone says little: 241 (memory), 242 (read-only table), 252 (too many parts) and 319 (status
//! unknown) all come as 500, and so does 33 (unreadable rows).
//!
//! Sources: `src/Common/ErrorCodes.cpp` and `src/Server/HTTP/exceptionCodeToHTTPStatus.cpp` of ClickHouse, every code's name as
//! `errorCodeToName` of 26.7 has it, statuses measured on 26.7, and what other writers retry (ClickHouse's Kafka Connect sink,
//! `Utils.java`).

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
    (20,   Class::RefreshSchema, Class::Halt),          // NUMBER_OF_COLUMNS_DOESNT_MATCH
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
    (48,   Class::Halt,          Class::Halt),          // NOT_IMPLEMENTED: the table's engine takes no rows
    (49,   Class::InDoubt,       Class::Poison),        // LOGICAL_ERROR: may depend on the data, so bisect in the end
    (53,   Class::RefreshSchema, Class::Poison),        // TYPE_MISMATCH
    (60,   Class::Halt,          Class::Halt),          // UNKNOWN_TABLE: may be being created
    (62,   Class::Halt,          Class::Halt),          // SYNTAX_ERROR: our bug
    (70,   Class::RefreshSchema, Class::Poison),        // CANNOT_CONVERT_TYPE
    (72,   Class::Poison,        Class::Poison),        // CANNOT_PARSE_NUMBER
    (74,   Class::InDoubt,       Class::BackPressure),  // CANNOT_READ_FROM_FILE_DESCRIPTOR: the server's disk
    (75,   Class::InDoubt,       Class::BackPressure),  // CANNOT_WRITE_TO_FILE_DESCRIPTOR: the server's disk, often full
    (76,   Class::Retry,         Class::BackPressure),  // CANNOT_OPEN_FILE
    (81,   Class::Halt,          Class::Halt),          // UNKNOWN_DATABASE
    (107,  Class::Retry,         Class::Retry),         // FILE_DOESNT_EXIST
    (115,  Class::RefreshSchema, Class::Halt),          // UNKNOWN_SETTING: an older server than the one probed
    (117,  Class::Poison,        Class::Poison),        // INCORRECT_DATA: also a path that occurs twice
    (128,  Class::RefreshSchema, Class::Split),         // TOO_LARGE_ARRAY_SIZE: usually shifted bytes
    (131,  Class::RefreshSchema, Class::Split),         // TOO_LARGE_STRING_SIZE: usually shifted bytes
    (158,  Class::Split,         Class::Halt),          // TOO_MANY_ROWS: a limit of the user's profile
    (159,  Class::InDoubt,       Class::InDoubt),       // TIMEOUT_EXCEEDED
    (160,  Class::BackPressure,  Class::BackPressure),  // TOO_SLOW
    (164,  Class::Halt,          Class::Halt),          // READONLY: the user's profile
    (172,  Class::InDoubt,       Class::BackPressure),  // CANNOT_CREATE_DIRECTORY: the server's disk
    (173,  Class::BackPressure,  Class::Split),         // CANNOT_ALLOCATE_MEMORY
    (190,  Class::Poison,        Class::Poison),        // SIZES_OF_ARRAYS_DONT_MATCH
    (192,  Class::Halt,          Class::Halt),          // UNKNOWN_USER
    (193,  Class::Halt,          Class::Halt),          // WRONG_PASSWORD
    (194,  Class::Halt,          Class::Halt),          // REQUIRED_PASSWORD
    (195,  Class::Halt,          Class::Halt),          // IP_ADDRESS_NOT_ALLOWED
    (198,  Class::BackPressure,  Class::BackPressure),  // DNS_ERROR: the server cannot find another one
    (201,  Class::BackPressure,  Class::BackPressure),  // QUOTA_EXCEEDED: until its interval ends
    (202,  Class::BackPressure,  Class::BackPressure),  // TOO_MANY_SIMULTANEOUS_QUERIES
    (203,  Class::BackPressure,  Class::BackPressure),  // NO_FREE_CONNECTION
    (204,  Class::InDoubt,       Class::BackPressure),  // CANNOT_FSYNC: the server's disk
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
    (244,  Class::InDoubt,       Class::BackPressure),  // UNEXPECTED_ZOOKEEPER_ERROR: may come after the commit
    (254,  Class::BackPressure,  Class::BackPressure),  // NO_ACTIVE_REPLICAS
    (265,  Class::BackPressure,  Class::BackPressure),  // NO_AVAILABLE_REPLICA
    (271,  Class::Retry,         Class::Halt),          // CANNOT_DECOMPRESS: what 26.7 says for a bad checksum
    (279,  Class::BackPressure,  Class::BackPressure),  // ALL_CONNECTION_TRIES_FAILED
    (285,  Class::BackPressure,  Class::BackPressure),  // TOO_FEW_LIVE_REPLICAS: before the write
    (286,  Class::BackPressure,  Class::BackPressure),  // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    (290,  Class::BackPressure,  Class::BackPressure),  // LIMIT_EXCEEDED
    (291,  Class::Halt,          Class::Halt),          // DATABASE_ACCESS_DENIED
    (307,  Class::Split,         Class::Halt),          // TOO_MANY_BYTES: a limit of the user's profile
    (319,  Class::InDoubt,       Class::InDoubt),       // UNKNOWN_STATUS_OF_INSERT: quorum timeout, rows usually there
    (321,  Class::RefreshSchema, Class::Poison),        // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
    (344,  Class::Halt,          Class::Halt),          // SUPPORT_IS_DISABLED: the server's settings
    (349,  Class::RefreshSchema, Class::Poison),        // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
    (364,  Class::Retry,         Class::BackPressure),  // RECEIVED_ERROR_TOO_MANY_REQUESTS
    (381,  Class::Halt,          Class::Halt),          // HTTP_LENGTH_REQUIRED: a proxy has taken the Content-Length away
    (389,  Class::Done,          Class::Done),          // INSERT_WAS_DEDUPLICATED
    (392,  Class::Halt,          Class::Halt),          // QUERY_IS_PROHIBITED: the server's settings
    (394,  Class::InDoubt,       Class::InDoubt),       // QUERY_WAS_CANCELLED
    (395,  Class::InDoubt,       Class::Poison),        // FUNCTION_THROW_IF_VALUE_IS_NON_ZERO: of a view, so the rows are in the table itself
    (396,  Class::Split,         Class::Halt),          // TOO_MANY_ROWS_OR_BYTES: a limit of the user's profile
    (425,  Class::Retry,         Class::BackPressure),  // SYSTEM_ERROR
    (439,  Class::Retry,         Class::BackPressure),  // CANNOT_SCHEDULE_TASK
    (441,  Class::Poison,        Class::Poison),        // CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING
    (452,  Class::Halt,          Class::Halt),          // SETTING_CONSTRAINT_VIOLATION: the user's profile
    (469,  Class::Poison,        Class::Poison),        // VIOLATED_CONSTRAINT
    (472,  Class::RefreshSchema, Class::Halt),          // READONLY_SETTING
    (496,  Class::Halt,          Class::Halt),          // QUOTA_REQUIRES_CLIENT_KEY
    (497,  Class::Halt,          Class::Halt),          // ACCESS_DENIED
    (499,  Class::InDoubt,       Class::InDoubt),       // S3_ERROR
    (500,  Class::InDoubt,       Class::InDoubt),       // AZURE_BLOB_STORAGE_ERROR
    (512,  Class::Halt,          Class::Halt),          // SET_NON_GRANTED_ROLE
    (516,  Class::Halt,          Class::Halt),          // AUTHENTICATION_FAILED
    (574,  Class::BackPressure,  Class::BackPressure),  // DISTRIBUTED_TOO_MANY_PENDING_BYTES
    (659,  Class::InDoubt,       Class::InDoubt),       // UNKNOWN_STATUS_OF_TRANSACTION
    (691,  Class::RefreshSchema, Class::Poison),        // UNKNOWN_ELEMENT_OF_ENUM
    (700,  Class::BackPressure,  Class::BackPressure),  // USER_SESSION_LIMIT_EXCEEDED
    (720,  Class::Halt,          Class::Halt),          // USER_EXPIRED
    (733,  Class::BackPressure,  Class::BackPressure),  // TABLE_IS_BEING_RESTARTED
    (735,  Class::InDoubt,       Class::InDoubt),       // QUERY_WAS_CANCELLED_BY_CLIENT
    (745,  Class::BackPressure,  Class::BackPressure),  // SERVER_OVERLOADED
    (749,  Class::BackPressure,  Class::BackPressure),  // TCP_CONNECTION_LIMIT_REACHED
    (762,  Class::BackPressure,  Class::BackPressure),  // HTTP_CONNECTION_LIMIT_REACHED
    (764,  Class::Halt,          Class::Halt),          // DEDUPLICATION_IS_NOT_POSSIBLE: the user's profile asks for what excludes it
    (774,  Class::Halt,          Class::Halt),          // TABLE_IS_PERMANENTLY_READ_ONLY
    (776,  Class::BackPressure,  Class::Split),         // RESOURCE_LIMIT_EXCEEDED
    (777,  Class::InDoubt,       Class::Split),         // MEMORY_RESERVATION_KILLED: as 241, at any moment
    (778,  Class::BackPressure,  Class::Split),         // MEMORY_RESERVATION_FAILED
    (904,  Class::BackPressure,  Class::BackPressure),  // TOO_MANY_UNAVAILABLE_SHARDS
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

/// The class of an attempt that has no whole answer: no connection, a connection lost, no answer in time, an answer cut short.
/// `begun` says whether the connection has taken a byte of the body: before that nothing can have been stored.
pub fn no_answer(begun: bool) -> Class {
    if begun { Class::InDoubt } else { Class::Retry }
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

/// Whether rows may be in the table although the answer is an error: the answer then says nothing about them, and they must
/// not be sent under another token before it is known (`fate`). `views` says whether materialized views hang below
/// the table: what one of them refuses is refused after the table has its rows (measured on 26.7: code 395 of a view, all rows
/// in the table, and every retry under the token answered 395 again).
pub fn may_be_stored(code: Option<u32>, class: Class, views: bool) -> bool {
    match (code, class) {
        (_, Class::InDoubt) => true,
        (None, _) | (_, Class::Done) => false,
        (Some(code), _) if BEFORE_THE_ROWS.contains(&code) => false,
        // Memory may run out while a view is filled, and where else has not been shown to be before the commit.
        (Some(code), _) => views || MEMORY.contains(&code),
    }
}

/// Codes of answers before the first row was taken, or that the rows could not be read from the body: nothing was stored,
/// whatever hangs below the table. Sorted.
#[rustfmt::skip]
const BEFORE_THE_ROWS: &[u32] = &[
    3, 32, 33, 40, 48, 62, 81, 115, 164, 192, 193, 194, 195, 201, 202, 203, 229, 271, 291, 344, 364, 381, 392, 439, 452,
    472, 496, 497, 512, 516, 700, 720, 745, 749, 762, 764,
];

/// Codes of too little memory. Sorted.
const MEMORY: &[u32] = &[173, 241, 776, 777, 778];

/// Whether the answer says that the server has too much to do: what else would be sent to it must wait.
pub fn is_pressure(code: Option<u32>, class: Class) -> bool {
    // Without Keeper a replicated table takes nothing: in doubt for this block, pressure for all others.
    class == Class::BackPressure || code.is_some_and(|code| matches!(code, 225 | 244 | 999))
}

/// Who must act before rows go in again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// Who gives rights: user, password, grants, addresses.
    Access,
    /// Who makes the table: it is missing, has other columns, or takes no rows.
    Table,
    /// Who writes the settings of the server, or of our user's profile and quota.
    Settings,
    /// Who runs the server: its disk, its parts, its replicas.
    Server,
    /// Who runs what stands between us and the server: the answer is not the server's.
    Network,
    /// Who writes this program: what it sends is wrong.
    Program,
}

impl Actor {
    /// All of them, for metrics.
    pub const ALL: [Self; 6] =
        [Self::Access, Self::Table, Self::Settings, Self::Server, Self::Network, Self::Program];

    /// As a metric label and log field.
    pub fn label(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Table => "table",
            Self::Settings => "settings",
            Self::Server => "server",
            Self::Network => "network",
            Self::Program => "program",
        }
    }

    /// What to do, in words.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Access => "give the gateway's user its rights: user, password, grants, address",
            Self::Table => "look at the table: it is missing, has other columns, or takes no rows",
            Self::Settings => "change the settings of the server or of the gateway user's profile",
            Self::Server => "look after the server: its disk, its parts, its replicas",
            Self::Network => {
                "look at the proxy between the gateway and ClickHouse: the answer is not ClickHouse's"
            }
            Self::Program => {
                "report a defect of sluice-gateway: the server does not understand what it sends"
            }
        }
    }
}

/// Who must act on an answer of [`Class::Halt`], or on one that has become that.
pub fn who_acts(code: Option<u32>) -> Actor {
    match code {
        None => Actor::Network,
        Some(192..=195 | 291 | 497 | 512 | 516 | 720) => Actor::Access,
        Some(36 | 115 | 158 | 164 | 307 | 344 | 392 | 396 | 452 | 472 | 496 | 764) => Actor::Settings,
        Some(243 | TOO_MANY_PARTS) => Actor::Server,
        // A body that arrives damaged twice was damaged on the way, or is no frame at all.
        Some(40 | 62 | 271) => Actor::Program,
        Some(381) => Actor::Network,
        Some(_) => Actor::Table,
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

/// A code that is not in the table: below 500 the server blames the request. Rights, and names that the server does not know,
/// are no fault of rows: those must not be dead-lettered for them.
fn unknown_code(http_status: u16) -> Class {
    match http_status {
        401 | 403 | 404 => Class::Halt,
        429 => Class::BackPressure,
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
        // A proxy that waited too long for one side or the other.
        408 => Class::InDoubt,
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
                49, 74, 75, 159, 172, 204, 209, 210, 216, 225, 236, 244, 319, 394, 395, 499, 500, 659, 735, 777, 999,
                1000, 1001, 1002,
            ]),
            (Class::RefreshSchema, &[
                8, 10, 16, 20, 32, 33, 36, 44, 47, 53, 70, 115, 128, 131, 229, 321, 349, 472, 691,
            ]),
            (Class::Poison, &[6, 26, 27, 38, 41, 72, 117, 190, 441, 469]),
            (Class::Split, &[158, 307, 396]),
            (Class::Halt, &[
                48, 60, 62, 81, 164, 192, 193, 194, 195, 218, 291, 344, 381, 392, 452, 496, 497, 512, 516, 720, 764, 774,
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

    #[test]
    fn lists_of_codes_are_sorted_and_hold_known_ones() {
        for list in [BEFORE_THE_ROWS, MEMORY] {
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
            (Some(319), 500, true, true),
            (Some(12345), 500, true, true),
            (Some(33), 500, false, false),
            (Some(516), 403, false, false),
            (Some(202), 500, false, false),
            (Some(389), 500, false, false),
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
    fn every_halt_names_who_acts() {
        let table = [
            (Some(516), Actor::Access),
            (Some(497), Actor::Access),
            (Some(60), Actor::Table),
            (Some(16), Actor::Table),
            (Some(48), Actor::Table),
            (Some(164), Actor::Settings),
            (Some(472), Actor::Settings),
            (Some(243), Actor::Server),
            (Some(252), Actor::Server),
            (Some(62), Actor::Program),
            (Some(271), Actor::Program),
            (None, Actor::Network),
        ];
        for (code, actor) in table {
            assert_eq!(who_acts(code), actor, "{code:?}");
        }
        let labels: std::collections::HashSet<_> = Actor::ALL.iter().map(|actor| actor.label()).collect();
        assert_eq!(labels.len(), Actor::ALL.len());
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
}
