//! Version 1: a line of text.

use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str;

use wire::proxy_header::{AddressPair, Ends, Subject, Transport};

use super::header::{Header, Tlvs, Version};
use super::{BadHeader, Found, WriteError, is_start};

/// Longest line, with its end; the specification, section 2.1.
pub const LINE_MAX: usize = 107;
/// Start of every line.
pub(super) const NAME: &[u8] = b"PROXY";
/// `PROXY UNKNOWN` and the line's end.
const LINE_MIN: usize = 15;
/// Starts of lines.
const TCP4: &[u8] = b"PROXY TCP4 ";
const TCP6: &[u8] = b"PROXY TCP6 ";
const UNKNOWN: &[u8] = b"PROXY UNKNOWN";
const END: &[u8] = b"\r\n";

/// Reads a line from bytes that begin with [`NAME`], or are a prefix of it.
pub(super) fn read(bytes: &[u8], len_max: usize) -> Result<Found<'_>, BadHeader> {
    let len_max = len_max.min(LINE_MAX);
    let window = bytes.get(..len_max).unwrap_or(bytes);
    // The end must be present before addresses are parsed, section 2.1; other starts are rejected
    // at once.
    let mut starts = [TCP4, TCP6, UNKNOWN].iter();
    if !starts.any(|start| is_start(window, start)) {
        return Err(BadHeader::Line);
    }
    if let Some(end) = window.windows(END.len()).position(|end| end == END) {
        return Ok(Found::Header(Header {
            version: Version::One,
            subject: subject(window.get(..end).unwrap_or_default())?,
            tlvs: Tlvs::NONE,
            len: end.saturating_add(END.len()),
        }));
    }
    let missing = if window.ends_with(b"\r") { 1 } else { 2 };
    let needed = window.len().saturating_add(missing).max(LINE_MIN);
    if needed > len_max {
        return Err(BadHeader::LineTooLong);
    }
    Ok(Found::Partial { needed })
}

fn subject(line: &[u8]) -> Result<Subject, BadHeader> {
    if let Some(rest) = line.strip_prefix(UNKNOWN) {
        // The rest must be ignored.
        return match rest {
            [] | [b' ', ..] => Ok(Subject::Unnamed),
            _ => Err(BadHeader::Line),
        };
    }
    let ends = if let Some(rest) = line.strip_prefix(TCP4) {
        ends::<Ipv4Addr>(rest)
    } else {
        line.strip_prefix(TCP6).and_then(ends::<Ipv6Addr>)
    };
    ends.map(Subject::Flow).ok_or(BadHeader::Line)
}

/// Reads two addresses and two ports, separated by single spaces.
fn ends<A: str::FromStr + Into<IpAddr>>(fields: &[u8]) -> Option<Ends> {
    let mut fields = str::from_utf8(fields).ok()?.split(' ');
    // The standard library's parsers reject leading zeros and zones.
    let mut address = || fields.next()?.parse::<A>().ok().map(Into::into);
    let addresses = [address()?, address()?];
    let ports = [port(fields.next()?)?, port(fields.next()?)?];
    let is_end = fields.next().is_none();
    is_end.then(|| Ends::new(Transport::Stream, addresses, ports))
}

/// Reads a decimal port without a leading zero.
fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    (is_number && !has_zero).then(|| text.parse().ok())?
}

/// Appends a header of version 1 to `out`: at most 104 bytes.
///
/// If only one address is IPv4, it is written as the IPv4-mapped IPv6 address, in hexadecimal
/// groups as section 2.1 of the specification requires.
///
/// # Errors
///
/// [`WriteError::Datagrams`] if `ends` are not of a stream; nothing is appended then.
pub fn write_line(ends: &Ends, out: &mut Vec<u8>) -> Result<(), WriteError> {
    if ends.transport != Transport::Stream {
        return Err(WriteError::Datagrams);
    }
    let mut text = Text(out);
    let [source_port, destination_port] = ends.ports();
    let written = match ends.pair() {
        AddressPair::V4([source, destination]) => write!(text, "PROXY TCP4 {source} {destination}"),
        AddressPair::V6([source, destination]) => {
            let [source, destination] = [source, destination].map(Groups);
            write!(text, "PROXY TCP6 {source} {destination}")
        }
    };
    // Writing to a vector does not fail.
    written
        .and_then(|()| write!(text, " {source_port} {destination_port}\r\n"))
        .unwrap_or_default();
    Ok(())
}

/// An IPv6 address in hexadecimal groups only.
struct Groups(Ipv6Addr);

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv4_mapped() {
            Some(ip) => {
                let bits = ip.to_bits();
                write!(f, "::ffff:{:x}:{:x}", bits >> 16, bits & 0xFFFF)
            }
            None => self.0.fmt(f),
        }
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
