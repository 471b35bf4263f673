use std::convert::Infallible;

use wire::{Arrival, CommandId, Transmit};

use super::*;

fn envelope(port: u16) -> Envelope {
    Envelope {
        socket: SocketIndex(0),
        remote: SocketAddr::from(([192, 0, 2, 1], port)),
        local: None,
        ecn: None,
    }
}

fn wrapped(last: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\x00\x0C".to_vec();
    bytes.extend_from_slice(&[203, 0, 113, last, 1, 2, 3, 4, 0, 7, 0, 9]);
    bytes.extend_from_slice(rest);
    bytes
}

/// A machine with sessions for these addresses.
#[derive(Default)]
struct Sessions(Vec<SocketAddr>);

impl Machine for Sessions {
    type Peer = SocketAddr;
    type Event = ();
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, _: Arrival<SocketAddr>, _: &mut [u8]) {}
    fn for_each_peer(&self, tell: &mut dyn FnMut(SocketAddr)) {
        self.0.iter().copied().for_each(tell);
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }
    fn poll_transmit(&mut self, _: Instant, _: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        None
    }
    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

fn take(exits: &mut Exits, at: u64, port: u16, bytes: &[u8]) -> Option<(Option<IpAddr>, Vec<u8>)> {
    take_with_sessions(&Sessions::default(), exits, at, (port, bytes))
}

fn take_with_sessions(
    sessions: &Sessions,
    exits: &mut Exits,
    at: u64,
    (port, bytes): (u16, &[u8]),
) -> Option<(Option<IpAddr>, Vec<u8>)> {
    let mut bytes = bytes.to_vec();
    let (ledger, now) = (Ledger::default(), Instant::from_millis(at));
    let at = (now, &envelope(port));
    let (source, rest) = exits.unwrap(at, &mut bytes, sessions, &ledger)?;
    Some((source.map(|source| source.ip()), rest.to_vec()))
}

fn player(last: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, last])
}

#[test]
fn each_source_behind_an_exit_has_a_flow_of_its_own() {
    let mut exits = Exits::new(&["::ffff:192.0.2.1".parse().unwrap()], 8);
    assert_eq!(take(&mut exits, 0, 1, b"x"), Some((None, b"x".to_vec())));
    for (port, last) in [(1, 9), (2, 8)] {
        let first = take(&mut exits, 0, port, &wrapped(last, b"hello"));
        assert_eq!(first, Some((Some(player(last)), b"hello".to_vec())));
    }
    assert_eq!(take(&mut exits, 1, 1, b"x").unwrap().0, Some(player(9)));
    assert_eq!(take(&mut exits, 1, 2, b"x").unwrap().0, Some(player(8)));
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0x";
    assert_eq!(take(&mut exits, 3, 3, local), Some((None, b"x".to_vec())));
    assert_eq!(take(&mut exits, 3, 3, b"x").unwrap().0, None);
    assert_eq!(take(&mut exits, 3, 1, &wrapped(7, b"")[..20]), None);
}

/// A forged header cannot reassign an active flow.
#[test]
fn a_flow_changes_its_source_only_if_idle() {
    let mut exits = Exits::new(&["192.0.2.1".parse().unwrap()], 8);
    let (taken, open) = (Sessions(vec![envelope(1).remote]), Sessions::default());
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0x";
    let change = |sessions: &Sessions, exits: &mut Exits, at| {
        let other = take_with_sessions(sessions, exits, at, (1, &wrapped(7, b"")));
        other.map(|(source, _)| source)
    };
    take(&mut exits, 0, 1, &wrapped(9, b"hello")).unwrap();
    assert_eq!(change(&open, &mut exits, 5_000), None, "it was just heard");
    assert_eq!(take(&mut exits, 5_000, 1, local), None);
    assert_eq!(take(&mut exits, 5_000, 1, b"x").unwrap().0, Some(player(9)));
    assert_eq!(change(&open, &mut exits, 10_000), None, "and again");
    assert_eq!(change(&taken, &mut exits, 60_000), None, "it has a session");
    assert_eq!(change(&open, &mut exits, 60_999), None, "as just asked");
    assert_eq!(change(&open, &mut exits, 61_000), Some(Some(player(7))));
    assert_eq!(
        take(&mut exits, 61_001, 1, b"x").unwrap().0,
        Some(player(7))
    );
}

