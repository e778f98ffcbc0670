//! How many gateways of how many, in words.

use crate::ground::words::{form, plural};

/// So many of all gateways, with what they are.
pub(super) fn share(count: u32, all: u32, (one, more): (&str, &str)) -> String {
    format!("{count} of {} {}", plural(all, "gateway"), form(all, one, more))
}

/// Gateways that exist beside those wanted, which may be fewer.
pub(super) fn existing(there: u32, wanted: u32) -> String {
    if there <= wanted {
        return share(there, wanted, ("exists", "exist"));
    }
    let exist = form(there, "exists", "exist");
    format!("{} {exist}, and {wanted} {} wanted", plural(there, "gateway"), form(wanted, "is", "are"))
}
