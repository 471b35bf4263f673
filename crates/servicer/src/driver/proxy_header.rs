//! The PROXY protocol header, version 2, with which an exit names the player of a flow.
//!
//! W. Tarreau, "The PROXY protocol, versions 1 and 2", section 2.2: 12 bytes of signature, version
//! and command, family and protocol, the length of the rest, then source and destination address,
//! source and destination port, and extensions, which are skipped.

use std::net::{IpAddr, SocketAddr};

/// The first bytes of every header. No datagram of our protocols begins with its first byte.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, command, family, length.
const FIXED_LEN: usize = 16;
/// Maximum length of the rest. An exit needs no more.
const REST_MAX: usize = 240;

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyHeader {
    /// The player's address; `None` if the exit speaks for itself or names no address.
    pub(super) source: Option<SocketAddr>,
    /// Length of the header, bytes.
    pub(super) len: usize,
}

/// The signature is present, but the header is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadHeader;

impl ProxyHeader {
    /// Parses the header at the start of `datagram`; `None` if there is none.
    pub(super) fn read(datagram: &[u8]) -> Result<Option<Self>, BadHeader> {
        let [first, ..] = SIGNATURE;
        if datagram.first() != Some(&first) {
            return Ok(None);
        }
        let (fixed, rest) = datagram.split_first_chunk::<FIXED_LEN>().ok_or(BadHeader)?;
        let [signature @ .., command, family, high, low] = fixed;
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if *signature != SIGNATURE || len > REST_MAX {
            return Err(BadHeader);
        }
        let addresses = rest.get(..len).ok_or(BadHeader)?;
        let source = match command {
            // LOCAL, for example a health check: the addresses are ignored.
            0x20 => None,
            0x21 => source(*family, addresses)?,
            _ => return Err(BadHeader),
        };
        Ok(Some(Self {
            source,
            len: len.saturating_add(FIXED_LEN),
        }))
    }
}

/// Parses the source address of a datagram flow.
fn source(family: u8, addresses: &[u8]) -> Result<Option<SocketAddr>, BadHeader> {
    let (ip, port) = match family {
        // AF_UNSPEC.
        0x00 => return Ok(None),
        0x12 => {
            let [a, b, c, d, _, _, _, _, high, low, _, _] =
                addresses.first_chunk::<12>().ok_or(BadHeader)?;
            (IpAddr::from([*a, *b, *c, *d]), [*high, *low])
        }
        0x22 => {
            let [ip @ .., high, low, _, _] = addresses.first_chunk::<36>().ok_or(BadHeader)?;
            let (ip, _) = ip.split_first_chunk::<16>().ok_or(BadHeader)?;
            (IpAddr::from(*ip).to_canonical(), [*high, *low])
        }
        _ => return Err(BadHeader),
    };
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(BadHeader);
    }
    Ok(Some(SocketAddr::new(ip, u16::from_be_bytes(port))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&[command, family]);
        header.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
        header.extend_from_slice(rest);
        header
    }

    const V4: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 1, 0x0F, 0xA0, 0, 9];

    fn v6(ip: &str) -> Vec<u8> {
        let ip: std::net::Ipv6Addr = ip.parse().unwrap();
        [&ip.octets()[..], &[1; 16], &[0x0F, 0xA0, 0, 9]].concat()
    }

    #[test]
    fn a_header_of_each_family_has_the_length_that_the_protocol_names() {
        for (header, source, len) in [
            (header(0x21, 0x12, &V4), Some("203.0.113.9:4000"), 28),
            (
                header(0x21, 0x22, &v6("2001:db8::9")),
                Some("[2001:db8::9]:4000"),
                52,
            ),
            (
                header(0x21, 0x22, &v6("::ffff:203.0.113.9")),
                Some("203.0.113.9:4000"),
                52,
            ),
            (
                header(0x21, 0x12, &[&V4[..], &[4, 0, 1, 7]].concat()),
                Some("203.0.113.9:4000"),
                32,
            ),
            (header(0x20, 0x12, &V4), None, 28),
            (header(0x20, 0x00, &[]), None, 16),
            (header(0x21, 0x00, &[]), None, 16),
        ] {
            let source = source.map(|text| text.parse().unwrap());
            let datagram = [&header[..], &[0xC1; 1_200]].concat();
            let read = ProxyHeader::read(&datagram);
            assert_eq!(read, Ok(Some(ProxyHeader { source, len })));
        }
    }

    #[test]
    fn what_begins_otherwise_is_no_header() {
        for datagram in [&[][..], &[0xC1; 1_200], &[0x40], &[0x0A, 0x0D]] {
            assert_eq!(ProxyHeader::read(datagram), Ok(None));
        }
    }

    #[test]
    fn a_header_that_is_cut_off_or_not_for_datagrams_is_refused() {
        for whole in [
            header(0x21, 0x12, &V4),
            header(0x21, 0x22, &v6("2001:db8::9")),
        ] {
            for len in 1..whole.len() {
                assert_eq!(ProxyHeader::read(&whole[..len]), Err(BadHeader), "{len}");
            }
        }
        for refused in [
            header(0x11, 0x12, &V4),
            header(0x22, 0x12, &V4),
            header(0x21, 0x11, &V4),
            header(0x21, 0x31, &[0; 216]),
            header(0x21, 0x12, &V4[..11]),
            header(0x21, 0x22, &V4),
            header(0x21, 0x12, &[0; 12]),
            header(0x21, 0x12, &[224, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            header(0x21, 0x12, &[&V4[..], &[0; 229]].concat()),
        ] {
            assert_eq!(ProxyHeader::read(&refused), Err(BadHeader), "{refused:?}");
        }
    }
}
