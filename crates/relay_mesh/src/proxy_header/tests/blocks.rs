//! Version 2.

use super::*;

fn subject(bytes: &[u8]) -> Subject {
    let header = whole(bytes, BLOCK_MAX);
    assert_eq!(header.version, Version::Two);
    assert_eq!(header.len, bytes.len());
    header.subject
}

fn written(subject: &Subject, tlvs: &[Tlv<'_>], checksum: Checksum) -> Vec<u8> {
    let mut out = Vec::new();
    write_block(subject, tlvs, checksum, &mut out).unwrap();
    out
}

/// The bytes of the specification's table, for UDP and TCP over both families and the mixed case.
#[test]
fn pgx10_headers_are_those_of_the_protocol() {
    let flow = |transport, source: &str| {
        let flow = ends(transport, source, "127.0.0.1:9");
        written(&Subject::Flow(flow), &[], Checksum::None)
    };
    let v4 = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0C\xCB\0\x71\x09\x7F\0\0\x01\x0F\xA0\0\x09";
    let datagram = Transport::Datagram;
    assert_eq!(flow(datagram, "203.0.113.9:4000"), v4);
    assert_eq!(flow(datagram, "[::ffff:203.0.113.9]:4000"), v4);
    let mut stream = v4.to_vec();
    stream[13] = 0x11;
    assert_eq!(flow(Transport::Stream, "203.0.113.9:4000"), stream);
    let mut mixed =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x22\0\x24\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x09".to_vec();
    mixed.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0\xFF\xFF\x7F\0\0\x01\x0F\xA0\0\x09");
    assert_eq!(flow(datagram, "[2001:db8::9]:4000"), mixed);
    mixed[13] = 0x21;
    assert_eq!(flow(Transport::Stream, "[2001:db8::9]:4000"), mixed);
    for (subject, command) in [(Subject::Proxy, 0x20), (Subject::Unnamed, 0x21)] {
        assert_eq!(
            written(&subject, &[], Checksum::None),
            block(command, 0, &[])
        );
    }
}

#[test]
fn mesh_c1_a_datagram_of_a_stream_is_refused() {
    let stream = block(0x21, 0x11, &V4);
    let found = read_datagram(&stream, LEN_USUAL);
    assert_eq!(found, Err(BadBlock::Family.into()));
    let cut = read_datagram(&stream[..16], LEN_USUAL);
    assert_eq!(cut, Err(BadBlock::Short.into()));
    let other_version = block(0x11, 0x12, &V4);
    let other = read_datagram(&other_version, LEN_USUAL);
    assert_eq!(other, Err(BadBlock::Version.into()));
}

#[test]
fn mesh_c1_extensions_come_as_they_are() {
    let tlvs = [
        (TlvKind::ALPN, &b"h2"[..]),
        (TlvKind::AUTHORITY, b"game.example"),
        (TlvKind::NOOP, b""),
        (TlvKind::UNIQUE_ID, &[7; UNIQUE_ID_MAX]),
        (TlvKind::SSL, &[1, 0, 0, 0, 0, 0x21, 0, 7, b'T']),
        (TlvKind::NETNS, b"blue"),
        (TlvKind::NOOP, b"again"),
        (TlvKind(0xEF), b"ours"),
        (TlvKind(0xF7), b"tried"),
    ]
    .map(|(kind, value)| Tlv { kind, value });
    let flow = Subject::Flow(ends(Transport::Stream, "[2001:db8::9]:1", "[::1]:2"));
    for subject in [flow, Subject::Proxy, Subject::Unnamed] {
        let bytes = written(&subject, &tlvs, Checksum::None);
        let header = whole(&bytes, LEN_USUAL);
        assert_eq!(header.subject, subject);
        assert!(header.tlvs.clone().eq(tlvs), "{header:?}");
        assert_eq!(header.tlv(TlvKind::AUTHORITY), Some(&b"game.example"[..]));
        assert_eq!(header.tlv(TlvKind::NOOP), Some(&b""[..]), "the first");
        assert_eq!(header.tlv(TlvKind::CRC32C), None);
    }
    assert!(TlvKind(0xE0).is_custom() && TlvKind(0xEF).is_custom());
    assert!(!TlvKind(0xDF).is_custom() && !TlvKind(0xF0).is_custom());
}

#[test]
fn mesh_c1_extensions_that_break_their_bounds_are_refused() {
    let sum = [3, 0, 4, 0, 0, 0, 0];
    for tlvs in [
        &[4][..],
        &[4, 0],
        &[4, 0, 1],
        &[4, 0xFF, 0xFF, 0],
        &[4, 0, 0, 4],
        &[3, 0, 3, 0, 0, 0],
        &[3, 0, 5, 0, 0, 0, 0, 0],
        &[sum, sum].concat(),
        &[&[5, 0, 129][..], &[0; 129]].concat(),
    ] {
        for rest in [&V4[..], &[0; 216]] {
            let family = if rest.len() == 12 { 0x11 } else { 0x31 };
            let bytes = block(0x21, family, &[rest, tlvs].concat());
            assert_eq!(read(&bytes, LEN_USUAL), Err(BadHeader::Tlv), "{tlvs:02x?}");
        }
        // Without a family, the rest is skipped, whatever it contains.
        let bytes = block(0x21, 0, tlvs);
        assert_eq!(whole(&bytes, LEN_USUAL).tlvs.count(), 0, "{tlvs:02x?}");
    }
    // But a checksum is verified if present.
    for bytes in [block(0x21, 0, &sum), block(0x20, 0, &sum)] {
        assert_eq!(read(&bytes, LEN_USUAL), Err(BadHeader::Checksum));
    }
    let own = block(0x20, 0x11, &[&V4[..], &sum].concat());
    assert_eq!(read(&own, LEN_USUAL), Err(BadHeader::Checksum));
}

#[test]
fn mesh_c1_the_length_ends_at_65535_and_at_the_callers_limit() {
    let flow = Subject::Flow(ends(Transport::Stream, "203.0.113.9:1", "127.0.0.1:2"));
    let value = vec![7; 65_535];
    let tlv = |len: usize| Tlv {
        kind: TlvKind(0xE5),
        value: &value[..len],
    };
    let longest = written(&flow, &[tlv(65_520)], Checksum::None);
    assert_eq!(
        (longest.len(), &longest[14..16]),
        (BLOCK_MAX, &[0xFF; 2][..])
    );
    let header = whole(&longest, BLOCK_MAX);
    assert_eq!((header.subject, header.len), (flow, BLOCK_MAX));
    assert_eq!(read(&longest, BLOCK_MAX - 1), Err(BadBlock::TooLong.into()));
    let start = &longest[..16];
    assert_eq!(
        read(start, LEN_USUAL),
        Err(BadBlock::TooLong.into()),
        "at once"
    );

    let usual = written(&flow, &[tlv(LEN_USUAL - 31)], Checksum::None);
    assert_eq!(whole(&usual, LEN_USUAL).len, LEN_USUAL);
    assert_eq!(read(&usual, LEN_USUAL - 1), Err(BadBlock::TooLong.into()));
    assert_eq!(read(&SIGNATURE, 15), Err(BadBlock::TooLong.into()));

    let mut out = b"before".to_vec();
    let mut fails = |tlvs: &[Tlv<'_>], checksum| {
        let error = write_block(&flow, tlvs, checksum, &mut out).unwrap_err();
        assert_eq!(out, b"before");
        error
    };
    let too_long = WriteError::TooLong(BLOCK_MAX + 1);
    assert_eq!(fails(&[tlv(65_521)], Checksum::None), too_long);
    let too_long = WriteError::TooLong(BLOCK_MAX + 7);
    assert_eq!(fails(&[tlv(65_520)], Checksum::Crc32c), too_long);
    for (kind, value) in [
        (TlvKind::CRC32C, &[0; 4][..]),
        (TlvKind::UNIQUE_ID, &[0; UNIQUE_ID_MAX + 1]),
    ] {
        let error = fails(&[Tlv { kind, value }], Checksum::None);
        assert_eq!(error, WriteError::Tlv(kind));
    }
}

/// RFC 3720, section B.4. The field counts as zero at every position and with any content.
#[test]
fn pgx10_the_checksum_is_that_of_the_published_vectors() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    for (bytes, sum) in [
        (vec![0; 32], 0x8A91_36AA),
        (vec![0xFF; 32], 0x62A8_AB43),
        (ascending, 0x46DD_794E),
        (descending, 0x113F_DB5C),
    ] {
        let field_behind = [&bytes[..], &[9; 4]].concat();
        let zero_behind = crc32c::crc32c_append(sum, &[0; 4]);
        assert_eq!(crc32c::crc32c(&bytes), sum);
        assert_eq!(header::checksum_of(&field_behind, 36), zero_behind);
    }
    // An iSCSI read command; its bytes from 4 to 16 are zero.
    let mut read = [0; 48];
    read[..2].copy_from_slice(&[0x01, 0xC0]);
    for (place, byte) in [
        (16, 0x14),
        (22, 0x04),
        (27, 0x14),
        (31, 0x18),
        (32, 0x28),
        (40, 0x02),
    ] {
        read[place] = byte;
    }
    for end in 8..=16 {
        let mut with_field = read;
        with_field[end - 4..end].copy_from_slice(&[0xAB; 4]);
        assert_eq!(header::checksum_of(&with_field, end), 0xD996_3A56, "{end}");
    }
}

