//! Corpus of PROXY protocol headers.

use core::net::SocketAddr;

use relay_mesh::proxy_header::{
    Checksum, Ends, Subject, Tlv, TlvKind, Transport, write_block, write_line,
};

use crate::Input;

fn ends(transport: Transport, source: &str) -> Ends {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    Ends {
        transport,
        source: address(source),
        destination: address("192.0.2.1:7777"),
    }
}

pub(crate) fn all() -> Vec<Input> {
    let [v4, v6] = ["203.0.113.9:4000", "[2001:db8::9]:4000"];
    let line = |source| {
        let mut out = vec![0];
        write_line(&ends(Transport::Stream, source), &mut out).unwrap();
        out.extend_from_slice(b"GET / HTTP/1.1\r\n");
        out
    };
    let block = |subject, tlvs: &[Tlv<'_>], checksum| {
        let mut out = vec![0];
        write_block(&subject, tlvs, checksum, &mut out).unwrap();
        out.extend_from_slice(b"state");
        out
    };
    let tlvs = [
        (TlvKind::ALPN, &b"h2"[..]),
        (TlvKind::AUTHORITY, b"game.example"),
        (TlvKind::UNIQUE_ID, b"unique"),
        (TlvKind::SESSION_ID, &[7; 16]),
        (TlvKind::NODES, &[9; 24]),
    ]
    .map(|(kind, value)| Tlv { kind, value });
    let flow = |transport, source| Subject::Flow(ends(transport, source));
    let (stream, datagram) = (Transport::Stream, Transport::Datagram);
    vec![
        ("proxy_header", "line_v4", line(v4)),
        ("proxy_header", "line_v6", line(v6)),
        (
            "proxy_header",
            "line_unknown",
            b"\0PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\nstate".to_vec(),
        ),
        (
            "proxy_header",
            "tcp_v4",
            block(flow(stream, v4), &tlvs[..3], Checksum::None),
        ),
        (
            "proxy_header",
            "udp_v4",
            block(flow(datagram, v4), &[], Checksum::None),
        ),
        (
            "proxy_header",
            "udp_v6_with_all",
            block(flow(datagram, v6), &tlvs, Checksum::Crc32c),
        ),
        (
            "proxy_header",
            "proxy_itself",
            block(Subject::Proxy, &tlvs[..1], Checksum::Crc32c),
        ),
        (
            "proxy_header",
            "unnamed",
            block(Subject::Unnamed, &[], Checksum::None),
        ),
    ]
}
