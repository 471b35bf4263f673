//! The records of the calls between game servers and matchmaker.
//!
//! All integers are big-endian. The first byte is the version, 1, the second the kind.
//!
//! | kind | from | fields |
//! |---|---|---|
//! | 1 register | server | app id 8, token key 36, capacity 2, flags 1, key count 1 (1 to 4) and identity keys 65 each, address count 1 (1 to 8) and addresses 19 each, match count 2 (0 to 256), running matches |
//! | 2 heartbeat | server | flags 1, match count 2 (0 to 256), match id 16 and flags 1 of each |
//! | 3 result | server | match id 16, result (0 to 1,024) |
//! | 4 left | server | match id 16, client 8 |
//! | 5 bye | server | |
//! | 16 assign | matchmaker | instance 8, match |
//!
//! A match is its id 16, player count 2 (1 to 256) and players of client 8, seat 2, team 1. A running
//! match has flags 1 after its id (bit 0: a player has entered it), and may have lost all players.
//! Matches and ids are in ascending order, so no two are equal. An address is family 4 or 6, 16 bytes
//! (IPv4 mapped, RFC 4291, section 2.5.5.2), port 2, as in a TWT1 token. Flags of a server: bit 0
//! takes new matches. All other bits of flags are 0.
//!
//! A reply of the matchmaker is version 1, status 1 and the fields of [`Reply`]; that of a server is
//! version 1, verdict 1 ([`Verdict`]). A record that breaks the format, has trailing bytes, or is
//! longer than [`RECORD_BYTES_MAX`] is rejected as a whole.

mod to_matchmaker;
mod to_server;

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::RangeInclusive;

use crypto::{AddressList, PublicKey, ServerKeys};
use wire::{ClientId, MatchId, Reader, Seat, Team, Truncated, Writer};

pub(crate) use to_matchmaker::ToMatchmaker;
pub use to_matchmaker::{
    Intake, Register, RunningMatch, encode_bye, encode_heartbeat, encode_left, encode_result,
};
pub(crate) use to_server::Renewal;
pub use to_server::{Assign, RefuseReason, Reply, Verdict};

/// Version of these records.
pub const VERSION: u8 = 1;

/// Longest record, bytes; it fits the body of a hub call.
pub const RECORD_BYTES_MAX: usize = 60 * 1_024;

/// Most matches that one instance may run at a time.
pub const MATCHES_MAX: usize = 256;

/// Most players in a match; the record that assigns such a match has 2,844 bytes.
pub const SEATS_MAX: u16 = 256;

/// Longest result of a match, bytes.
pub const RESULT_BYTES_MAX: usize = 1_024;

/// Most matches that one reply asks an instance to release; the next reply names the rest.
pub const RELEASE_MAX: usize = 32;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Longer than [`RECORD_BYTES_MAX`].
    TooLong(usize),
    /// Fewer bytes than the fields need.
    Truncated,
    /// This many bytes behind the last field.
    Trailing(usize),
    /// Not version 1.
    Version(u8),
    /// No record or reply has this kind here.
    Kind(u8),
    /// A count is out of range.
    Count(u16),
    /// Matches are not in ascending order.
    Order,
    /// A reserved flag is set.
    Flags(u8),
    /// An identity key is no point of the curve.
    Key,
    /// An address has another family than 4 or 6, or its IPv4 mapping is wrong.
    Address,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

wire::error_text! { DecodeError {
    Self::TooLong(len) => "record of {len} bytes is over the limit of {RECORD_BYTES_MAX}",
    Self::Truncated => "fewer bytes than the fields need",
    Self::Trailing(len) => "{len} bytes behind the last field",
    Self::Version(version) => "record version {version}, where {VERSION} is known",
    Self::Kind(kind) => "no record has kind {kind} here",
    Self::Count(count) => "a count of {count} is out of range",
    Self::Order => "matches are not in ascending order",
    Self::Flags(flags) => "flags {flags:#04x} are reserved",
    Self::Key => "an identity key is no point of P-256",
    Self::Address => "an address is neither IPv4 nor IPv6",
}}

/// A player with its seat, as in the records of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seated {
    /// The player.
    pub client_id: ClientId,
    /// The seat.
    pub seat: Seat,
    /// The team.
    pub team: Team,
}

/// A match id and its flags, as a heartbeat lists them.
pub(crate) type Listed = [u8; LISTED_BYTES];

const LISTED_BYTES: usize = 17;

