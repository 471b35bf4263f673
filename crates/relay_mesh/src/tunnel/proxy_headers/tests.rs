use super::*;
use crate::proxy_header::{Found, HeaderPolicy, LEN_USUAL, read};

const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n";

fn trusted(need: HeaderPolicy) -> TrustedProxies {
    TrustedProxies::parse(["10.0.0.0/8"], need).unwrap()
}

fn inbound_header(peer: &str, need: HeaderPolicy) -> (TrustedProxies, InboundHeader) {
    let ends = (peer.parse().unwrap(), "192.0.2.1:443".parse().unwrap());
    let trusted = trusted(need);
    let inbound_header = InboundHeader::new(ends, Instant::ZERO);
    (trusted, inbound_header)
}

fn inbound(player: &str, listen: &str, rest: &[u8]) -> InboundConn {
    InboundConn {
        player: player.parse().unwrap(),
        listen: listen.parse().unwrap(),
        rest: rest.to_vec(),
    }
}

#[test]
fn pgx10_a_header_of_a_trusted_proxy_names_the_player_however_it_is_cut() {
    let bytes = [LINE, b"GET /"].concat();
    for cut in 0..bytes.len() {
        let (trusted, mut inbound_header) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
        let (first, second) = bytes.split_at(cut);
        let reported = match inbound_header.take(&trusted, first).unwrap() {
            Some(mut reported) => {
                reported.rest.extend_from_slice(second);
                reported
            }
            None => inbound_header.take(&trusted, second).unwrap().unwrap(),
        };
        let expected = inbound("203.0.113.9:4000", "198.51.100.1:443", b"GET /");
        assert_eq!(reported, expected, "cut at {cut}");
    }
}

#[test]
fn pgx10_a_header_of_an_untrusted_sender_is_refused_and_the_rest_passes() {
    let (trusted, mut outsider) = inbound_header("192.0.2.9:9", HeaderPolicy::Required);
    let refused = outsider.take(&trusted, LINE);
    assert_eq!(
        refused,
        Err(InboundHeaderError::PolicyViolation(
            PolicyViolation::Untrusted
        ))
    );

    let (trusted, mut outsider) = inbound_header("192.0.2.9:9", HeaderPolicy::Required);
    assert_eq!(outsider.take(&trusted, b"P"), Ok(None));
    let expected = inbound("192.0.2.9:9", "192.0.2.1:443", b"PING");
    assert_eq!(outsider.take(&trusted, b"ING"), Ok(Some(expected)));
}

#[test]
fn mesh_c1_a_header_that_names_no_host_or_datagrams_is_refused() {
    let taken = |bytes: &[u8]| {
        let (trusted, mut inbound_header) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
        inbound_header.take(&trusted, bytes)
    };
    for (source, port) in [
        ("255.255.255.255", 1),
        ("224.0.0.1", 1),
        ("0.0.0.0", 1),
        ("203.0.113.9", 0),
    ] {
        let line = format!("PROXY TCP4 {source} 198.51.100.1 {port} 443\r\n");
        let refused = taken(line.as_bytes());
        assert_eq!(refused, Err(InboundHeaderError::Address), "{line}");
    }
    let refused = taken(b"PROXY TCP6 ff02::1 2001:db8::1 1 443\r\n");
    assert_eq!(refused, Err(InboundHeaderError::Address));
    let block = |family: u8| {
        let addresses = [203, 0, 113, 9, 198, 51, 100, 1, 0, 9, 1, 187];
        let signature = b"\r\n\r\n\0\r\nQUIT\n";
        [&signature[..], &[0x21, family, 0, 12], &addresses].concat()
    };
    let expected = inbound("203.0.113.9:9", "198.51.100.1:443", b"");
    assert_eq!(taken(&block(0x11)), Ok(Some(expected)));
    let refused = taken(&block(0x12));
    let family = InboundHeaderError::Header(BadBlock::Family.into());
    assert_eq!(refused, Err(family));
}

