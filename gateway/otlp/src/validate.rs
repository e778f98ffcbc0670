//! A sink that reads all there is and keeps nothing.

use crate::malformed::Malformed;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::span::Span;
use crate::walk::{SpanSink, walk};

/// Reads a whole message, to the bottom of every attribute, and tells how many spans it has.
///
/// It accepts what prost accepts and is a trace, and strings that are not UTF-8. The gateway judges a message by it that is polled before the
/// one in front of it is done with; its own sink accepts the same messages.
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
