//! Writes the name of a resource's service.

use super::ROW_LEN_MAX;
use crate::rows::{
    attributes::{AttributeWriter, Error, Set},
    carry::{Carried, Source},
    utf8::mended,
};
use sluice_clickhouse::{room, rowbinary::put_string};
use sluice_otlp::Value;

/// Appends `ServiceName`: the text of the first attribute `service.name`, as stored; empty without one.
pub(super) fn put_name(
    row: &mut Vec<u8>,
    resource: &Set<'_>,
    writer: &mut AttributeWriter,
) -> Result<(), Error> {
    match resource.carry {
        None => put_first(row, resource.attributes.iter(), writer),
        Some(carry) => put_first(row, Carried::new(resource.attributes, carry.uncounted()), writer),
    }
}

/// The service's name at the beginning of what [`put_name`] has written.
#[inline]
pub(super) fn name_in(row: &[u8]) -> &[u8] {
    let (mut length, mut rest) = (0_usize, row);
    let mut shift = 0;
    while let [byte, behind @ ..] = rest {
        length |= usize::from(byte & 0x7F) << shift;
        rest = behind;
        if byte & 0x80 == 0 {
            break;
        }
        shift += 7;
    }
    &rest[..length]
}

fn put_first<'a>(
    row: &mut Vec<u8>,
    mut attributes: impl Source<'a>,
    writer: &mut AttributeWriter,
) -> Result<(), Error> {
    while let Some(attribute) = attributes.next_any() {
        let (key, value) = attribute?;
        if key != b"service.name" {
            continue;
        }
        let Value::String(name) = value else { return writer.write_text(row, value, ROW_LEN_MAX) };
        let name = mended(name, ROW_LEN_MAX)?;
        room::make(row, name.len(), ROW_LEN_MAX)?;
        put_string(row, &name);
        return Ok(());
    }
    room::make(row, 0, ROW_LEN_MAX)?;
    put_string(row, b"");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_behind_its_length() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut row = Vec::new();
            put_string(&mut row, &vec![b'n'; length]);
            row.extend_from_slice(b"rest");
            assert_eq!(name_in(&row), vec![b'n'; length]);
        }
    }
}
