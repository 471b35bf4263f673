//! Silent connections do not keep new ones out.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread;

use daemon::relay::{FileProxies, Protocol};
use relay_mesh::TurnedAway;
use servicer::Clock;

use super::*;

const LINE: &[u8] = b"PROXY TCP4 203.0.113.9 198.51.100.1 4000 443\r\n";
/// More than an entry's default limit.
const SILENT: u16 = 1_200;
/// Longest wait of a new connection: a silent one is evicted after 5 s.
const STRANGER_WAITS: Duration = Duration::from_secs(10);
const PROXY_WAITS: Duration = Duration::from_secs(1);

/// An entry with a proxy, and a server that sends first.
fn greeted() -> Row {
    servicer::raise_descriptor_limit().unwrap();
    let row = Row::new(0, |node, config| {
        if node == ENTRY {
            let proxies = FileProxies {
                from: vec![format!("{PROXY}/32")],
                required: true,
                protocol: Some(Protocol::Tcp),
            };
            config.proxies = BTreeMap::from([("web".to_owned(), proxies)]);
        }
    });
    let server = row.server.try_clone().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for player in server.incoming() {
            let mut player = player.unwrap();
            // Some are closed already.
            player.write_all(b"220").ok();
            held.push(player);
        }
    });
    row
}

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 250, 50, 7);

/// Whether a client at `from` that sends `words` receives the server's greeting within `wait`.
fn is_greeted(row: &Row, from: Ipv4Addr, words: &[u8], wait: Duration) -> bool {
    let greeted = dial(from.into(), row.entry()).and_then(|mut player| {
        player.set_read_timeout(Some(wait))?;
        player.write_all(words)?;
        player.read_exact(&mut [0; 3])
    });
    greeted.is_ok()
}

fn await_way(row: &Row) {
    until("the way is found", || {
        let newcomer = Ipv4Addr::new(127, 249, 1, 1);
        is_greeted(row, newcomer, b"hi", STRANGER_WAITS).then_some(())
    });
}

#[test]
fn mesh_a7_silent_connections_of_many_networks_are_evicted() {
    let row = greeted();
    await_way(&row);
    let from = |number: u16| {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(127, 200 + high, low, 9)
    };
    let silent: Vec<TcpStream> = (0..SILENT)
        .map(|number| dial(from(number).into(), row.entry()).unwrap())
        .collect();
    // As long as no connection is idle and the exit's share is used up, a new one is reset.
    let (clock, newcomer) = (Clock::new(), Ipv4Addr::new(127, 248, 1, 1));
    let began = clock.now();
    until("a newcomer is let in", || {
        is_greeted(&row, newcomer, b"hi", STRANGER_WAITS).then_some(())
    });
    let waited = clock.now().saturating_since(began);
    assert!(waited < STRANGER_WAITS, "{waited:?}");
    let is_in = is_greeted(&row, PROXY, LINE, STRANGER_WAITS);
    assert!(is_in, "so is a proxy's");
    drop(silent);
}

#[test]
fn mesh_a7_a_proxys_silent_connections_are_evicted() {
    let row = greeted();
    await_way(&row);
    let mut silent: Vec<TcpStream> = (0..SILENT)
        .map(|_| dial(PROXY.into(), row.entry()).unwrap())
        .collect();
    assert!(is_greeted(&row, PROXY, LINE, PROXY_WAITS), "of the proxy");
    let newcomer = Ipv4Addr::new(127, 248, 1, 1);
    assert!(is_greeted(&row, newcomer, b"hi", PROXY_WAITS), "a stranger");
    let reset = silent.first_mut().unwrap();
    reset.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_reset(reset);
    let reported = row.node(ENTRY).wait_for(PATIENCE, |news| {
        matches!(
            news,
            ProcessEvent::TurnedAway {
                reason: TurnedAway::TcpGreeting,
                ..
            }
        )
        .then_some(())
    });
    reported.expect("it is told");
}
