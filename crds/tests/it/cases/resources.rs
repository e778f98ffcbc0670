//! Values that the rules about memory and CPU take and refuse, in both forms.

use super::values::Case;

const POINTER: &str = "/spec/gateway/resources";

/// Values of `spec.gateway.resources`.
pub const RESOURCES: &[Case] = &[
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"limits": {"memory": "128Mi"}}"#,
            r#"{"limits": {"memory": "512Mi"}}"#,
            r#"{"limits": {"memory": "2Gi"}}"#,
        ],
        refused: &[
            r#"{"limits": {"memory": "127Mi"}}"#,
            r#"{"limits": {"memory": "512"}}"#,
            r#"{"limits": {"memory": "512m"}}"#,
            r#"{"limits": {"memory": "512M"}}"#,
            r#"{"limits": {"memory": "0.5Gi"}}"#,
            r#"{"limits": {"memory": "524288Ki"}}"#,
            r#"{"limits": {"memory": "much"}}"#,
        ],
        message: "limits.memory is a whole number of Mi or Gi",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"requests": {"memory": "512Mi"}, "limits": {"memory": "512Mi"}}"#],
        refused: &[
            r#"{"requests": {"memory": "64Mi"}, "limits": {"memory": "512Mi"}}"#,
            r#"{"requests": {"memory": "512M"}, "limits": {"memory": "512Mi"}}"#,
            r#"{"requests": {"memory": "512m"}, "limits": {"memory": "512Mi"}}"#,
        ],
        message: "requests.memory is a whole number of Mi or Gi",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"limits": {"memory": "1Gi"}}"#,
            r#"{"requests": {"memory": "1Gi"}, "limits": {"memory": "1024Mi"}}"#,
            r#"{"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1Gi"}, "memory": "512Mi"}"#,
        ],
        refused: &[
            r#"{"requests": {"memory": "512Mi"}, "limits": {"memory": "1Gi"}}"#,
            r#"{"requests": {"memory": "1Gi"}}"#,
            r#"{"requests": {"memory": "1Gi"}, "limits": {"cpu": 2}}"#,
        ],
        message: "requests.memory must equal limits.memory",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"requests": {"cpu": "10m"}}"#,
            r#"{"requests": {"cpu": "500m"}}"#,
            r#"{"requests": {"cpu": "1.5"}}"#,
            r#"{"requests": {"cpu": "64"}}"#,
            r#"{"requests": {"cpu": 1}}"#,
            r#"{"requests": {"cpu": 64}}"#,
        ],
        refused: &[
            r#"{"requests": {"cpu": "9m"}}"#,
            r#"{"requests": {"cpu": "65"}}"#,
            r#"{"requests": {"cpu": "1k"}}"#,
            r#"{"requests": {"cpu": "-1"}}"#,
            r#"{"requests": {"cpu": "half"}}"#,
            r#"{"requests": {"cpu": ""}}"#,
        ],
        message: "requests.cpu is a number of cores",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"limits": {"cpu": "500m"}}"#,
            r#"{"limits": {"cpu": "256"}}"#,
            r#"{"limits": {"cpu": 256}}"#,
        ],
        refused: &[r#"{"limits": {"cpu": "257"}}"#, r#"{"limits": {"cpu": "many"}}"#],
        message: "limits.cpu is a number of cores",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"requests": {"cpu": "500m"}, "limits": {"cpu": "0.5"}}"#,
            r#"{"requests": {"cpu": "0.3"}, "limits": {"cpu": "300m"}}"#,
            r#"{"requests": {"cpu": 2}}"#,
            r#"{"requests": {"cpu": 2}, "limits": {"cpu": "2"}}"#,
            r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "1500m"}}"#,
            r#"{"cpuRequest": "500m", "cpuLimit": "0.5"}"#,
            r#"{"cpuRequest": "2"}"#,
            r#"{"cpuRequest": "1", "limits": {"cpu": 1}}"#,
        ],
        refused: &[
            r#"{"requests": {"cpu": 2}, "limits": {"cpu": "1999m"}}"#,
            r#"{"requests": {"cpu": "2001m"}, "limits": {"cpu": 2}}"#,
            r#"{"limits": {"cpu": "100m"}}"#,
            r#"{"cpuRequest": "2", "cpuLimit": "1999m"}"#,
            r#"{"cpuLimit": "100m"}"#,
            r#"{"cpuRequest": "2", "limits": {"cpu": 1}}"#,
        ],
        message: "limits.cpu must not be less than requests.cpu",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"memory": "128Mi"}"#,
            r#"{"memory": "1Gi", "limits": {"cpu": 2}}"#,
            r#"{"memory": "1Gi", "limits": {"memory": "1Gi"}}"#,
            // What an earlier version filled in.
            r#"{"memory": "512Mi", "limits": {"memory": "1Gi"}}"#,
        ],
        refused: &[
            r#"{"memory": "1Gi", "limits": {"memory": "2Gi"}}"#,
            r#"{"memory": "1Gi", "limits": {"memory": "512Mi"}}"#,
        ],
        message: "memory is the former name of limits.memory",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"cpuRequest": "2", "requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}"#,
            r#"{"cpuRequest": "2", "requests": {"cpu": "2"}}"#,
            r#"{"cpuRequest": "500m", "requests": {"cpu": 2}}"#,
        ],
        refused: &[
            r#"{"cpuRequest": "2", "requests": {"cpu": "3"}}"#,
            r#"{"cpuRequest": "1", "requests": {"cpu": 3}}"#,
        ],
        message: "cpuRequest is the former name of requests.cpu",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"cpuLimit": "2", "limits": {"memory": "1Gi"}}"#,
            r#"{"cpuLimit": "2", "limits": {"cpu": "2"}}"#,
        ],
        refused: &[
            r#"{"cpuLimit": "2", "limits": {"cpu": "3"}}"#,
            r#"{"cpuLimit": "2", "limits": {"cpu": 3}}"#,
        ],
        message: "cpuLimit is the former name of limits.cpu",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"memory": "128Mi"}"#, r#"{"memory": "512Mi"}"#, r#"{"memory": "2Gi"}"#],
        refused: &[
            r#"{"memory": "127Mi"}"#,
            r#"{"memory": "512"}"#,
            r#"{"memory": "0.5Gi"}"#,
            r#"{"memory": "much"}"#,
        ],
        message: "memory is a whole number of Mi or Gi",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"cpuRequest": "10m"}"#, r#"{"cpuRequest": "1.5"}"#, r#"{"cpuRequest": "64"}"#],
        refused: &[
            r#"{"cpuRequest": "9m"}"#,
            r#"{"cpuRequest": "65"}"#,
            r#"{"cpuRequest": "1k"}"#,
            r#"{"cpuRequest": ""}"#,
        ],
        message: "cpuRequest is a number of cores",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"cpuLimit": "500m"}"#, r#"{"cpuLimit": "256"}"#],
        refused: &[r#"{"cpuLimit": "257"}"#, r#"{"cpuLimit": "many"}"#],
        message: "cpuLimit is a number of cores",
    },
];
