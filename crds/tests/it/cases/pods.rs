//! Rules about what is set within pods, and about whom they may reach and be reached by.

use super::values::Case;

/// Rules about a value by itself. Values are JSON.
pub const PODS: &[Case] = &[
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"env": [{"name": "TZ", "value": "UTC"}, {"name": "POD_NAMES", "value": "a"}]}"#,
            r#"{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]}"#,
        ],
        refused: &[
            r#"{"env": [{"name": "POD_NAME", "value": "a"}]}"#,
            r#"{"env": [{"name": "TZ", "value": "UTC"}, {"name": "NODE_ZONE", "value": "a"}]}"#,
            r#"{"env": [{"name": "SLUICE_LOG", "value": "a"}]}"#,
        ],
        message: "env of podTemplate cannot set POD_NAME",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a.b-1", "key": "B_c"}}}]}"#,
            r#"{"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "a"}}]}}]}"#,
        ],
        refused: &[
            r#"{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A_b", "key": "b"}}}]}"#,
            r#"{"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "A"}}]}}]}"#,
        ],
        message: "name is the name of a Secret",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]}"#,
            r#"{"volumes": [{"name": "a", "configMap": {"name": "a-1"}}]}"#,
        ],
        refused: &[
            r#"{"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "A", "key": "b"}}}]}"#,
            r#"{"volumes": [{"name": "a", "configMap": {"name": "a_1"}}]}"#,
        ],
        message: "name is the name of a ConfigMap",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[r#"{"volumes": [{"name": "a", "secret": {"secretName": "a.b"}}]}"#],
        refused: &[r#"{"volumes": [{"name": "a", "secret": {"secretName": "a/b"}}]}"#],
        message: "secretName is the name of a Secret",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[r#"{"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "files"}}]}"#],
        refused: &[r#"{"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "Files"}}]}"#],
        message: "claimName is the name of a PersistentVolumeClaim",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"env": [{"name": "A"}]}"#,
            r#"{"env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}"#,
        ],
        refused: &[
            r#"{"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}"#,
        ],
        message: "a variable of env has value or valueFrom",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "configs", "emptyDir": {}}, {"name": "my-kafka-ca", "emptyDir": {}}]}"#,
        ],
        refused: &[
            r#"{"volumes": [{"name": "config", "emptyDir": {}}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}, {"name": "queue", "emptyDir": {}}]}"#,
            r#"{"volumes": [{"name": "kafka-ca", "emptyDir": {}}]}"#,
            r#"{"volumes": [{"name": "clickhouse-user", "emptyDir": {}}]}"#,
            r#"{"volumes": [{"name": "sluice-a", "emptyDir": {}}]}"#,
        ],
        message: "volumes of podTemplate cannot be called config or queue",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "b"}}]}"#,
            r#"{"volumes": [{"name": "a", "secret": {"secretName": "a"}}, {"name": "b", "csi": {"driver": "b"}}]}"#,
            r#"{"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "b"}}]}}]}"#,
        ],
        refused: &[
            r#"{"volumes": [{"name": "a"}]}"#,
            r#"{"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}, "configMap": {"name": "b"}}]}"#,
        ],
        message: "each of volumes has exactly one of configMap",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/a"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}]}"#,
        ],
        refused: &[
            r#"{"volumeMounts": [{"name": "queue", "mountPath": "/queue"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "b", "mountPath": "/etc/a"}]}"#,
        ],
        message: "each of volumeMounts names one of volumes",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a/.b/..c/d_e-f.g"}]}"#,
        ],
        refused: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "a"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a/"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a/../etc/sluice"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a//b"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a:b"}]}"#,
        ],
        message: "mountPath of volumeMounts is an absolute path",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/ssl/certs"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/usr/share/zoneinfo"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice-extra"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice-tokens-extra"}]}"#,
        ],
        refused: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice-secrets/kafka-ca"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice-tokens"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/etc/sluice-tokens/kafka-token"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/var/lib"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/var/lib/sluice/queue"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/usr/bin/sluice-gateway"}]}"#,
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/lib64"}]}"#,
        ],
        message: "volumeMounts of podTemplate cannot cover /etc/sluice",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "b"}]}"#,
        ],
        refused: &[
            r#"{"volumes": [{"name": "a", "emptyDir": {}}], "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "b", "subPathExpr": "$(A)"}]}"#,
        ],
        message: "one of volumeMounts has subPath or subPathExpr",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}}"#,
            r#"{"dnsPolicy": "Default"}"#,
            r#"{"dnsConfig": {"options": [{"name": "ndots", "value": "2"}]}}"#,
        ],
        refused: &[
            r#"{"dnsPolicy": "None"}"#,
            r#"{"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}}"#,
            r#"{"dnsPolicy": "None", "dnsConfig": {"nameservers": []}}"#,
        ],
        message: "dnsPolicy None needs dnsConfig.nameservers",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"containerSecurityContext": {"privileged": false, "capabilities": {"add": ["SYS_PTRACE"]}}}"#,
            r#"{"containerSecurityContext": {}}"#,
        ],
        refused: &[r#"{"containerSecurityContext": {"privileged": true, "allowPrivilegeEscalation": true}}"#],
        message: "privileged of containerSecurityContext cannot be true",
    },
    Case {
        pointer: "/spec/networkPolicy",
        taken: &[
            r#"{"metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}"#,
            r#"{"metricsFrom": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {}}]}"#,
            r#"{"metricsFrom": []}"#,
            "{}",
        ],
        refused: &[
            r#"{"metricsFrom": [{}]}"#,
            r#"{"metricsFrom": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}"#,
            r#"{"metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "namespaceSelector": {}}]}"#,
        ],
        message: "each of metricsFrom has ipBlock",
    },
    Case {
        pointer: "/spec/networkPolicy",
        taken: &[
            r#"{"egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}"#,
            r#"{"egressTo": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"a": "b"}}, "podSelector": {}}]}"#,
            r#"{"egressTo": []}"#,
            "{}",
        ],
        refused: &[
            r#"{"egressTo": [{}]}"#,
            r#"{"egressTo": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}"#,
            r#"{"egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "namespaceSelector": {}}]}"#,
        ],
        message: "each of egressTo has ipBlock",
    },
];
