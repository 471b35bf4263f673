//! Limits of a node's TCP connections.

use std::fs;
use std::process::Command;

use daemon::relay::FileAdmin;
use relay_mesh::TurnedAway;

use super::*;
use crate::http;

fn descriptors(node: &NodeProcess) -> usize {
    fs::read_dir(format!("/proc/{}/fd", node.id()))
        .unwrap()
        .count()
}

/// Bytes accepted for a reader that stalls: socket buffers at both ends and in this process, each
/// twice the requested size, and the mesh's own buffers.
const HELD_MAX: usize = 2 * (256 << 10) + 2 * (512 << 10) + (512 << 10) + (32 << 10);

#[test]
fn pg8_a_stalled_reader_stops_only_its_sender() {
    let row = Row::new(0, |_, _| {});
    let small = 128 << 10;
    // Accepted sockets inherit the listener's buffer.
    SockRef::from(&row.server)
        .set_recv_buffer_size(small)
        .unwrap();
    let (mut player, mut server) = row.connect();
    SockRef::from(&player).set_send_buffer_size(small).unwrap();
    player.set_write_timeout(Some(10 * PAUSE)).unwrap();
    let bytes = words(64 << 10);
    let mut sent = 0;
    while let Ok(len) = player.write(&bytes[sent % bytes.len()..]) {
        sent += len;
        assert!(sent <= HELD_MAX, "{sent} bytes were taken");
    }
    let (mut other, mut others) = row.connect();
    other.write_all(&bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    others.read_exact(&mut got).unwrap();
    assert!(got == bytes);
    // The reader resumes and receives everything.
    player.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert!(
        got.iter()
            .zip(bytes.iter().cycle())
            .all(|(one, other)| one == other)
    );
}

#[test]
fn pg8_pgd_p1_p3_a_thousand_players_and_no_descriptor_leaks() {
    servicer::raise_descriptor_limit().unwrap();
    let row = Row::new(1, |_, config| {
        // One entry may use seven eighths of the exit's connections.
        config.limits.tcp_connections = Some(1_200);
        config.limits.tcp_per_address = Some(1_200);
    });
    let ends = [ENTRY, row.exit()];
    let count = || ends.map(|end| descriptors(row.node(end)));
    // Every descriptor opened from now on belongs to a connection.
    let open = row.node(ENTRY).wait_for(PATIENCE, |news| {
        matches!(news, ProcessEvent::Listening { .. }).then_some(())
    });
    open.expect("the port is open");
    for end in ends {
        let met = row.node(end).wait_for(PATIENCE, |news| {
            matches!(news, ProcessEvent::LinkUp { .. }).then_some(())
        });
        met.expect("it has met somebody");
    }
    let before = count();
    row.settle();
    until("the first connection is gone", || {
        (count() == before).then_some(())
    });
    let mut players = Vec::new();
    let mut servers = Vec::new();
    row.server.set_nonblocking(true).unwrap();
    for number in 0..PLAYERS {
        let mut player = dial(row.player_ip(), row.entry()).unwrap();
        player.set_read_timeout(Some(PATIENCE)).unwrap();
        player.write_all(&number.to_be_bytes()).unwrap();
        players.push(player);
        let what = format!("player {number} is let in");
        servers.push(until(&what, || row.server.accept().ok()).0);
    }
    for (held, before) in count().into_iter().zip(before) {
        assert!(held >= before + players.len(), "all at once: {held}");
    }
    for mut server in &servers {
        let mut number = [0; 4];
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.read_exact(&mut number).unwrap();
        server.write_all(&number).unwrap();
    }
    for (number, mut player) in (0..PLAYERS).zip(&players) {
        let mut reported = [0; 4];
        player.read_exact(&mut reported).unwrap();
        assert_eq!(u32::from_be_bytes(reported), number);
    }
    drop(players);
    drop(servers);
    until("descriptors are what they were", || {
        (count() == before).then_some(())
    });
}

const PLAYERS: u32 = 1_000;

#[test]
fn tcp_connections_is_a_limit_and_further_players_wait() {
    let row = Row::new(0, |node, config| {
        if node == ENTRY {
            config.limits.tcp_connections = Some(2);
        }
    });
    let first = row.connect();
    let second = until("there is a second place", || {
        row.passed(dial(row.player_ip(), row.entry()).ok()?)
    });
    // The system accepts the connection, but the node does not.
    let mut third = dial(row.player_ip(), row.entry()).unwrap();
    third.write_all(b"let me in").unwrap();
    third.set_read_timeout(Some(5 * PAUSE)).unwrap();
    let waits = third.read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), ErrorKind::WouldBlock);
    row.server.set_nonblocking(true).unwrap();
    assert!(row.server.accept().is_err(), "it has not come through");
    drop(first);
    let (_, mut server) = row.passed(third).expect("it is let in");
    server.read_exact(&mut [0; 9]).unwrap();
    drop(second);
}

