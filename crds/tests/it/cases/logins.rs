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
        pointer: "/spec/source/kafka/sasl",
        taken: &[r#"{"mechanism": "Plain", "secretRef": {"name": "a"}}"#],
        refused: &[
            r#"{"mechanism": "Plain"}"#,
            r#"{"mechanism": "ScramSha512", "username": "u"}"#,
            r#"{"mechanism": "Plain", "secretRef": {"name": "a"}, "oauth": {"serviceAccountToken": {"audience": "a"}}}"#,
        ],
        message: "sasl.mechanism Plain, ScramSha256 or ScramSha512 needs secretRef",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "secretRef": {"name": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer"}"#,
            r#"{"mechanism": "OAuthBearer", "secretRef": {"name": "a"}}"#,
            r#"{"mechanism": "OAuthBearer", "username": "u", "oauth": {"serviceAccountToken": {"audience": "a"}}}"#,
        ],
        message: "sasl.mechanism OAuthBearer needs oauth",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}}}"#],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"},
                "clientCredentials": {"tokenEndpoint": "https://a/b", "secretRef": {"name": "a"}}}}"#,
        ],
        message: "one of clientCredentials and serviceAccountToken",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"},
                "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}}}"#],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}, "extensions": {"auth": "x"}}}"#,
        ],
        message: "an extension of oauth cannot have the name auth",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "http://a:1/b", "clientId": "i",
                "secretRef": {"name": "a", "clientSecretKey": "s"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "secretRef": {"name": "a", "clientIdKey": "id"}}}}"#,
        ],
        message: "clientCredentials has clientId and secretRef.clientIdKey",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b",
                "secretRef": {"name": "a"}, "scope": "s", "parameters": {"audience": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b",
                "secretRef": {"name": "a"}, "parameters": {"scope": "s"}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b",
                "secretRef": {"name": "a"}, "parameters": {"grant_type": "password"}}}}"#,
        ],
        message: "parameters of clientCredentials has a name",
    },
    Case {
        pointer: "/spec/sink/clickhouse/credentials",
        taken: &[
            r#"{"secretRef": {"name": "a"}}"#,
            r#"{"username": "u", "secretRef": {"name": "a", "passwordKey": "p"}}"#,
        ],
        refused: &[
            r#"{"username": "u", "secretRef": {"name": "a", "usernameKey": "user"}}"#,
            r#"{"username": "u", "tokenSecretRef": {"name": "a"}}"#,
        ],
        message: "username of credentials needs secretRef",
    },
    Case {
        pointer: "/spec/sink/clickhouse/credentials",
        taken: &[
            r#"{"secretRef": {"name": "a"}}"#,
            r#"{"tokenSecretRef": {"name": "a", "key": "jwt"}}"#,
            r#"{"serviceAccountToken": {"audience": "a", "expirationSeconds": 600}}"#,
        ],
        refused: &[
            "{}",
            r#"{"secretRef": {"name": "a"}, "tokenSecretRef": {"name": "a"}}"#,
            r#"{"tokenSecretRef": {"name": "a"}, "serviceAccountToken": {"audience": "a"}}"#,
        ],
        message: "credentials has exactly one of secretRef",
    },
];
