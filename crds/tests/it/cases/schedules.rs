//! Values that the rules about schedules take and refuse.

use super::values::Case;

const POINTER: &str = "/spec/scaling/schedules";

/// Values of `spec.scaling.schedules`.
pub const SCHEDULES: &[Case] = &[
    Case {
        pointer: POINTER,
        taken: &[
            r#"[{"name": "a", "from": "00:00", "to": "23:59", "minReplicas": 2}]"#,
            r#"[{"name": "a", "from": "22:00", "to": "06:00", "minReplicas": 2, "maxReplicas": 2, "days": ["Sunday"]}]"#,
        ],
        refused: &[r#"[{"name": "a", "from": "00:00", "to": "23:59", "minReplicas": 3, "maxReplicas": 2}]"#],
        message: "minReplicas of a schedule must not be more than its",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"[{"name": "a", "from": "00:00", "to": "23:59", "maxReplicas": 2}]"#],
        refused: &[r#"[{"name": "a", "from": "00:00", "to": "23:59"}]"#],
        message: "a schedule has minReplicas or maxReplicas",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"[{"name": "a", "from": "09:05", "to": "10:00", "maxReplicas": 2}]"#],
        refused: &[
            r#"[{"name": "a", "from": "9:05", "to": "10:00", "maxReplicas": 2}]"#,
            r#"[{"name": "a", "from": "24:00", "to": "10:00", "maxReplicas": 2}]"#,
        ],
        message: "from is hours and minutes",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2}]"#],
        refused: &[r#"[{"name": "a", "from": "09:05", "to": "10:60", "maxReplicas": 2}]"#],
        message: "to is hours and minutes",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "-03:30"}]"#,
        ],
        refused: &[
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "2"}]"#,
            r#"[{"name": "a", "from": "09:05", "to": "23:59", "maxReplicas": 2, "utcOffset": "+15:00"}]"#,
        ],
        message: "utcOffset is a sign, hours and minutes",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "Europe/Berlin"}]"#,
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "America/Argentina/Ushuaia"}]"#,
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "Etc/GMT+5"}]"#,
        ],
        refused: &[
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "+02:00"}]"#,
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": ""}]"#,
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "Europe/"}]"#,
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "../etc/passwd"}]"#,
        ],
        message: "timeZone is a name of the IANA time zone database",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "UTC"}]"#],
        refused: &[
            r#"[{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 2, "timeZone": "UTC", "utcOffset": "+02:00"}]"#,
        ],
        message: "a schedule has timeZone or utcOffset",
    },
];
