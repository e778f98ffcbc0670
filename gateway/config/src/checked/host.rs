//! One spelling for each host, by which two are compared.
//!
//! | spelt | is |
//! | --- | --- |
//! | `ClickHouse`, `clickhouse.` | `clickhouse`: the name of a host has no case, and the dot of the root may be left out |
//! | `[::1]`, `[0:0:0:0:0:0:0:1]` | `[::1]` (RFC 5952) |
//! | `[::ffff:10.0.0.1]` | `10.0.0.1`, which is what a socket connects to |
//! | `10.0.0.01`, `10.1`, `0x0a000001` | `10.0.0.1`: one to four numbers, as `inet_aton` and the URL standard read them |
//!
//! Pure: nothing is resolved, so two names of one server stay two.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host in its usual spelling. An IPv6 address is in brackets. What is no address is a name.
pub(super) fn canonical(host: &str) -> String {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let in_brackets = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match in_brackets.and_then(|address| address.parse::<Ipv6Addr>().ok()) {
        Some(address) => match address.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        },
        None => ipv4(&name).map_or(name, |address| address.to_string()),
    }
}

/// One to four numbers with dots: the last one fills the bytes that are left.
fn ipv4(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = host.split('.').collect();
    let (last, bytes) = parts.split_last().filter(|(_, bytes)| bytes.len() <= 3)?;
    let mut bits = 0_u64;
    for byte in bytes {
        bits = (bits << 8) | u64::from(u8::try_from(number(byte)?).ok()?);
    }
    let (last, bits_left) = (u64::from(number(last)?), 32 - 8 * bytes.len());
    if last >> bits_left != 0 {
        return None;
    }
    u32::try_from((bits << bits_left) | last).ok().map(Ipv4Addr::from_bits)
}

/// A number: hexadecimal behind `0x`, octal behind `0`, or decimal.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        (None, _) => (text, 10),
    };
    // `from_str_radix` takes a sign, too.
    let is_number = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_spelling() {
        for (spelt, expected) in [
            ("ClickHouse.otel.svc.", "clickhouse.otel.svc"),
            ("h", "h"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[2001:DB8::0:1]", "[2001:db8::1]"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
            ("10.0.0.01", "10.0.0.1"),
            ("10.0.0.010", "10.0.0.8"),
            ("10.0.0.1.", "10.0.0.1"),
            ("10.1", "10.0.0.1"),
            ("0x0A000001", "10.0.0.1"),
            ("167772161", "10.0.0.1"),
            ("255.255.255.255", "255.255.255.255"),
            ("0.0.0.0", "0.0.0.0"),
        ] {
            assert_eq!(canonical(spelt), expected, "{spelt}");
            assert_eq!(canonical(expected), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_a_name() {
        for name in [
            "a1",
            "1.2.3.4.5",
            "256.0.0.1",
            "10.0.0.256",
            "10.0.0.08",
            "10..1",
            "+1",
            "0x",
            "[fe80::1%eth0]",
            "[::g]",
            "4294967296",
            "1.16777216",
            "a.1",
            "",
        ] {
            assert_eq!(canonical(name), name);
        }
    }
}
