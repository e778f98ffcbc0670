//! Rules about the form of a text, each with what is said of another form.
//!
//! A `pattern` of the schema would be shorter, but an API server answers with its regular expression and nothing else. Each rule is cheap: it
//! matches a text of bounded length once.

use kube::core::Rule;

/// A text that matches `pattern`, which has neither an apostrophe nor a backslash.
pub(crate) fn form(pattern: &str, message: &str) -> Rule {
    Rule::new(format!("self.matches('{pattern}')")).message(message)
}

/// The form of the name of an object, in words.
pub const OBJECT_NAME_FORM: &str =
    "a-z, 0-9, '-' and '.', with a letter or digit at both ends and beside each '.'";

/// The name of an object, by Kubernetes' own rules. `what` names the field and the kind.
pub(crate) fn object_name(what: &str, example: &str) -> Rule {
    form(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        &format!("{what}: {OBJECT_NAME_FORM}, such as {example}"),
    )
}

/// The name of a Secret, whose field is called name.
pub(crate) fn secret_name() -> Rule {
    object_name("name is the name of a Secret", "kafka-user")
}

/// A key in a Secret, by Kubernetes' own rules.
pub(crate) fn secret_key() -> Rule {
    form(
        "^[.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$",
        "the key of a Secret is a-z, A-Z, 0-9, '-', '_' and '.', such as tls.crt; not '.', and none that begins with '..'",
    )
}

/// The value of a label, by Kubernetes' own rules.
pub(crate) fn label_value() -> Rule {
    form(
        "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$",
        "the value of a label is empty, or a-z, A-Z, 0-9, '-', '_' and '.' with a letter or digit at both ends, such as team-a",
    )
}

/// Whom a token is for.
pub(crate) fn audience() -> Rule {
    form("^[!-~]+$", "audience is visible ASCII without spaces, such as https://kafka.example.com")
}

/// The type of a path of a JSON column.
pub(crate) fn path_type() -> Rule {
    form(
        "^((Bool|U?Int(8|16|32|64)|Float(32|64)|String)|Nullable[(](Bool|U?Int(8|16|32|64)|Float(32|64)|String)[)])$",
        "the type of a path is Bool, Int8 to Int64, UInt8 to UInt64, Float32, Float64 or String, or Nullable() of one, such as \
         Nullable(String)",
    )
}

/// The value of a SASL extension, or of a parameter of a request for a token.
pub(crate) fn sasl_extension() -> Rule {
    form(
        "^[ -~]*$",
        "the value of an extension or a parameter is ASCII without control characters, such as lkc-abc123",
    )
}