#[test]
fn pgx10_a_slow_or_silent_proxy_is_not_waited_for() {
    let (trusted, mut slow) = inbound_header("10.0.0.1:9", HeaderPolicy::Optional);
    for byte in &LINE[..LINE.len() - 1] {
        assert_eq!(slow.take(&trusted, &[*byte]), Ok(None));
    }
    assert_eq!(slow.deadline(), Instant::from_millis(5_000));
    assert_eq!(slow.on_timeout(&trusted), Err(InboundHeaderError::Slow));

    let (trusted, mut silent) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
    let bare = Err(InboundHeaderError::PolicyViolation(
        PolicyViolation::Missing,
    ));
    assert_eq!(silent.on_timeout(&trusted), bare);
    for (peer, need) in [
        ("10.0.0.1:9", HeaderPolicy::Optional),
        ("192.0.2.9:9", HeaderPolicy::Required),
    ] {
        let (trusted, mut silent) = inbound_header(peer, need);
        let expected = inbound(peer, "192.0.2.1:443", b"");
        assert_eq!(silent.on_timeout(&trusted), Ok(expected));
    }
}

#[test]
fn mesh_c1_what_can_be_no_header_is_refused_at_once_and_bounded() {
    let (trusted, mut bad) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
    let refused = bad.take(&trusted, b"PROXY UDP9 ");
    assert!(
        matches!(refused, Err(InboundHeaderError::Header(_))),
        "{refused:?}"
    );

    let (trusted, mut long) = inbound_header("10.0.0.1:9", HeaderPolicy::Required);
    let mut taken = 0;
    let signature = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    for byte in signature.iter().chain(&[0; 1_000]) {
        if long.take(&trusted, &[*byte]).is_err() {
            break;
        }
        taken += 1;
    }
    assert!(taken < LEN_USUAL, "{taken}");
}

fn outbound_header(version: Version, extras: HeaderExtras) -> OutboundHeader<'static> {
    let header = ServerHeader {
        version,
        extras,
        ..ServerHeader::default()
    };
    OutboundHeader {
        header,
        session: [7; 16],
        nodes: &[9; 24],
    }
}

fn open(player: &str, listen: &str) -> OpenRecord {
    OpenRecord {
        game: "web".into(),
        player: player.parse().unwrap(),
        listen: listen.parse().unwrap(),
    }
}

#[test]
fn pg10_a_server_gets_the_players_address_of_either_family() {
    let ends = [
        ("203.0.113.9:4000", "192.0.2.1:443"),
        ("[2001:db8::9]:4000", "[2001:db8::1]:443"),
    ];
    for (player, listen) in ends {
        for version in [Version::One, Version::Two] {
            let open = open(player, listen);
            let mut out = b"x".to_vec();
            let outbound_header = outbound_header(version, HeaderExtras::NONE);
            outbound_header.write(&open, &mut out).unwrap();
            let Ok(Found::Header(header)) = read(&out[1..], LEN_USUAL) else {
                panic!("{out:?}");
            };
            assert_eq!(header.len, out.len() - 1);
            let reported = header.ends().unwrap();
            assert_eq!(
                (reported.source, reported.destination),
                (open.player, open.listen)
            );
            assert_eq!(
                (reported.transport, header.version),
                (Transport::Stream, version)
            );
        }
    }
}

#[test]
fn pgx10_a_stream_has_the_extras_that_are_asked_for() {
    let all = [
        HeaderExtras::CHECKSUM,
        HeaderExtras::SESSION_ID,
        HeaderExtras::NODES,
    ];
    for chosen in 0..8_u8 {
        let is_in = |bit: usize| chosen & 1 << bit != 0;
        let extras = (0..3).filter(|&bit| is_in(bit));
        let extras = extras.fold(HeaderExtras::NONE, |set, bit| set | all[bit]);
        let mut out = Vec::new();
        let outbound_header = outbound_header(Version::Two, extras);
        outbound_header
            .write(&open("203.0.113.9:4000", "192.0.2.1:443"), &mut out)
            .unwrap();
        let Ok(Found::Header(header)) = read(&out, LEN_USUAL) else {
            panic!("{out:?}");
        };
        assert_eq!(header.tlv(TlvKind::CRC32C).is_some(), is_in(0));
        let session = is_in(1).then_some(&[7; 16][..]);
        assert_eq!(header.tlv(TlvKind::SESSION_ID), session);
        assert_eq!(header.tlv(TlvKind::NODES), is_in(2).then_some(&[9; 24][..]));
    }
}
