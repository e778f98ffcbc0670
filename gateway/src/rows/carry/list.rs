//! A key-value list with the members that the rules leave it.
//!
//! A list without a rule of its own keeps its key; each member has the dotted path that a `Json` column shows, and the rules for that
//! path. The list is written again on the wire, so that every layout stores the same members. Objects in arrays have no path, so that no
//! rule is for their members. Limits: [`LIST_BYTES_MAX`]; the walk limits the depth.

use super::{LIST_BYTES_MAX, hash, keys::Decider};
use crate::rows::{
    attributes::{Error, RowLimit},
    utf8,
};
use sluice_gateway_config::AttributeAction;
use sluice_otlp::{Attributes, KeyValue, PutError, Value, put_list, put_member, put_value};

impl From<PutError> for Error {
    fn from(error: PutError) -> Self {
        match error {
            PutError::Malformed(malformed) => Self::Malformed(malformed),
            PutError::TooLong => Self::RowTooLarge(RowLimit::Ruled),
        }
    }
}

/// Writes lists.
pub struct ListEditor<'a> {
    pub decider: Decider<'a>,
}

impl ListEditor<'_> {
    /// Whether a rule is for a member of a list with this key.
    pub fn changes(&self, key: &[u8]) -> bool {
        self.decider.keys.reach_below(key)
    }

    /// Appends the fields of an `AnyValue` with the list of this key.
    pub fn put(&self, out: &mut Vec<u8>, key: &[u8], list: &Attributes<'_>) -> Result<(), Error> {
        let mut path = key.to_vec();
        self.put_below(out, (&mut path, LIST_BYTES_MAX), list)
    }

    /// `bytes_max` is for this list: all open levels together have at most [`LIST_BYTES_MAX`].
    fn put_below(
        &self,
        out: &mut Vec<u8>,
        (path, bytes_max): (&mut Vec<u8>, usize),
        list: &Attributes<'_>,
    ) -> Result<(), Error> {
        let mut members = Vec::new();
        for member in list {
            let KeyValue { key, value } = member?;
            let before = path.len();
            path.push(b'.');
            utf8::append(path, key, LIST_BYTES_MAX).map_err(|_| Error::RowTooLarge(RowLimit::Ruled))?;
            let mut content = Vec::new();
            let bytes_left = bytes_max.saturating_sub(members.len());
            if self.put_member_value(&mut content, (&mut *path, bytes_left), value)? {
                put_member(&mut members, key, &content);
            }
            path.truncate(before);
            if members.len() > bytes_max {
                return Err(Error::RowTooLarge(RowLimit::Ruled));
            }
        }
        put_list(out, &members);
        Ok(())
    }

    /// Appends the value of a member. `false` if it is left out.
    fn put_member_value(
        &self,
        out: &mut Vec<u8>,
        (path, bytes_max): (&mut Vec<u8>, usize),
        value: Value<'_>,
    ) -> Result<bool, Error> {
        match (self.decider.decide(path), value) {
            (Some(AttributeAction::Drop), value) => {
                value.check()?;
                return Ok(false);
            }
            (Some(AttributeAction::Hash), value) => match hash::of_value(value)? {
                Some(hash) => put_value(out, Value::String(&hash), LIST_BYTES_MAX)?,
                None => put_value(out, value, bytes_max)?,
            },
            (None, Value::KeyValues(list)) if self.changes(path) => {
                self.put_below(out, (path, bytes_max), &list)?;
            }
            (Some(AttributeAction::Keep) | None, value) => put_value(out, value, bytes_max)?,
        }
        Ok(true)
    }
}
