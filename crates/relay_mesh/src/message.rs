//! Control messages between nodes, on the reliable ordered channel of their session.
//!
//! A message is a type byte and a body that fills the rest. All numbers are big-endian. Decoders
//! are strict: they refuse everything that is not specified here, and the node counts it.
//!
//! | type | message | body |
//! |---|---|---|
//! | 0x01 | hello, first on every session | version 1 (= 1), node record of the sender |
//! | 0x02 | node record | as in [`NodeRecord`](crate::link_state::NodeRecord) |
//! | 0x03 | link record | as in [`LinkRecord`](crate::link_state::LinkRecord) |
//! | 0x04 | digest | count 2 (≤ 1,024), count × (short id 8, state 8), ascending |
//! | 0x05 | request | count 2 (≤ 64), count × (short id 8, link record version held 8), ascending |
//! | 0x10 | link deltas | 1 to 64 of [`LinkDelta`](crate::link_state::LinkDelta) |
//! | 0x11 | have | count 2 (≤ 1,024), count × (short id 8, low half of the link record's version 4), ascending |
//! | 0x12 | graft | nothing |
//! | 0x13 | prune | nothing |
//! | 0x14 | part | nothing |
//!
//! The state of an origin is the version of its link record, or of the newest delta to it. The
//! answer to a request has, for each origin named, everything newer than the version held: node
//! record, link record, delta. [`gossip`](crate::gossip) uses have, graft, prune and part.
//!
//! Other messages of a session have type bytes of the same range. Their own modules decode them,
//! and [`Message::decode`](crate::link_state::Message::decode) refuses them:
//!
//! | type | message | channel |
//! |---|---|---|
//! | 0x06 | [`LinkTerms`](crate::link_terms::LinkTerms) | reliable |
//! | 0x07 | [`KeyEpoch`](crate::link_terms::KeyEpoch) | reliable |
//! | 0x20, 0x21 | [`RouteRequest`](crate::route_request::RouteRequest), [`RouteReply`](crate::route_request::RouteReply) | reliable |
//! | 0x22 | [`RouteRelease`](crate::route_request::RouteRelease) | reliable |
//! | 0x28 to 0x2B | [`FlowMessage`](crate::flow_message::FlowMessage): open, opened, close, open a tunnel | reliable |
//! | 0x2C | [`GameEdge`](crate::game_edge::GameEdge)s | reliable |
//! | 0x2D | [`FlowMessage::OpenMany`](crate::flow_message::FlowMessage::OpenMany) | reliable |
//! | 0x30 to 0x32 | [`ConfigMessage`](crate::signed_config::ConfigMessage) | reliable |
//! | 0x80, 0x81 | [`Probe`](crate::measure::Probe), [`Echo`](crate::measure::Echo) | unreliable |
//! | 0x84 | [`PathProbe`](crate::path_probe::PathProbe) | none: in the probe flow of its path |
//! | 0x85 | [`PathEcho`](crate::path_probe::PathEcho) | unreliable, and in the probe flow |
//! | 0x86 | a datagram of the session ([`SESSION_DATAGRAM`](crate::flow_message::flow_code::SESSION_DATAGRAM)) | none: in the probe flow of a path |
//! | 0x87 | [`PathPadding`](crate::path_probe::PathPadding) | none: in the probe flow of its path |
//! | 0x88, 0x89 | [`Detoured`](crate::detour::Detoured): request to forward, forwarded | unreliable |
//! | 0x8A | [`FlowDatagram`](crate::flow_message::FlowDatagram) | unreliable |
//!
//! All other type bytes are unassigned, and refused.

use core::net::{IpAddr, SocketAddr};

use wire::{Reader, Truncated, Writer};

