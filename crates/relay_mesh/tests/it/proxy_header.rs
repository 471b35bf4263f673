//! The PROXY header, with any addresses and any bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use relay_mesh::proxy_header::{
    BLOCK_MAX, BadBlock, Checksum, Ends, Found, Header, LEN_USUAL, LINE_MAX, Subject, Tlv, TlvKind,
    Transport, UNIQUE_ID_MAX, Version, read, read_datagram, write_block, write_line,
};

use crate::alloc::allocations;

fn whole(bytes: &[u8], len_max: usize) -> Header<'_> {
    match read(bytes, len_max) {
        Ok(Found::Header(header)) => header,
        other => panic!("{other:?} of {bytes:02x?}"),
    }
}

fn ips() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        // With runs of zeros, which the text form omits.
        (any::<u128>(), any::<u8>(), 0_u32..128)
            .prop_map(|(bits, mask, shift)| bits & u128::from(mask) << shift)
            .prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped())),
    ]
}

fn all_ends() -> impl Strategy<Value = Ends> {
    let address = || (ips(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
    let transport = prop_oneof![Just(Transport::Stream), Just(Transport::Datagram)];
    (transport, address(), address()).prop_map(|(transport, source, destination)| Ends {
        transport,
        source,
        destination,
    })
}

fn subjects() -> impl Strategy<Value = Subject> {
    prop_oneof![
        1 => Just(Subject::Proxy),
        1 => Just(Subject::Unnamed),
        8 => all_ends().prop_map(Subject::Flow),
    ]
}

fn checksums() -> impl Strategy<Value = Checksum> {
    prop_oneof![Just(Checksum::None), Just(Checksum::Crc32c)]
}

/// The ends that a reader returns for the ends that were written.
fn canonical(ends: Ends) -> Ends {
    let canonical =
        |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Ends {
        source: canonical(ends.source),
        destination: canonical(ends.destination),
        ..ends
    }
}

proptest! {
    #[test]
    fn mesh_c1_a_line_that_is_written_is_read(ends in all_ends(), behind in any::<Vec<u8>>()) {
        let ends = Ends { transport: Transport::Stream, ..ends };
        let mut out = Vec::new();
        write_line(&ends, &mut out).unwrap();
        let len = out.len();
        prop_assert!(len <= LINE_MAX);
        out.extend_from_slice(&behind);
        let header = whole(&out, LEN_USUAL);
        prop_assert_eq!((header.version, header.len), (Version::One, len));
        prop_assert_eq!(header.ends(), Some(canonical(ends)));
    }

    #[test]
    fn mesh_c1_a_block_that_is_written_is_read(
        subject in subjects(),
        tlvs in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 0..6),
        checksum in checksums(),
        behind in any::<Vec<u8>>(),
    ) {
        let tlvs: Vec<Tlv<'_>> = tlvs
            .iter()
            .map(|(kind, value)| Tlv { kind: TlvKind(*kind), value })
            .filter(|tlv| tlv.kind != TlvKind::CRC32C)
            .filter(|tlv| tlv.kind != TlvKind::UNIQUE_ID || tlv.value.len() <= UNIQUE_ID_MAX)
            .collect();
        let mut out = behind.clone();
        write_block(&subject, &tlvs, checksum, &mut out).unwrap();
        let (before, written) = out.split_at(behind.len());
        prop_assert_eq!(before, &behind);
        let followed = [written, &behind].concat();
        let header = whole(&followed, BLOCK_MAX);
        prop_assert_eq!((header.version, header.len), (Version::Two, written.len()));
        let expected = match subject {
            Subject::Flow(ends) => Subject::Flow(canonical(ends)),
            Subject::Proxy | Subject::Unnamed => subject,
        };
        prop_assert_eq!(header.subject, expected);
        let read: Vec<_> = header.tlvs.clone().filter(|tlv| tlv.kind != TlvKind::CRC32C).collect();
        prop_assert_eq!(read, tlvs);
        prop_assert_eq!(header.tlv(TlvKind::CRC32C).is_some(), checksum == Checksum::Crc32c);

        let is_stream = header.ends().is_some_and(|ends| ends.transport == Transport::Stream);
        let datagram = read_datagram(&followed, BLOCK_MAX);
        if is_stream {
            prop_assert_eq!(datagram, Err(BadBlock::Family.into()));
        } else {
            prop_assert_eq!(datagram, Ok(Some(header)));
        }
    }

    /// The parser does not read past a header, and returns the same header however much follows it.
    #[test]
    fn mesh_c1_any_bytes_are_read_or_refused_and_nothing_behind_them(
        start in prop_oneof![
            Just(&b""[..]),
            Just(&b"PROXY TCP4 "[..]),
            Just(&b"PROXY TCP6 "[..]),
            Just(&b"PROXY UNKNOWN"[..]),
            Just(&b"\r\n\r\n\0\r\nQUIT\n"[..]),
            Just(&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"[..]),
            Just(&b"\r\n\r\n\0\r\nQUIT\n\x21\x22\0"[..]),
            Just(&b"\r\n\r\n\0\r\nQUIT\n\x20\0\0"[..]),
        ],
        rest in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\r'), 1 => Just(b'\n')], 0..200),
        len_max in prop_oneof![0_usize..200, Just(LEN_USUAL), Just(BLOCK_MAX)],
    ) {
        let bytes = [start, &rest].concat();
        match read(&bytes, len_max) {
            Ok(Found::Header(header)) => {
                prop_assert!(header.len <= len_max.min(bytes.len()));
                let alone = whole(&bytes[..header.len], len_max);
                prop_assert_eq!(&alone, &header);
                let shorter = read(&bytes[..header.len - 1], len_max);
                prop_assert!(matches!(shorter, Ok(Found::Partial { .. })), "{:?}", shorter);
            }
            Ok(Found::Partial { needed }) => {
                prop_assert!(bytes.len() < needed && needed <= len_max);
            }
            Ok(Found::Nothing) | Err(_) => {}
        }
        let _taken = read_datagram(&bytes, len_max);
    }
}

#[test]
fn mesh_c1_reading_and_writing_allocate_nothing() {
    let address = |text: &str| text.parse().unwrap();
    let ends = Ends {
        transport: Transport::Stream,
        source: address("[2001:db8::9]:4000"),
        destination: address("203.0.113.1:9"),
    };
    let tlvs = [Tlv {
        kind: TlvKind::SESSION_ID,
        value: &[7; 16],
    }];
    let mut out = Vec::with_capacity(LEN_USUAL);
    let before = allocations();
    for _ in 0..100 {
        out.clear();
        write_line(&ends, &mut out).unwrap();
        assert_eq!(whole(&out, LEN_USUAL).ends(), Some(canonical(ends)));
        out.clear();
        write_block(&Subject::Flow(ends), &tlvs, Checksum::Crc32c, &mut out).unwrap();
        assert_eq!(whole(&out, LEN_USUAL).tlvs.count(), 2);
    }
    assert_eq!(allocations() - before, 0);
}
