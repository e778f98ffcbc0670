//! A sink that reads everything and keeps nothing.

use crate::malformed::Malformed;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::span::Span;
use crate::walk::{SpanSink, walk};

/// Reads a whole message, including every attribute, and returns the number of its spans.
///
/// It accepts trace messages that prost accepts, and also strings that are not UTF-8. The gateway uses it for a message that is polled
/// while the previous one is still in progress; the gateway's own sink accepts the same messages.
pub fn validate(message: &[u8]) -> Result<u64, Malformed> {
    walk(message, &mut Everything)
}

struct Everything;

impl SpanSink for Everything {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        resource.attributes.check()
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        scope.attributes.check()
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        span.attributes.check()?;
        span.events.iter().try_for_each(|event| event?.attributes.check())?;
        span.links.iter().try_for_each(|link| link?.attributes.check())
    }
}
