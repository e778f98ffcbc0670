//! The meaning of ClickHouse's answer to an INSERT.
//!
//! Job: derives the caller's next action from the exception code, the HTTP status and, for some codes, the message. Place in the flow:
//! the insert client calls [`classify`] for every answer, and [`no_answer`] if there is none. Delivery acts on the [`Class`]. [`in_vain`] is
//! the class after that action did not help. [`may_be_stored`] says whether the rows may be in the table nevertheless, and [`who_acts`] who
//! can help. Pure; the tables below are complete.
//!
//! The HTTP status alone says little: 241 (memory), 242 (read-only table), 252 (too many parts) and 319 (status unknown) all have status
//! 500, and so does 33 (unreadable rows).
//!
//! Sources: `src/Common/ErrorCodes.cpp` and `src/Server/HTTP/exceptionCodeToHTTPStatus.cpp` of ClickHouse, the names of codes by
//! `errorCodeToName` of 26.7, statuses measured on 26.7, and what other writers retry (ClickHouse's Kafka Connect sink,
//! `Utils.java`).

/// What the caller does with a block after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The rows are in the table: settle the block.
    Done,
    /// Nothing was stored: send it again after a backoff.
    Retry,
    /// The server is overloaded: pause the partitions, send again slowly.
    BackPressure,
    /// The rows may or may not be in the table: send again, under the same token and to the same shard only.
    InDoubt,
    /// The table may have changed: describe it again, then send once more.
    RefreshSchema,
    /// The rows cannot be stored like this: bisect, and dead-letter the rows that remain.
    Poison,
    /// The block is too large at once: send it in parts.
    Split,
    /// Manual action is needed (access, table, settings): keep the rows, stop this table's inserts, report it, ask again slowly.
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

/// Stands for a success that the server did not send: from a proxy, a mesh, a mock. `OK` in `ErrorCodes.cpp`, which no exception has.
pub const NOT_THE_SERVERS: u32 = 0;

/// `TOO_MANY_PARTS`, whose meaning is in its message.
const TOO_MANY_PARTS: u32 = 252;

/// `READONLY`, whose meaning is in its message.
const READONLY: u32 = 164;

/// The text of a replica that lost its Keeper session, if the INSERT waits for a quorum. ClickHouse's own text
/// (`ReplicatedMergeTreeSink.cpp`); without a quorum the code is `TABLE_IS_READ_ONLY`.
const REPLICA_INACTIVE: &str = "Replica is not active right now";

/// `MEMORY_LIMIT_EXCEEDED`: of the server, of the user, or of one query, which only its message says.
pub(crate) const MEMORY_LIMIT_EXCEEDED: u32 = 241;

/// What the message says of the limit of one query (`MemoryTracker.cpp`): measured on 26.7, and the text of older servers.
const OF_THE_QUERY: [&str; 2] = ["Query memory limit exceeded", "(for query) exceeded"];

/// `INCORRECT_DATA`: the rows, or the types before them.
pub(crate) const INCORRECT_DATA: u32 = 117;

/// The end of the server's message about the types before the rows ([`crate::header`]). Measured on 26.7.
const IN_HEADER: &str = "(while reading header)";