#[test]
fn mesh_a7_with_all_slots_taken_a_silent_connection_is_evicted() {
    let row = Row::new(0, |node, config| {
        if node == ENTRY {
            config.limits.tcp_connections = Some(2);
        }
    });
    let (mut first, _server) = row.connect();
    let _second = until("there is a second place", || {
        row.passed(dial(row.player_ip(), row.entry()).ok()?)
    });
    let third = dial(row.player_ip(), row.entry()).unwrap();
    let full = row.node(ENTRY).wait_for(PATIENCE, |news| {
        let ProcessEvent::TurnedAway { reason, .. } = news else {
            return None;
        };
        (reason == TurnedAway::TcpFull).then_some(())
    });
    full.expect("the operator is told");
    row.passed(third).expect("the third is let in");
    assert_reset(&mut first);
}

#[test]
fn pgx11_tcp_per_address_bounds_the_connections_of_one_address() {
    let row = Row::new(0, |_, config| config.limits.tcp_per_address = Some(2));
    let _held = [row.connect(), row.connect()];
    let mut third = dial(row.player_ip(), row.entry()).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(&mut third);
    let other = dial(row.sandbox.host(101), row.entry()).unwrap();
    assert!(row.passed(other).is_some(), "another address has its own");
}

fn limit_files(node: &NodeProcess, files: &str) {
    let pid = node.id().to_string();
    let limit = format!("--nofile={files}");
    let status = Command::new("prlimit")
        .args(["--pid", &pid, &limit])
        .status();
    assert!(status.unwrap().success());
}

/// A counter of the entry's metrics page.
fn counted(row: &Row, name: &str) -> u64 {
    let path = row.sandbox.directory().join("token");
    let bearer = format!("Bearer {}", fs::read_to_string(path).unwrap());
    let address = SocketAddr::new(row.sandbox.host(1), ADMIN_PORT);
    let asked = http::request("GET /metrics", &[("authorization", &bearer)], "");
    let page = String::from_utf8(http::raw(address, asked.as_bytes())).unwrap();
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{name}: {page}"))
        .parse()
        .unwrap()
}

/// A node without free descriptors retries ten times a second and keeps running.
#[test]
fn pgx11_an_entry_without_descriptors_retries_without_spinning() {
    let row = Row::new(0, |node, config| {
        config.admin = (node == ENTRY).then(|| FileAdmin {
            listen: SocketAddr::new(config.listen.ip(), ADMIN_PORT),
            token_file: "token".into(),
        });
    });
    let (mut player, mut server) = row.connect();
    let entry = row.node(ENTRY);
    // Open descriptors stay; new ones have higher numbers.
    limit_files(entry, "3:4096");
    let others: Vec<TcpStream> = (0..5)
        .map(|_| dial(row.player_ip(), row.entry()).unwrap())
        .collect();
    player.write_all(b"one who plays does not notice").unwrap();
    server.read_exact(&mut [0; 29]).unwrap();
    player.set_read_timeout(Some(10 * PAUSE)).unwrap();
    player.read(&mut [0]).unwrap_err();
    limit_files(entry, "4096:4096");
    row.server.set_nonblocking(false).unwrap();
    for _ in &others {
        row.server.accept().unwrap();
    }
    let errors = counted(&row, "tickwire_relay_tcp_accept_errors_total");
    assert!((1..1_000).contains(&errors), "{errors}");
}

const ADMIN_PORT: u16 = 4_801;