/// Checks length and version, and returns the second byte.
fn begin(record: &[u8]) -> Result<(u8, Reader<'_>), DecodeError> {
    if record.len() > RECORD_BYTES_MAX {
        return Err(DecodeError::TooLong(record.len()));
    }
    let mut reader = Reader::new(record);
    match reader.u8()? {
        VERSION => Ok((reader.u8()?, reader)),
        other => Err(DecodeError::Version(other)),
    }
}

/// Reads a count of 2 bytes.
fn count(reader: &mut Reader<'_>, range: RangeInclusive<usize>) -> Result<usize, DecodeError> {
    let found = reader.u16()?;
    let count = usize::from(found);
    if range.contains(&count) {
        Ok(count)
    } else {
        Err(DecodeError::Count(found))
    }
}

/// Reads flags of which only bit 0 may be set.
fn flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::Flags(other)),
    }
}

/// Reads a list of at least `least` players.
fn players(reader: &mut Reader<'_>, least: usize) -> Result<Vec<Seated>, DecodeError> {
    let count = count(reader, least..=usize::from(SEATS_MAX))?;
    (0..count)
        .map(|_| {
            Ok(Seated {
                client_id: ClientId(reader.u64()?),
                seat: Seat(reader.u16()?),
                team: Team(reader.u8()?),
            })
        })
        .collect()
}

fn write_players(out: &mut Writer<'_>, players: &[Seated]) {
    out.list(players.iter(), |out, player| {
        out.u64(player.client_id.0);
        out.u16(player.seat.0);
        out.u8(player.team.0);
    });
}

/// Reads `count` match ids without a copy, in ascending order.
fn match_ids<'a>(reader: &mut Reader<'a>, count: usize) -> Result<&'a [[u8; 16]], DecodeError> {
    let (ids, _) = reader.bytes(count.saturating_mul(16))?.as_chunks();
    if ids.is_sorted_by(|a, b| a < b) {
        Ok(ids)
    } else {
        Err(DecodeError::Order)
    }
}

/// Reads `count` match ids and flags without a copy, in ascending order of ids.
fn listed<'a>(reader: &mut Reader<'a>, count: usize) -> Result<&'a [Listed], DecodeError> {
    let bytes = reader.bytes(count.saturating_mul(LISTED_BYTES))?;
    let (listed, _) = bytes.as_chunks::<LISTED_BYTES>();
    if let Some([.., flags]) = listed.iter().find(|[.., flags]| *flags > 1) {
        Err(DecodeError::Flags(*flags))
    } else if listed.is_sorted_by(|[a @ .., _], [b @ .., _]| a < b) {
        Ok(listed)
    } else {
        Err(DecodeError::Order)
    }
}

fn match_id(reader: &mut Reader<'_>) -> Result<MatchId, DecodeError> {
    Ok(MatchId(reader.array()?))
}

fn server_keys(reader: &mut Reader<'_>) -> Result<ServerKeys, DecodeError> {
    let found = reader.u8()?;
    if usize::from(found) > ServerKeys::MAX {
        return Err(DecodeError::Count(found.into()));
    }
    let keys: Vec<_> = (0..found)
        .map(|_| PublicKey::parse(reader.bytes(PublicKey::LEN)?).map_err(|_| DecodeError::Key))
        .collect::<Result<_, _>>()?;
    ServerKeys::new(&keys).ok_or_else(|| DecodeError::Count(found.into()))
}

fn write_server_keys(out: &mut Writer<'_>, keys: &ServerKeys) {
    let [.., count] = keys.as_slice().len().to_be_bytes();
    out.u8(count);
    for key in keys.as_slice() {
        out.bytes(&key.0);
    }
}

fn addresses(reader: &mut Reader<'_>) -> Result<AddressList, DecodeError> {
    let found = reader.u8()?;
    if usize::from(found) > AddressList::MAX {
        return Err(DecodeError::Count(found.into()));
    }
    let addresses: Vec<_> = (0..found)
        .map(|_| {
            let family = reader.u8()?;
            let ip = Ipv6Addr::from(reader.array::<16>()?);
            let ip = match family {
                4 => IpAddr::V4(ip.to_ipv4_mapped().ok_or(DecodeError::Address)?),
                6 => IpAddr::V6(ip),
                _ => return Err(DecodeError::Address),
            };
            Ok(SocketAddr::new(ip, reader.u16()?))
        })
        .collect::<Result<_, _>>()?;
    AddressList::new(&addresses).map_err(|_| DecodeError::Count(found.into()))
}