/// Codes, their class, and the class after it did not help. Sorted by code.
#[rustfmt::skip]
const CODES: &[(u32, Class, Class)] = &[
    (NOT_THE_SERVERS, Class::InDoubt, Class::Halt),     // who has answered may have sent the body on, or not: once may be a restart
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
    (62,   Class::Halt,          Class::Halt),          // SYNTAX_ERROR: a limit of its parser
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
    (167,  Class::Halt,          Class::Halt),          // TOO_DEEP_AST: a limit of the user's profile, of the statement or of a view's
    (168,  Class::Halt,          Class::Halt),          // TOO_BIG_AST: the same
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
    (285,  Class::BackPressure,  Class::BackPressure),  // TOO_FEW_LIVE_REPLICAS: before the first part
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
    (731,  Class::Halt,          Class::Halt),          // QUERY_CACHE_USED_WITH_NON_THROW_OVERFLOW_MODE: the user's profile, checked for every statement
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

/// The class of an answer with exception code `code`, HTTP status `http_status` (200 to 599) and text `message`. A success without a code
/// is the server's own; any other success has the code [`NOT_THE_SERVERS`].
pub fn classify(code: Option<u32>, http_status: u16, message: &str) -> Class {
    match code {
        Some(TOO_MANY_PARTS) => too_many_parts(message),
        Some(READONLY) if message.contains(REPLICA_INACTIVE) => Class::BackPressure,
        // The table has other types than the rows.
        Some(INCORRECT_DATA) if message.contains(IN_HEADER) => Class::RefreshSchema,
        Some(code) => known(code).map_or_else(|| unknown_code(http_status), |(first, _)| first),
        None => no_code(http_status),
    }
}

/// The class of an attempt without a complete answer: no connection, a lost connection, no answer in time, a truncated answer. `begun`
/// says whether the connection has taken a byte of the body: before that nothing can have been stored.
pub fn no_answer(begun: bool) -> Class {
    if begun { Class::InDoubt } else { Class::Retry }
}

/// The class after acting on `class` did not help: the schema was read again and had not changed, or the caller's number of tries is
/// over. A class that stays the same is retried forever.
pub fn in_vain(code: Option<u32>, class: Class) -> Class {
    let Some(code) = code else { return class };
    match known(code) {
        Some((first, then)) if first == class => then,
        // The data may be the reason; an unknown code does not tell.
        None if code != TOO_MANY_PARTS && class == Class::InDoubt => Class::Poison,
        _ => class,
    }
}

/// Whether rows may be in the table although the answer is an error. The answer then says nothing about them, and they must not be sent
/// under another token before this is known (`fate`). `views` says whether the table has materialized views: a view refuses rows only
/// after the table has stored them (measured on 26.7: code 395 of a view, all rows in the table, and every retry under the token answered
/// 395 again).
pub fn may_be_stored(code: Option<u32>, class: Class, views: bool) -> bool {
    match (code, class) {
        (_, Class::InDoubt) => true,
        (None, _) | (_, Class::Done) => false,
        (Some(code), _) if BEFORE_THE_ROWS.contains(&code) => false,
        // Memory or disk may run out while a view is filled; otherwise it is not proven that the error came before the commit.
        (Some(code), _) => views || SHORTAGE.contains(&code) || code == QUORUM_TAKEN,
    }
}

/// Codes that occur before the first row was read, or mean that the rows could not be read from the body: nothing was stored, with or
/// without views. Sorted.
#[rustfmt::skip]
const BEFORE_THE_ROWS: &[u32] = &[
    3, 32, 33, 40, 48, 62, 81, 115, 164, 192, 193, 194, 195, 201, 202, 203, 229, 271, 291, 344, 364, 381, 392, 439, 452,
    472, 496, 497, 512, 516, 700, 720, 731, 745, 749, 762, 764,
];

/// Codes of too little memory or disk, which a server detects part by part. Earlier table partitions of a block are committed by then,
/// since a commit covers one part at most. Sorted.
const SHORTAGE: &[u32] = &[173, 241, 243, 776, 777, 778];

/// `UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE`: without `insert_quorum_parallel` another INSERT may come between two parts of a block.
const QUORUM_TAKEN: u32 = 286;

/// Whether the server itself sent the code; otherwise the error is between the gateway and the server.
pub fn is_servers(code: Option<u32>) -> bool {
    code.is_some_and(|code| code != NOT_THE_SERVERS)
}

/// Whether the answer means that the server is overloaded: other requests to it must wait.
pub fn is_pressure(code: Option<u32>, class: Class) -> bool {
    // Without Keeper a replicated table accepts nothing: in doubt for this block, pressure for all others.
    class == Class::BackPressure || code.is_some_and(|code| matches!(code, 225 | 244 | 999))
}

/// Whether what was sent needed more memory than one query may use (`max_memory_usage`), by the server's message: other queries are not the cause.
pub fn is_query_limit(code: Option<u32>, message: &str) -> bool {
    code == Some(MEMORY_LIMIT_EXCEEDED) && OF_THE_QUERY.iter().any(|text| message.contains(text))
}

/// Who must act before rows can be inserted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The person who grants rights: user, password, grants, addresses.
    Access,
    /// The owner of the table: it is missing, has other columns, or accepts no rows.
    Table,
    /// The owner of the settings of the server, or of the user's profile and quota.
    Settings,
    /// The operator of the server: its disk, its parts, its replicas.
    Server,
    /// The operator of a proxy between the gateway and the server: the answer is not the server's.
    Network,
    /// The developers of this program: its request is wrong.
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

    /// What to do, as text.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Access => {
                "check the gateway's user: name and password, or the token and its file; grants and allowed addresses"
            }
            Self::Table => "check the table: it is missing, has other columns, or accepts no rows",
            Self::Settings => "change the settings of the server or of the gateway user's profile",
            Self::Server => "check the server: its disks, parts and replicas",
            Self::Network => {
                "check the proxy between the gateway and ClickHouse: ClickHouse did not send the answer"
            }
            Self::Program => "report a bug of sluice-gateway: the server does not understand its request",
        }
    }
}

/// Who must act on an answer of class [`Class::Halt`], or one that has become that.
pub fn who_acts(code: Option<u32>) -> Actor {
    match code {
        None | Some(NOT_THE_SERVERS | 381) => Actor::Network,
        Some(192..=195 | 291 | 497 | 512 | 516 | 720) => Actor::Access,
        // 62: every server knows the syntax of an INSERT; the message names a limit of the parser, such as max_query_size.
        Some(
            36 | 62 | 115 | 158 | READONLY | 167 | 168 | 307 | 344 | 392 | 396 | 452 | 472 | 496 | 731 | 764,
        ) => Actor::Settings,
        Some(243 | TOO_MANY_PARTS) => Actor::Server,
        // A body that arrives damaged twice was damaged on the way, or is not a frame at all.
        Some(40 | 271) => Actor::Program,
        Some(_) => Actor::Table,
    }
}

fn known(code: u32) -> Option<(Class, Class)> {
    CODES.iter().find(|(known, ..)| *known == code).map(|(_, first, then)| (*first, *then))
}

/// Code 252 has three meanings. The texts are ClickHouse's, unchanged since 21.x.
fn too_many_parts(message: &str) -> Class {
    if message.contains("Too many partitions for single INSERT block") {
        Class::Split
    } else if message.contains("in all partitions in total") {
        // Too many parts of a whole table do not decrease by waiting.
        Class::Halt
    } else {
        Class::BackPressure
    }
}

/// A code that is not in the table: below 500 the server blames the request. Missing rights and unknown names are not the rows' fault, so
/// the rows must not be dead-lettered.
fn unknown_code(http_status: u16) -> Class {
    match http_status {
        401 | 403 | 404 => Class::Halt,
        429 => Class::BackPressure,
        400..=499 => Class::Poison,
        _ => Class::InDoubt,
    }
}

/// No code: the answer may not be ClickHouse's, but a proxy's.
fn no_code(http_status: u16) -> Class {
    match http_status {
        200 => Class::Done,
        413 => Class::Split,
        429 => Class::BackPressure,
        // A proxy's wait for one side timed out.
        408 => Class::InDoubt,
        // Rows must not be dead-lettered because a proxy refused a request.
        300..=499 => Class::Halt,
        _ => Class::InDoubt,
    }
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
