//! What a tenant's limit counts, with its names in answers and in metrics.

/// Which limit of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    Spans,
    Bytes,
}

impl Measure {
    /// Its name in an answer.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Bytes => "bytes",
        }
    }

    /// The reason for which a request above the limit is refused, as a metric label.
    pub const fn refusal_label(self) -> &'static str {
        match self {
            Self::Spans => "tenant_spans",
            Self::Bytes => "tenant_bytes",
        }
    }
}
