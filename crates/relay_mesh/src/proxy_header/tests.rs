//! Valid and invalid headers of the specification.

mod blocks;
mod lines;
mod trusted;

use core::net::SocketAddr;

use super::*;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ends(transport: Transport, source: &str, destination: &str) -> Ends {
    Ends {
        transport,
        source: address(source),
        destination: address(destination),
    }
}

/// The complete header at the start of a stream.
fn whole(bytes: &[u8], len_max: usize) -> Header<'_> {
    match read(bytes, len_max) {
        Ok(Found::Header(header)) => header,
        other => panic!("{other:?} of {bytes:02x?}"),
    }
}

/// A header of version 2.
fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&u16::try_from(rest.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

/// 203.0.113.9, port 4000, to 127.0.0.1, port 9.
const V4: [u8; 12] = [203, 0, 113, 9, 127, 0, 0, 1, 0x0F, 0xA0, 0, 9];

/// Other bytes are the game's own, from the first byte that differs from every header.
#[test]
fn mesh_c1_what_begins_otherwise_is_no_header() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
        b"PROX",
        b"PROXZ TCP4",
        b"\r\n\r\n\0\r\nQUIT\r",
        b"\0",
        b"\r\r",
    ] {
        let is_start = bytes == b"PROX";
        let found = read(bytes, LEN_USUAL).unwrap();
        if is_start {
            assert_eq!(found, Found::Partial { needed: 15 });
        } else {
            assert_eq!(found, Found::Nothing, "{bytes:?}");
        }
        assert_eq!(read_datagram(bytes, LEN_USUAL), Ok(None));
    }
    assert_eq!(read(b"", LEN_USUAL), Ok(Found::Partial { needed: 15 }));
    assert_eq!(read(b"\r", LEN_USUAL), Ok(Found::Partial { needed: 16 }));
    assert_eq!(read_datagram(b"", LEN_USUAL), Ok(None));
    let line = b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n";
    assert_eq!(
        read_datagram(line, LEN_USUAL),
        Ok(None),
        "version 1 knows of no datagrams"
    );
}

/// A stream that arrives byte by byte needs at least one more byte, and at most the header's
/// length, until the header is complete; bytes after it are not read.
#[test]
fn mesh_c1_a_truncated_header_asks_for_more() {
    let mut headers = vec![
        b"PROXY TCP4 203.0.113.9 127.0.0.1 4000 9\r\n".to_vec(),
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN \r\r \r\n".to_vec(),
        block(0x21, 0x11, &[&V4[..], &[4, 0, 3, 1, 2, 3]].concat()),
        block(0x20, 0, &[]),
    ];
    let mut reported = Vec::new();
    let tlvs = [Tlv {
        kind: TlvKind::SESSION_ID,
        value: &[7; 16],
    }];
    let flow = ends(Transport::Datagram, "[2001:db8::9]:1", "[2001:db8::1]:2");
    write_block(&Subject::Flow(flow), &tlvs, Checksum::Crc32c, &mut reported).unwrap();
    headers.push(reported);
    for header in headers {
        for len in 0..header.len() {
            let Ok(Found::Partial { needed }) = read(&header[..len], LEN_USUAL) else {
                panic!("{len} bytes of {header:02x?}");
            };
            assert!(len < needed && needed <= header.len(), "{len}: {needed}");
            if len >= SIGNATURE.len() && is_like(&header) {
                let cut = read_datagram(&header[..len], LEN_USUAL);
                assert_eq!(cut, Err(BadBlock::Short.into()), "{len}");
            }
        }
        let alone = whole(&header, LEN_USUAL);
        assert_eq!(alone.len, header.len());
        let followed = [&header[..], &[0x0D; 2_000]].concat();
        assert_eq!(whole(&followed, LEN_USUAL), alone);
    }
}

/// A caller that waits for `needed` bytes holds less than the limit, whatever arrives, and calls at
/// most three times for a version 2 header of any length.
#[test]
fn mesh_c1_a_stream_that_dribbles_costs_no_more_than_its_limit() {
    let starts = [
        b"PROXY TCP4 ".to_vec(),
        b"PROXY TCP6 ".to_vec(),
        b"PROXY UNKNOWN ".to_vec(),
        b"PROXY UNKNOWN\r\r".to_vec(),
        block(0x21, 0x11, &[0; 520]),
        block(0x20, 0xFF, &[0xFF; 520]),
        SIGNATURE.to_vec(),
    ];
    for start in starts {
        for filler in [b' ', b'1', b'\r', b'\n', 0, 0x21, 0xFF] {
            let mut stream = start.clone();
            stream.resize(700, filler);
            let waits = (0..=stream.len())
                .map(|len| read(&stream[..len], LEN_USUAL))
                .take_while(|found| matches!(found, Ok(Found::Partial { .. })))
                .count();
            assert!(waits <= LEN_USUAL, "{waits} for {start:02x?}, {filler}");
        }
    }
    let header = block(
        0x21,
        0x11,
        &[&V4[..], &[0x30, 0xFF, 0xF0], &vec![1; 65_520]].concat(),
    );
    let (mut len, mut asked) = (0, 0);
    while let Ok(Found::Partial { needed }) = read(&header[..len], BLOCK_MAX) {
        (len, asked) = (needed, asked + 1);
    }
    assert_eq!((len, asked), (header.len(), 3));
}

/// The checksum detects every flipped bit, except in its own type byte, which makes it another
/// extension.
#[test]
fn mesh_c1_a_flipped_bit_is_seen_by_the_checksum() {
    let flow = ends(Transport::Stream, "203.0.113.9:4000", "127.0.0.1:9");
    let tlvs = [Tlv {
        kind: TlvKind::UNIQUE_ID,
        value: b"a name.",
    }];
    let mut header = Vec::new();
    write_block(&Subject::Flow(flow), &tlvs, Checksum::Crc32c, &mut header).unwrap();
    assert_eq!(whole(&header, LEN_USUAL).ends(), Some(flow));
    let kind_at = header.len() - 7;
    assert_eq!(header[kind_at..][..3], [3, 0, 4]);
    for bit in 0..header.len() * 8 {
        let mut flipped = header.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if bit / 8 != kind_at {
            let found = read(&flipped, LEN_USUAL);
            assert!(
                !matches!(found, Ok(Found::Header(_))),
                "bit {bit}: {found:?}"
            );
        }
    }
    *header.last_mut().unwrap() ^= 1;
    assert_eq!(read(&header, LEN_USUAL), Err(BadHeader::Checksum));
    assert_eq!(read_datagram(&header, LEN_USUAL), Err(BadHeader::Checksum));
}

#[test]
fn a_start_is_recognised_by_its_first_bytes() {
    for start in [&b"PROXY"[..], &SIGNATURE] {
        for len in 0..start.len() {
            let (bytes, next) = (&start[..len], start[len]);
            assert_eq!(header_start(bytes), HeaderStart::Partial, "{bytes:?}");
            let other = [bytes, &[next ^ 0x80]].concat();
            assert_eq!(header_start(&other), HeaderStart::Absent, "{other:?}");
        }
        let whole = [start, b"and more"].concat();
        assert_eq!(header_start(start), HeaderStart::Complete);
        assert_eq!(header_start(&whole), HeaderStart::Complete);
    }
}
