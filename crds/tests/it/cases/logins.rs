//! Rules about users, passwords and tokens.

use super::values::Case;

/// Values are JSON.
pub const LOGINS: &[Case] = &[
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "Plain", "secretRef": {"name": "a", "passwordKey": "user.password_1-A"}}"#,
            r#"{"mechanism": "Plain", "secretRef": {"name": "a", "passwordKey": ".a"}}"#,
        ],
        refused: &[
            r#"{"mechanism": "Plain", "secretRef": {"name": "a", "passwordKey": "a/b"}}"#,
            r#"{"mechanism": "Plain", "secretRef": {"name": "a", "usernameKey": "."}}"#,
            r#"{"mechanism": "Plain", "secretRef": {"name": "a", "usernameKey": "..a"}}"#,
        ],
        message: "the key of a Secret is",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[r#"{"mechanism": "Plain", "username": "CN=a, O=é:", "secretRef": {"name": "a"}}"#],
        refused: &[
            r#"{"mechanism": "Plain", "username": "a\n", "secretRef": {"name": "a"}}"#,
            r#"{"mechanism": "Plain", "username": "a\u0001", "secretRef": {"name": "a"}}"#,
        ],
        message: "username has no control characters",
    },
    Case {
        pointer: "/spec/sink/clickhouse/credentials",
        taken: &[r#"{"username": "a b", "secretRef": {"name": "a"}}"#],
        refused: &[
            r#"{"username": "a:b", "secretRef": {"name": "a"}}"#,
            r#"{"username": "a\n", "secretRef": {"name": "a"}}"#,
        ],
        message: "username of credentials has no ':'",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "clientId": "a b", "secretRef": {"name": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "clientId": "a\t", "secretRef": {"name": "a"}}}}"#,
        ],
        message: "clientId has no control characters",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "scope": "a b", "secretRef": {"name": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "scope": "é", "secretRef": {"name": "a"}}}}"#,
        ],
        message: "scope is ASCII without control characters",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "https://kafka.example.com"}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a b"}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "clientId": "a", "clientAssertion": {"audience": "é"}}}}"#,
        ],
        message: "audience is visible ASCII without spaces",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}, "extensions": {"logicalCluster": "lkc-1", "a": ""}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"serviceAccountToken": {"audience": "a"}, "extensions": {"logicalCluster": "é"}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "secretRef": {"name": "a"}, "parameters": {"resource": "a\n"}}}}"#,
        ],
        message: "the value of an extension or a parameter is",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a", "secretRef": {"name": "a"}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "http://a:1/b?c=d", "secretRef": {"name": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://u:p@a/b", "secretRef": {"name": "a"}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "login.example.com/token", "secretRef": {"name": "a"}}}}"#,
        ],
        message: "tokenEndpoint is a URL without a user",
    },
    Case {
        pointer: "/spec/source/kafka",
        taken: &[r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"region": "us-gov-east-1"}}}}"#],
        refused: &[
            r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"region": "Frankfurt"}}}}"#,
            r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"region": "eu_central_1"}}}}"#,
        ],
        message: "region is a region of AWS",
    },
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
        message: "oauth has exactly one of clientCredentials, serviceAccountToken and awsMskIam",
    },
    Case {
        pointer: "/spec/source/kafka",
        taken: &[
            r#"{"bootstrapServers": ["b-1.t.a.c2.kafka.eu-central-1.amazonaws.com:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {}}}}"#,
            r#"{"bootstrapServers": ["boot-a.c1.kafka-serverless.us-east-1.amazonaws.com:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"secretRef": {"name": "a"}}}}}"#,
            r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {}, "sasl": {"mechanism": "OAuthBearer",
                "oauth": {"awsMskIam": {"region": "us-gov-east-1", "secretRef": {"name": "a", "accessKeyIdKey": "AWS_ACCESS_KEY_ID",
                "secretAccessKeyKey": "AWS_SECRET_ACCESS_KEY", "sessionTokenKey": "AWS_SESSION_TOKEN"}}}}}"#,
        ],
        refused: &[
            r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {}}}}"#,
            r#"{"bootstrapServers": ["a.kafka.eu-central-1.amazonaws.com.example.com:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {}}}}"#,
        ],
        message: "awsMskIam needs region",
    },
    Case {
        pointer: "/spec/source/kafka",
        taken: &[r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"], "tls": {},
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"region": "eu-central-1"}}}}"#],
        refused: &[r#"{"bootstrapServers": ["kafka:9098"], "topics": ["t"],
                "sasl": {"mechanism": "OAuthBearer", "oauth": {"awsMskIam": {"region": "eu-central-1"}}}}"#],
        message: "awsMskIam needs tls",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "authentication": "Post", "clientAssertion": {"audience": "a", "expirationSeconds": 600}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "secretRef": {"name": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i"}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}, "secretRef": {"name": "a"}}}}"#,
        ],
        message: "clientCredentials has exactly one of secretRef",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientAssertion": {}}}}"#,
        ],
        message: "clientAssertion needs clientId",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}, "parameters": {"audience": "a"}}}}"#,
        ],
        refused: &[
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}, "parameters": {"client_assertion": "a"}}}}"#,
            r#"{"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {"tokenEndpoint": "https://a/b", "clientId": "i",
                "clientAssertion": {}, "parameters": {"client_assertion_type": "a"}}}}"#,
        ],
        message: "which clientAssertion decides",
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
