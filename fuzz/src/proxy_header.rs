//! PROXY protocol headers, from streams and datagrams.

use relay_mesh::proxy_header::{
    BLOCK_MAX, Checksum, Found, Header, LEN_USUAL, LINE_MAX, Tlv, TlvKind, Transport, Version,
    read, read_datagram, write_block, write_line,
};

/// Decodes the start of a stream and of a datagram: one byte for the maximum header length, then
/// the bytes.
///
/// The result does not depend on the bytes after the header. An incomplete header asks for more
/// bytes. An accepted header survives a round trip.
pub fn header(data: &[u8]) {
    let Some((limit, bytes)) = data.split_first() else {
        return;
    };
    let len_max = match limit % 4 {
        0 => LEN_USUAL,
        1 => BLOCK_MAX,
        _ => usize::from(*limit),
    };
    match read(bytes, len_max) {
        Ok(Found::Header(header)) => {
            let len = header.len;
            assert!(len <= len_max && len <= bytes.len(), "{len} of {len_max}");
            let alone = bytes.get(..len).unwrap_or_default();
            assert_eq!(read(alone, len_max), Ok(Found::Header(header.clone())));
            let cut = alone.get(..len - 1).unwrap_or_default();
            assert!(matches!(read(cut, len_max), Ok(Found::Partial { .. })));
            write_again(&header);
        }
        Ok(Found::Partial { needed }) => {
            assert!(bytes.len() < needed && needed <= len_max, "{needed}");
        }
        Ok(Found::Nothing) | Err(_) => {}
    }
    if let Ok(Some(header)) = read_datagram(bytes, len_max) {
        assert_eq!(header.version, Version::Two);
        let transport = header.ends().map(|ends| ends.transport);
        assert_ne!(transport, Some(Transport::Stream));
        assert_eq!(read(bytes, len_max), Ok(Found::Header(header)));
    }
}

fn write_again(header: &Header<'_>) {
    let mut out = Vec::new();
    if let (Version::One, Some(ends)) = (header.version, header.ends()) {
        write_line(&ends, &mut out).expect("it came as a line");
        assert!(out.len() <= LINE_MAX);
        let again = whole(&out);
        assert_eq!(again.ends(), header.ends());
    }
    let tlvs: Vec<Tlv<'_>> = header
        .tlvs
        .clone()
        .filter(|tlv| tlv.kind != TlvKind::CRC32C)
        .collect();
    for checksum in [Checksum::None, Checksum::Crc32c] {
        out.clear();
        if write_block(&header.subject, &tlvs, checksum, &mut out).is_err() {
            // There may be no room for an additional checksum.
            assert!(header.len + 31 > BLOCK_MAX, "{header:?}");
            continue;
        }
        let again = whole(&out);
        assert_eq!((again.len, again.subject), (out.len(), header.subject));
        assert!(
            again
                .tlvs
                .filter(|tlv| tlv.kind != TlvKind::CRC32C)
                .eq(tlvs.iter().copied())
        );
    }
}

fn whole(bytes: &[u8]) -> Header<'_> {
    match read(bytes, BLOCK_MAX) {
        Ok(Found::Header(header)) => header,
        other => panic!("{other:?} of what was written"),
    }
}