/// A session whose player falls silent at 1 s is sent to until it times out at 11 s. A datagram
/// without a header is then the player's own, since the exit has received ours, and must not
/// reassign the flow.
#[test]
fn a_flow_in_use_keeps_its_destination() {
    let mut exits = Exits::new(&["192.0.2.1".parse().unwrap()], 8);
    let none = Sessions::default();
    take(&mut exits, 0, 1, &wrapped(9, b"hello")).unwrap();
    take(&mut exits, 1_000, 1, b"input").unwrap();
    exits.on_sent(Instant::from_millis(11_000), &envelope(1).remote);
    exits.on_sent(Instant::from_millis(30_000), &envelope(2).remote);
    let forge = |exits: &mut Exits, at| {
        let other = take_with_sessions(&none, exits, at, (1, &wrapped(7, b"hello")));
        other.map(|(source, _)| source)
    };
    assert_eq!(forge(&mut exits, 11_100), None);
    assert_eq!(forge(&mut exits, 16_000), None);
    // By now the exit has received nothing for long, and sends its own header first.
    assert_eq!(forge(&mut exits, 16_001), Some(Some(player(7))));
}

#[test]
fn headers_of_untrusted_peers_are_left_in_place() {
    let mut exits = Exits::new(&["192.0.2.2".parse().unwrap()], 8);
    let bytes = wrapped(9, b"hello");
    assert_eq!(take(&mut exits, 0, 1, &bytes), Some((None, bytes.clone())));
    assert!(exits.list[0].flows.is_empty());
}

/// A full table rejects new flows and keeps those with a session. Entries of handshakes older
/// than 5 s are removed, at most once per second. Each exit has its own table.
#[test]
fn exit_flows_max_holds_and_expired_flows_are_replaced() {
    let trusted = ["192.0.2.1", "192.0.2.7"].map(|ip| ip.parse().unwrap());
    let mut exits = Exits::new(&trusted, 40);
    for port in 1..=40 {
        assert!(take(&mut exits, 0, port, &wrapped(9, b"")).is_some());
    }
    let players = Sessions((1..=39).map(|port| envelope(port).remote).collect());
    let new = |exits: &mut Exits, at, port| {
        take_with_sessions(&players, exits, at, (port, &wrapped(8, b""))).is_some()
    };
    assert!(!new(&mut exits, 4_500, 41), "all are young");
    // More datagrams of a handshake do not extend its entry, with or without a header.
    take_with_sessions(&players, &mut exits, 4_900, (40, &wrapped(9, b"x"))).unwrap();
    take_with_sessions(&players, &mut exits, 5_000, (40, b"x")).unwrap();
    assert!(!new(&mut exits, 5_001, 41), "it was just asked");
    assert!(new(&mut exits, 5_500, 41));
    assert!(!new(&mut exits, 10_000, 42));
    assert!(new(&mut exits, 60_000, 42));
    assert_eq!(exits.list[0].flows.len(), 40);
    for port in 1..=39 {
        let (source, _) = take_with_sessions(&players, &mut exits, 61_000, (port, b"x")).unwrap();
        assert_eq!(source, Some(player(9)), "a session is never forgotten");
    }
    let mut other = envelope(1);
    other.remote.set_ip("192.0.2.7".parse().unwrap());
    let (ledger, mut bytes) = (Ledger::default(), wrapped(9, b""));
    let at = (Instant::from_millis(61_000), &other);
    assert!(exits.unwrap(at, &mut bytes, &players, &ledger).is_some());
}

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
        assert_eq!(read_header(&datagram), Ok(Some((source, len))));
    }
}

#[test]
fn bytes_without_the_signature_are_no_header() {
    for datagram in [&[][..], &[0xC1; 1_200], &[0x40], &[0x0A, 0x0D]] {
        assert_eq!(read_header(datagram), Ok(None));
    }
}

#[test]
fn a_header_that_is_cut_off_or_not_for_datagrams_is_refused() {
    for whole in [
        header(0x21, 0x12, &V4),
        header(0x21, 0x22, &v6("2001:db8::9")),
    ] {
        for len in 1..whole.len() {
            assert_eq!(read_header(&whole[..len]), Err(BadHeader::Short), "{len}");
        }
    }
    for (refused, error) in [
        (header(0x11, 0x12, &V4), BadHeader::Version),
        (header(0x22, 0x12, &V4), BadHeader::Command),
        (header(0x21, 0x11, &V4), BadHeader::Family),
        (header(0x21, 0x31, &[0; 216]), BadHeader::Family),
        (header(0x21, 0x32, &[0; 216]), BadHeader::Family),
        (header(0x21, 0x12, &V4[..11]), BadHeader::Short),
        (header(0x21, 0x22, &V4), BadHeader::Short),
        (header(0x21, 0x12, &[0; 12]), BadHeader::Family),
        (
            header(0x21, 0x12, &[224, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            BadHeader::Family,
        ),
        (
            header(0x21, 0x12, &[&V4[..], &[0; 229]].concat()),
            BadHeader::TooLong,
        ),
    ] {
        assert_eq!(read_header(&refused), Err(error), "{refused:?}");
    }
}
