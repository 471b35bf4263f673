//! What an exit tells a game server of whom a flow is for: the header of the PROXY protocol, version 2.
//!
//! W. Tarreau, "The PROXY protocol, versions 1 and 2", section 2.2: 12 bytes of signature, version and
//! command (0x21: for another), family and protocol (0x12: UDP over IPv4, 0x22: over IPv6), the length of
//! the rest, then source and destination address, source and destination port.

use core::net::{IpAddr, SocketAddr};

/// What every header begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Returns `datagram` behind a header that says that it is from `player` and for `server`: 28 bytes more
/// where both have IPv4 addresses, else 52.
pub(crate) fn wrap(player: SocketAddr, server: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let ends = [player, server];
    let mut wrapped = Vec::with_capacity(LEN_MAX.saturating_add(datagram.len()));
    wrapped.extend_from_slice(&SIGNATURE);
    match ends.map(|end| end.ip().to_canonical()) {
        [IpAddr::V4(player), IpAddr::V4(server)] => {
            wrapped.extend_from_slice(&[0x21, 0x12, 0, 12]);
            wrapped.extend_from_slice(&player.octets());
            wrapped.extend_from_slice(&server.octets());
        }
        ips => {
            wrapped.extend_from_slice(&[0x21, 0x22, 0, 36]);
            for ip in ips {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                wrapped.extend_from_slice(&ip.octets());
            }
        }
    }
    for end in ends {
        wrapped.extend_from_slice(&end.port().to_be_bytes());
    }
    wrapped.extend_from_slice(datagram);
    wrapped
}

/// Returns whether `datagram` begins as a header does.
pub(crate) fn is_like(datagram: &[u8]) -> bool {
    datagram.starts_with(&SIGNATURE)
}

/// Of a header between IPv6 addresses.
const LEN_MAX: usize = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_protocol() {
        let wrapped = |player: &str, server: &str| {
            wrap(player.parse().unwrap(), server.parse().unwrap(), b"x")
        };
        let v4 = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0C\xCB\0\x71\x09\x7F\0\0\x01\x0F\xA0\0\x09x";
        assert_eq!(wrapped("203.0.113.9:4000", "127.0.0.1:9"), v4);
        assert_eq!(wrapped("[::ffff:203.0.113.9]:4000", "127.0.0.1:9"), v4);
        let mut v6 =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x22\0\x24\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x09"
                .to_vec();
        v6.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0\xFF\xFF\x7F\0\0\x01\x0F\xA0\0\x09x");
        assert_eq!(wrapped("[2001:db8::9]:4000", "127.0.0.1:9"), v6);
    }
}