/// A bitwise checksum, as a model independent of the implementation.
fn checksum_by_bits(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            let low = sum & 1;
            sum = (sum >> 1) ^ (low * 0x82F6_3B78);
        }
    }
    !sum
}

#[test]
fn pgx10_a_checksum_is_the_last_extension_and_covers_the_whole_header() {
    let flow = Subject::Flow(ends(Transport::Datagram, "203.0.113.9:4000", "127.0.0.1:9"));
    let tlvs = [Tlv {
        kind: TlvKind::SESSION_ID,
        value: &[0x5E; 16],
    }];
    let bytes = written(&flow, &tlvs, Checksum::Crc32c);
    assert_eq!(bytes.len(), 28 + 19 + 7);
    let (start, sum) = bytes.split_last_chunk::<4>().unwrap();
    assert!(start.ends_with(&[3, 0, 4]));
    let zeroed = [start, &[0; 4]].concat();
    assert_eq!(u32::from_be_bytes(*sum), checksum_by_bits(&zeroed));
    let header = whole(&bytes, LEN_USUAL);
    assert_eq!(header.tlv(TlvKind::SESSION_ID), Some(&[0x5E; 16][..]));
    assert_eq!(header.tlv(TlvKind::CRC32C), Some(&sum[..]));
    // Also if it is the first extension, put there by another proxy.
    let mut first = block(
        0x21,
        0x12,
        &[&V4[..], &[3, 0, 4, 0, 0, 0, 0, 4, 0, 1, 9]].concat(),
    );
    let sum = checksum_by_bits(&first).to_be_bytes();
    first[31..35].copy_from_slice(&sum);
    assert_eq!(subject(&first), flow);
    first[38] ^= 1;
    assert_eq!(read(&first, LEN_USUAL), Err(BadHeader::Checksum));
}
