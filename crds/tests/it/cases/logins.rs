//! Rules about users, passwords and tokens.

use super::values::Case;

/// Values are JSON.
pub const LOGINS: &[Case] = &[
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "Plain", "secretRef": {"name": "a"}}"#,
            r#"{"mechanism": "Plain", "username": "u", "secretRef": {"name": "a", "passwordKey": "p"}}"#,
            r#"{"mechanism": "ScramSha512", "secretRef": {"name": "a", "usernameKey": "user", "passwordKey": ".p-_9"}}"#,
        ],
        refused: &[
            r#"{"mechanism": "Plain", "username": "u", "secretRef": {"name": "a", "usernameKey": "user"}}"#,
        ],
        message: "sasl has username and secretRef.usernameKey",
    },
    Case {
        pointer: "/spec/sink/clickhouse/credentials",
        taken: &[
            r#"{"secretRef": {"name": "a"}}"#,
            r#"{"username": "u", "secretRef": {"name": "a", "passwordKey": "p"}}"#,
        ],
        refused: &[r#"{"username": "u", "secretRef": {"name": "a", "usernameKey": "user"}}"#],
        message: "credentials has username and secretRef.usernameKey",
    },
];