/// Type bytes.
pub mod code {
    /// First message of a session, from both sides.
    pub const HELLO: u8 = 0x01;
    /// Identity, profile and neighbours of an origin.
    pub const NODE_RECORD: u8 = 0x02;
    /// Measurements of an origin.
    pub const LINK_RECORD: u8 = 0x03;
    /// Link records that a node holds.
    pub const DIGEST: u8 = 0x04;
    /// Origins that a node requests records of.
    pub const REQUEST: u8 = 0x05;
    /// Frames that a node accepts; see [`LinkTerms`](crate::link_terms::LinkTerms).
    pub const LINK_TERMS: u8 = 0x06;
    /// Key epoch of a shard; see [`KeyEpoch`](crate::link_terms::KeyEpoch).
    pub const KEY_EPOCH: u8 = 0x07;
    /// Changes between link records, authenticated hop by hop.
    pub const LINK_DELTA: u8 = 0x10;
    /// Records held, for lazy push.
    pub const HAVE: u8 = 0x11;
    /// Requests eager push.
    pub const GRAFT: u8 = 0x12;
    /// Declines eager push.
    pub const PRUNE: u8 = 0x13;
    /// Ends gossip over a link.
    pub const PART: u8 = 0x14;
    /// Reserves or binds labels; see [`RouteRequest`](crate::route_request::RouteRequest).
    pub const ROUTE_REQUEST: u8 = 0x20;
    /// The labels, or the reason for a refusal.
    pub const ROUTE_REPLY: u8 = 0x21;
    /// Releases labels; see [`RouteRelease`](crate::route_request::RouteRelease).
    pub const ROUTE_RELEASE: u8 = 0x22;
    /// Version of the signed configuration that a node holds.
    pub const CONFIG_VERSION: u8 = 0x30;
    /// Requests a piece of it.
    pub const CONFIG_REQUEST: u8 = 0x31;
    /// A piece of it.
    pub const CONFIG: u8 = 0x32;
    /// A probe; unreliable channel.
    pub const PROBE: u8 = 0x80;
    /// The answer to a probe; unreliable channel.
    pub const ECHO: u8 = 0x81;
    /// A datagram to forward; unreliable channel; see [`Detoured`](crate::detour::Detoured).
    pub const PASS_ON: u8 = 0x88;
    /// A forwarded datagram; unreliable channel.
    pub const PASSED_ON: u8 = 0x89;
}
/// Why bytes are not a valid message or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end within a field.
    Truncated,
    /// Bytes follow the last field.
    Trailing,
    /// No message has this type.
    UnknownType(u8),
    /// A hello of another version.
    UnknownVersion(u8),
    /// A count or length is over its limit.
    OverLimit {
        /// The value found.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// Entries are not in strictly ascending order.
    Unordered,
    /// A field has an undefined value.
    BadValue,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

wire::error_text! { DecodeError {
    Self::Truncated => "the bytes end within a field",
    Self::Trailing => "bytes follow the last field",
    Self::UnknownType(kind) => "no message has the type {kind:#04x}",
    Self::UnknownVersion(version) => "hello has version {version}, expected 1",
    Self::OverLimit { found, max } => "{found} is over the limit of {max}",
    Self::Unordered => "entries are not in ascending order",
    Self::BadValue => "a field has an unknown value",
}}

/// Starts to read a message of type `kind`.
pub(crate) fn of_type(kind: u8, bytes: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        found if found == kind => Ok(reader),
        found => Err(DecodeError::UnknownType(found)),
    }
}

/// Returns `message` if no bytes follow it.
pub(crate) fn whole<T>(reader: &Reader<'_>, message: T) -> Result<T, DecodeError> {
    if reader.is_empty() {
        Ok(message)
    } else {
        Err(DecodeError::Trailing)
    }
}

/// Returns `found` if it is within the limit.
pub(crate) const fn at_most(found: usize, max: usize) -> Result<usize, DecodeError> {
    if found <= max {
        Ok(found)
    } else {
        Err(DecodeError::OverLimit { found, max })
    }
}

/// Writes family, 4 or 6, ip and port.
pub(crate) fn write_address(writer: &mut Writer<'_>, address: SocketAddr) {
    writer.u8(if address.is_ipv6() { 6 } else { 4 });
    write_ip(writer, address.ip());
    writer.u16(address.port());
}

pub(crate) fn write_ip(writer: &mut Writer<'_>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => writer.bytes(&ip.octets()),
        IpAddr::V6(ip) => writer.bytes(&ip.octets()),
    }
}

/// Reads what [`write_address`] wrote.
pub(crate) fn read_address(reader: &mut Reader<'_>) -> Result<SocketAddr, DecodeError> {
    let family = reader.u8()?;
    let ip = read_ip(reader, family)?;
    Ok(SocketAddr::new(ip, reader.u16()?))
}

pub(crate) fn read_ip(reader: &mut Reader<'_>, family: u8) -> Result<IpAddr, DecodeError> {
    match family {
        4 => Ok(IpAddr::from(reader.array::<4>()?)),
        6 => Ok(IpAddr::from(reader.array::<16>()?)),
        _ => Err(DecodeError::BadValue),
    }
}
