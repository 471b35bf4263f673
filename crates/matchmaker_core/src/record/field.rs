//! Fields that several records share.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crypto::{AddressList, PublicKey, ServerKeys};
use wire::{ClientId, MatchId, Reader, Seat, Team, Writer};

use super::{DecodeError, Intake, RECORD_BYTES_MAX, VERSION};
use crate::match_table::Seated;
use crate::rule::SEATS_MAX;

/// Checks length and version, and returns the second byte.
pub(super) fn begin(record: &[u8]) -> Result<(u8, Reader<'_>), DecodeError> {
    if record.len() > RECORD_BYTES_MAX {
        return Err(DecodeError::TooLong(record.len()));
    }
    let mut reader = Reader::new(record);
    match reader.u8()? {
        VERSION => {}
        other => return Err(DecodeError::Version(other)),
    }
    Ok((reader.u8()?, reader))
}

/// Fails if bytes are left.
pub(super) const fn end(reader: &Reader<'_>) -> Result<(), DecodeError> {
    if reader.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::Trailing(reader.len()))
    }
}

/// Reads a count of 2 bytes.
pub(super) fn count(
    reader: &mut Reader<'_>,
    range: core::ops::RangeInclusive<usize>,
) -> Result<usize, DecodeError> {
    let found = reader.u16()?;
    let count = usize::from(found);
    if range.contains(&count) {
        Ok(count)
    } else {
        Err(DecodeError::Count(found))
    }
}

/// Writes a count of 2 bytes; callers keep it in range.
pub(super) fn write_count(out: &mut Writer<'_>, count: usize) {
    let [.., high, low] = count.to_be_bytes();
    out.bytes(&[high, low]);
}

pub(super) fn intake(reader: &mut Reader<'_>) -> Result<Intake, DecodeError> {
    let is_open = flag(reader)?;
    Ok(if is_open {
        Intake::Open
    } else {
        Intake::Closed
    })
}

/// Reads flags of which only bit 0 may be set.
pub(super) fn flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeError::Flags(other)),
    }
}

/// Reads a list of at least `least` players.
pub(super) fn players(reader: &mut Reader<'_>, least: usize) -> Result<Vec<Seated>, DecodeError> {
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

pub(super) fn write_players(out: &mut Writer<'_>, players: &[Seated]) {
    write_count(out, players.len());
    for player in players {
        out.u64(player.client_id.0);
        out.u16(player.seat.0);
        out.u8(player.team.0);
    }
}

/// Reads match ids without a copy, in ascending order.
pub(super) fn match_ids<'a>(
    reader: &mut Reader<'a>,
    count: usize,
) -> Result<&'a [[u8; 16]], DecodeError> {
    let (ids, _) = reader.bytes(count.saturating_mul(16))?.as_chunks();
    if ids.is_sorted_by(|a, b| a < b) {
        Ok(ids)
    } else {
        Err(DecodeError::Order)
    }
}

/// Reads match ids and flags without a copy, in ascending order of ids.
pub(super) fn listed<'a>(
    reader: &mut Reader<'a>,
    count: usize,
) -> Result<&'a [Listed], DecodeError> {
    let bytes = reader.bytes(count.saturating_mul(LISTED_BYTES))?;
    let (listed, _) = bytes.as_chunks::<LISTED_BYTES>();
    for [.., flags] in listed {
        if *flags > 1 {
            return Err(DecodeError::Flags(*flags));
        }
    }
    if listed.is_sorted_by(|[a @ .., _], [b @ .., _]| a < b) {
        Ok(listed)
    } else {
        Err(DecodeError::Order)
    }
}

/// A match id and its flags, as a heartbeat lists them.
pub(crate) type Listed = [u8; LISTED_BYTES];

const LISTED_BYTES: usize = 17;

pub(super) fn match_id(reader: &mut Reader<'_>) -> Result<MatchId, DecodeError> {
    Ok(MatchId(reader.array()?))
}

pub(super) fn server_keys(reader: &mut Reader<'_>) -> Result<ServerKeys, DecodeError> {
    let found = reader.u8()?;
    if usize::from(found) > ServerKeys::MAX {
        return Err(DecodeError::Count(found.into()));
    }
    let keys: Vec<_> = (0..found)
        .map(|_| PublicKey::parse(reader.bytes(PublicKey::LEN)?).map_err(|_| DecodeError::Key))
        .collect::<Result<_, _>>()?;
    ServerKeys::new(&keys).ok_or_else(|| DecodeError::Count(found.into()))
}

pub(super) fn write_server_keys(out: &mut Writer<'_>, keys: &ServerKeys) {
    let [.., count] = keys.as_slice().len().to_be_bytes();
    out.u8(count);
    for key in keys.as_slice() {
        out.bytes(&key.0);
    }
}

pub(super) fn addresses(reader: &mut Reader<'_>) -> Result<AddressList, DecodeError> {
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

pub(super) fn write_addresses(out: &mut Writer<'_>, addresses: &AddressList) {
    let [.., count] = addresses.as_slice().len().to_be_bytes();
    out.u8(count);
    for address in addresses.as_slice() {
        let (family, ip) = match address.ip() {
            IpAddr::V4(ip) => (4, ip.to_ipv6_mapped()),
            IpAddr::V6(ip) => (6, ip),
        };
        out.u8(family);
        out.bytes(&ip.octets());
        out.u16(address.port());
    }
}
