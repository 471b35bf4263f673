//! Transfer of bytes.

use std::thread;

use super::*;

/// Sends `bytes` from each end, closes its half, and asserts that they arrive.
fn exchange(player: &TcpStream, server: &TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        for (from, to) in [(player, server), (server, player)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            scope.spawn(move || {
                from.write_all(bytes).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut got = Vec::new();
                to.read_to_end(&mut got).unwrap();
                assert!(got == bytes, "{} of {}", got.len(), bytes.len());
            });
        }
    });
}

#[test]
fn pg8_bytes_pass_both_ways_over_no_relay_and_up_to_three() {
    let bytes = words(1 << 20);
    for relays in 0..=RELAYS_MAX {
        let row = Row::new(relays, |_, _| {});
        row.settle();
        let (player, server) = row.connect();
        exchange(&player, &server, &bytes);
    }
}

#[test]
fn pgx3_a_connection_outlives_the_relay_in_use() {
    let mut row = Row::new(1, |_, _| {});
    row.settle();
    let (mut player, mut server) = row.connect();
    let bytes = words(2 << 20);
    let (first, second) = bytes.split_at(1 << 20);
    player.write_all(&first[..1_000]).unwrap();
    server.read_exact(&mut [0; 1_000]).unwrap();
    row.kill(1);
    let sent = thread::scope(|scope| {
        let mut to = player.try_clone().unwrap();
        scope.spawn(move || {
            to.write_all(second).unwrap();
            to.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        got
    });
    assert!(sent == second);
    exchange_words(&mut server, &mut player);
}

/// The open half still works.
fn exchange_words(server: &mut TcpStream, player: &mut TcpStream) {
    server.write_all(b"well done").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    player.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"well done");
}

#[test]
fn pg8_pgd_p4_a_half_closed_connection_stays_open_the_other_way() {
    let row = Row::new(0, |_, _| {});
    let (mut player, mut server) = row.connect();
    player.write_all(b"how long is a river?").unwrap();
    player.shutdown(Shutdown::Write).unwrap();
    let mut asked = Vec::new();
    server.read_to_end(&mut asked).unwrap();
    assert_eq!(asked, b"how long is a river?");
    exchange_words(&mut server, &mut player);

    let (mut player, mut server) = row.connect();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(end_of(&mut player).unwrap(), 0);
    exchange_words(&mut player, &mut server);
}

#[test]
fn pg10_a_server_reads_the_players_address_before_the_first_byte() {
    use relay_mesh::proxy_header::{Found, LEN_USUAL, Version, read};
    use relay_mesh::signed_config::{ProxyRule, ProxyVersion};

    for version in [Version::One, Version::Two] {
        let row = Row::new(0, |node, config| {
            if node == 1 {
                config.games[0].proxy_header = Some(ProxyRule {
                    version: ProxyVersion(version),
                    ..ProxyRule::default()
                });
            }
        });
        for _ in 0..2 {
            let (mut player, mut server) = row.connect();
            player.write_all(b"GET /").unwrap();
            player.shutdown(Shutdown::Write).unwrap();
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            let Ok(Found::Header(header)) = read(&got, LEN_USUAL) else {
                panic!("{got:?}");
            };
            assert_eq!(header.version, version);
            let ends = header.ends().unwrap();
            let expected = [player.local_addr().unwrap(), row.entry()];
            assert_eq!([ends.source, ends.destination], expected);
            assert_eq!(&got[header.len..], b"GET /", "once, and nothing else");
        }
    }
}
