//! Forged and slow PROXY headers.

use std::collections::BTreeMap;

use daemon::relay::{FileProxies, Protocol};
use relay_mesh::proxy_header::{Found, LEN_USUAL, read};
use relay_mesh::signed_config::ProxyRule;

use super::*;

const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n";

/// An entry with one trusted proxy, and an exit with PROXY headers.
fn proxied() -> Row {
    Row::new(0, |node, config| {
        let IpAddr::V4(ip) = config.listen.ip() else {
            panic!("loopback is IPv4");
        };
        if node == ENTRY {
            let [a, b, c, _] = ip.octets();
            let proxies = FileProxies {
                from: vec![format!("{a}.{b}.{c}.150")],
                required: true,
                protocol: Some(Protocol::Tcp),
            };
            config.proxies = BTreeMap::from([("web".to_owned(), proxies)]);
            config.limits.tcp_per_address = Some(3);
        } else {
            config.games[0].proxy_header = Some(ProxyRule::default());
        }
    })
}

/// The address and bytes that the server receives from a client at `from` that sends `words` and
/// closes its half.
fn incoming(row: &Row, from: IpAddr, words: &[&[u8]]) -> Option<(SocketAddr, Vec<u8>)> {
    let mut player = dial(from, row.entry()).ok()?;
    for word in words {
        player.write_all(word).ok()?;
    }
    player.shutdown(Shutdown::Write).ok()?;
    let (_player, mut server) = row.passed(player)?;
    let mut got = Vec::new();
    server.read_to_end(&mut got).ok()?;
    let Ok(Found::Header(header)) = read(&got, LEN_USUAL) else {
        panic!("{got:?}");
    };
    Some((header.ends().unwrap().source, got[header.len..].to_vec()))
}

#[test]
fn pgx10_only_trusted_proxies_may_send_headers() {
    let row = proxied();
    let (proxy, outsider) = (row.sandbox.host(150), row.player_ip());
    let reported = until("a proxy's player has passed", || {
        incoming(&row, proxy, &[LINE, b"GET /"])
    });
    let player: SocketAddr = "203.0.113.9:4000".parse().unwrap();
    assert_eq!(reported, (player, b"GET /".to_vec()));
    // The header in pieces, with payload after it.
    let pieces: Vec<&[u8]> = LINE.chunks(7).chain([&b"x"[..]]).collect();
    assert_eq!(incoming(&row, proxy, &pieces).unwrap().0, player);
    // A proxy without a header, with a malformed one, or with an endless one is reset.
    assert_eq!(incoming(&row, proxy, &[b"GET /"]), None);
    assert_eq!(incoming(&row, proxy, &[b"PROXY UDP9 1 2 3 4\r\n"]), None);
    assert_eq!(incoming(&row, proxy, &[&LINE[..20]]), None);
    let signature = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    let long = [&signature[..], &vec![0; 70_000]].concat();
    assert_eq!(incoming(&row, proxy, &[&long]), None);
    // An untrusted client keeps its own address, and may not send a header.
    let (address, words) = incoming(&row, outsider, &[b"PING"]).unwrap();
    assert_eq!((address.ip(), &*words), (outsider, &b"PING"[..]));
    assert_eq!(incoming(&row, outsider, &[LINE, b"GET /"]), None);
}

#[test]
fn pgx10_headers_of_no_host_or_of_datagrams_are_rejected() {
    let row = proxied();
    let proxy = row.sandbox.host(150);
    until("a proxy's player has passed", || {
        incoming(&row, proxy, &[LINE, b"GET /"])
    });
    for player in [
        "255.255.255.255 198.51.100.1 1",
        "0.0.0.0 198.51.100.1 1",
        "203.0.113.9 198.51.100.1 0",
    ] {
        let line = format!("PROXY TCP4 {player} 443\r\n");
        assert_eq!(
            incoming(&row, proxy, &[line.as_bytes(), b"x"]),
            None,
            "{line}"
        );
    }
    let datagrams = b"\r\n\r\n\0\r\nQUIT\n\x21\x12\0\x0c\xcb\0\x71\x09\xc6\x33\x64\x01\0\x01\0\x02";
    assert_eq!(incoming(&row, proxy, &[datagrams, b"x"]), None);
}

#[test]
fn pgx10_a_slow_header_times_out() {
    let row = proxied();
    let proxy = row.sandbox.host(150);
    until("the way is found", || incoming(&row, proxy, &[LINE, b"x"]));
    let mut dribble = dial(proxy, row.entry()).unwrap();
    dribble.write_all(&LINE[..10]).unwrap();
    assert!(incoming(&row, proxy, &[LINE, b"x"]).is_some());
    dribble.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut dribble);
}

/// Length of the exit's own header.
const OWN_HEADER: usize = 28;

#[test]
fn pgx10_no_byte_of_an_untrusted_header_reaches_the_server() {
    let row = proxied();
    let (proxy, outsider) = (row.sandbox.host(150), row.player_ip());
    until("the way is found", || incoming(&row, proxy, &[LINE, b"x"]));
    let join = || row.passed(dial(outsider, row.entry()).unwrap()).unwrap();
    let at_once = Some(Duration::from_secs(2));
    let hears = |(player, server): &mut (TcpStream, TcpStream)| {
        player.set_read_timeout(at_once).unwrap();
        server.write_all(b"220").unwrap();
        player
            .read_exact(&mut [0; 3])
            .expect("the server speaks first");
        server.read_exact(&mut [0; OWN_HEADER]).unwrap();
    };
    let mut pair = join();
    hears(&mut pair);
    // Bytes that may start a header are held until they cannot be one.
    let (mut player, mut server) = pair;
    player.write_all(b"PRO").unwrap();
    server.set_read_timeout(Some(5 * PAUSE)).unwrap();
    server.read(&mut [0]).unwrap_err();
    player.write_all(b"BE").unwrap();
    server.set_read_timeout(at_once).unwrap();
    let mut got = [0; 5];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"PROBE");
    // A slow header is held as well.
    let mut pair = join();
    hears(&mut pair);
    let (mut player, mut server) = pair;
    player.write_all(&LINE[..4]).unwrap();
    server.set_read_timeout(Some(6 * 10 * PAUSE)).unwrap();
    let held = server.read(&mut [0]).unwrap_err();
    assert_eq!(held.kind(), ErrorKind::WouldBlock, "no byte passed in 6 s");
    player.write_all(&LINE[4..5]).unwrap();
    player.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut player);
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut server);
}
