//! Who says he speaks for somebody else.

use std::collections::BTreeMap;

use daemon::relay::{FileLimits, FileProtocol, FileProxies};
use relay_mesh::proxy_header::{Found, LEN_USUAL, read};
use relay_mesh::signed_config::ProxyRule;

use super::*;

const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n";

/// An entry that believes one proxy, and an exit that tells the server of players.
fn proxied() -> Row {
    proxied_with(|limits| limits.tcp_per_address = Some(3))
}

fn proxied_with(change: fn(&mut FileLimits)) -> Row {
    Row::new(0, |node, config| {
        let IpAddr::V4(ip) = config.listen.ip() else {
            panic!("loopback is IPv4");
        };
        if node == ENTRY {
            let [a, b, c, _] = ip.octets();
            let proxies = FileProxies {
                from: vec![format!("{a}.{b}.{c}.150")],
                required: true,
                protocol: Some(FileProtocol::Tcp),
            };
            config.proxies = BTreeMap::from([("web".to_owned(), proxies)]);
            change(&mut config.limits);
        } else {
            config.games[0].proxy_header = Some(ProxyRule::default());
        }
    })
}

/// What the server hears of somebody at `from` who says `words` and closes his half.
fn heard(row: &Row, from: IpAddr, words: &[&[u8]]) -> Option<(SocketAddr, Vec<u8>)> {
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
fn pgx10_headers_are_believed_of_trusted_proxies_alone() {
    let row = proxied();
    let (proxy, stranger) = (row.sandbox.host(150), row.player_ip());
    let told = until("a proxy's player has passed", || {
        heard(&row, proxy, &[LINE, b"GET /"])
    });
    let player: SocketAddr = "203.0.113.9:4000".parse().unwrap();
    assert_eq!(told, (player, b"GET /".to_vec()));
    // In pieces, and with bytes behind the header that are one's own.
    let pieces: Vec<&[u8]> = LINE.chunks(7).chain([&b"x"[..]]).collect();
    assert_eq!(heard(&row, proxy, &pieces).unwrap().0, player);
    // Without a header a proxy has nothing to say, nor with a bad one, or one that does not end.
    assert_eq!(heard(&row, proxy, &[b"GET /"]), None);
    assert_eq!(heard(&row, proxy, &[b"PROXY UDP9 1 2 3 4\r\n"]), None);
    assert_eq!(heard(&row, proxy, &[&LINE[..20]]), None);
    let signature = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    let long = [&signature[..], &vec![0; 70_000]].concat();
    assert_eq!(heard(&row, proxy, &[&long]), None);
    // A stranger is who he is, and may not begin as a proxy does.
    let (address, words) = heard(&row, stranger, &[b"PING"]).unwrap();
    assert_eq!((address.ip(), &*words), (stranger, &b"PING"[..]));
    assert_eq!(heard(&row, stranger, &[LINE, b"GET /"]), None);
}

#[test]
fn pgx10_a_proxy_that_dribbles_is_reset_and_a_stranger_waits_for_nothing() {
    let row = proxied();
    let (proxy, stranger) = (row.sandbox.host(150), row.player_ip());
    until("the way is found", || heard(&row, proxy, &[LINE, b"x"]));
    // The server may speak first, to a stranger who has said nothing.
    let mut silent = dial(stranger, row.entry()).unwrap();
    row.server.set_nonblocking(true).unwrap();
    let mut server = until("a stranger is let in", || row.server.accept().ok()).0;
    server.set_nonblocking(false).unwrap();
    server.write_all(b"220 hello").unwrap();
    let mut banner = [0; 9];
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    silent.read_exact(&mut banner).unwrap();
    assert_eq!(&banner, b"220 hello");
    // And a header of his is still no header, however late.
    silent.write_all(LINE).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut silent);
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).ok();
    assert_eq!(rest.len(), 28, "the exit's own header alone");

    let mut dribble = dial(proxy, row.entry()).unwrap();
    dribble.write_all(&LINE[..10]).unwrap();
    assert!(heard(&row, proxy, &[LINE, b"x"]).is_some());
    dribble.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut dribble);
    // What a stranger began is his own once the time for a header is over.
    let mut slow = dial(stranger, row.entry()).unwrap();
    slow.write_all(b"PRO").unwrap();
    row.server.set_nonblocking(true).unwrap();
    let mut server = until("a stranger is let in", || row.server.accept().ok()).0;
    server.set_nonblocking(false).unwrap();
    let mut got = [0; 28 + 3];
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got[28..], b"PRO");
}

/// Of 64 places, a proxy's 600 silent connections take none that a player needs: they are not waited for, 64 at a
/// time for 5 s each.
#[test]
fn pgx10_silent_connections_of_a_proxy_keep_no_player_out() {
    let row = proxied_with(|limits| limits.tcp_connections = Some(64));
    let (proxy, stranger) = (row.sandbox.host(150), row.player_ip());
    until("the way is found", || heard(&row, proxy, &[LINE, b"x"]));
    let silent: Vec<TcpStream> = (0..600)
        .map(|_| dial(proxy, row.entry()).unwrap())
        .collect();
    for round in 0..3 {
        let told = heard(&row, proxy, &[LINE, b"GET /"]);
        assert!(told.is_some(), "a player of the proxy, {round}");
        assert!(heard(&row, stranger, &[b"PING"]).is_some(), "{round}");
    }
    drop(silent);
}
