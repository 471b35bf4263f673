//! Junk at the ports of mesh nodes: for peers, players, and game servers' answers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crypto::{Identity, Ring, Secret32};
use daemon::relay::sandbox::Sandbox;
use daemon::relay::{FileGame, FileRole, Mode, Protocol, Relay, Stats};
use servicer::Clock;
use udp_proto::{AppId, Config, Credentials, Endpoint, ServerIdentity, Target};

use super::{COUNT, KINDS, Source};
use crate::net::{PATIENCE, until};

/// Datagrams sent before the counter is read; fewer than fit any socket buffer.
const BATCH: u64 = 50;

/// Whether the system delivers only the game server's datagrams to its socket.
const IS_CONNECTED: bool = cfg!(all(target_os = "linux", not(tickwire_portable)));

/// Starts a node of `sandbox` in this process.
fn start(sandbox: &mut Sandbox, node: usize) -> Relay {
    let directory = sandbox.directory().to_owned();
    let mut setup = sandbox.config_mut(node).unwrap().setup(&directory).unwrap();
    // Otherwise frames over the rate limits would be counted separately.
    setup.node.label_rate = u32::MAX;
    setup.node.flow_rate = u32::MAX;
    Relay::start(setup, |_| {}).unwrap()
}

fn stats(relay: &Relay) -> Stats {
    relay.stats(PATIENCE).unwrap()
}

fn bind(host: std::net::IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((host, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    socket
}

/// Sends `COUNT` pieces of each kind to `to` from the sockets in turn, no faster than `taken`
/// counts them.
fn pelt(taken: impl Fn() -> u64, to: SocketAddr, from: &[&UdpSocket], source: &mut Source) {
    let before = taken();
    hurl(to, from, source, |sent| {
        if sent % BATCH == 0 {
            until("what came was taken", || {
                (taken() >= before + sent).then_some(())
            });
        }
    });
}

/// Sends the pieces, and calls `after` with the number sent so far.
fn hurl(to: SocketAddr, from: &[&UdpSocket], source: &mut Source, after: impl Fn(u64)) {
    let mut sent = 0;
    for kind in KINDS {
        for number in 0..COUNT {
            let socket = from[usize::try_from(number).unwrap() % from.len()];
            socket.send_to(&source.next(kind), to).unwrap();
            sent += 1;
            after(sent);
        }
    }
}

/// Forwards datagrams between its clients and `to`, and records them.
struct Wiretap {
    /// The clients' side.
    front: UdpSocket,
    /// The server's side.
    back: UdpSocket,
    is_open: Arc<AtomicBool>,
    forth: Arc<Mutex<Vec<Vec<u8>>>>,
    answers: Arc<Mutex<Vec<Vec<u8>>>>,
    comer: Arc<Mutex<Option<SocketAddr>>>,
}

impl Wiretap {
    fn start(front: UdpSocket, back: UdpSocket, to: SocketAddr) -> Self {
        let tap = Self {
            front,
            back,
            is_open: Arc::new(AtomicBool::new(true)),
            forth: Arc::default(),
            answers: Arc::default(),
            comer: Arc::default(),
        };
        let (front, back) = (
            tap.front.try_clone().unwrap(),
            tap.back.try_clone().unwrap(),
        );
        let (kept, comer) = (Arc::clone(&tap.forth), Arc::clone(&tap.comer));
        let is_open = Arc::clone(&tap.is_open);
        let (near, remote) = (
            tap.front.try_clone().unwrap(),
            tap.back.try_clone().unwrap(),
        );
        thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while Arc::strong_count(&is_open) > 1 {
                let Ok((len, from)) = front.recv_from(&mut buffer) else {
                    continue;
                };
                if is_open.load(Ordering::Relaxed) {
                    *comer.lock().unwrap() = Some(from);
                    kept.lock().unwrap().push(buffer[..len].to_vec());
                    back.send_to(&buffer[..len], to).ok();
                }
            }
        });
        let (kept, comer) = (Arc::clone(&tap.answers), Arc::clone(&tap.comer));
        let is_open = Arc::downgrade(&tap.is_open);
        thread::spawn(move || {
            let mut buffer = [0; 2_048];
            while let Some(is_open) = is_open.upgrade() {
                let received = remote.recv(&mut buffer);
                let comer = *comer.lock().unwrap();
                if let (Ok(len), Some(comer), true) =
                    (received, comer, is_open.load(Ordering::Relaxed))
                {
                    kept.lock().unwrap().push(buffer[..len].to_vec());
                    near.send_to(&buffer[..len], comer).ok();
                }
            }
        });
        tap
    }

    fn captures(kept: &Mutex<Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
        until("enough has passed", || {
            let kept = kept.lock().unwrap();
            (kept.len() >= 30).then(|| kept.clone())
        })
    }
}

#[test]
fn junk_at_a_relays_peer_port_is_counted_by_reason() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Relay), ("two", FileRole::Relay)]).unwrap();
    let (front, back) = (bind(sandbox.host(8)), bind(sandbox.host(9)));
    let on_the_way = front.local_addr().unwrap();
    // The nodes know each other only through the wiretap.
    let two = sandbox.config_mut(1).unwrap();
    two.advertise = vec![on_the_way];
    two.bootstrap.clear();
    let to = two.listen;
    let nowhere = SocketAddr::new(sandbox.host(7), 9);
    let one = sandbox.config_mut(0).unwrap();
    one.advertise = vec![nowhere];
    one.bootstrap[1].address = on_the_way;
    let tap = Wiretap::start(front, back, to);
    let (one, two) = (start(&mut sandbox, 0), start(&mut sandbox, 1));
    let to_two = Wiretap::captures(&tap.forth);
    let to_one = Wiretap::captures(&tap.answers);
    let outsider = bind(sandbox.host(10));

    // No other datagrams arrive meanwhile.
    tap.is_open.store(false, Ordering::Relaxed);
    for (seed, relay, from, captures) in
        [(1, &two, &tap.back, to_two), (2, &one, &tap.front, to_one)]
    {
        let before = stats(relay);
        let mut source = Source::new(seed, captures, 1_400);
        let taken = || stats(relay).driver.datagrams_in;
        pelt(taken, relay.address(), &[from, &outsider], &mut source);
        let after = stats(relay);
        assert_eq!(
            after.driver.datagrams_in - before.driver.datagrams_in,
            3 * COUNT
        );
        let endpoint = after.endpoint.datagrams_received() - before.endpoint.datagrams_received();
        let frames = after.frames_dropped() - before.frames_dropped();
        let further = source.frames_further;
        assert_eq!(endpoint + frames, 3 * COUNT + further, "{after:?}");
        assert!(
            frames > COUNT / 10 && endpoint > COUNT,
            "{frames} {endpoint}"
        );
        assert_eq!(
            after.endpoint.packets, before.endpoint.packets,
            "none opened"
        );
        assert_eq!(
            after.endpoint.sessions_opened,
            before.endpoint.sessions_opened
        );
        assert_eq!(after.frames.sealed, before.frames.sealed, "none passed on");
        assert!(relay.is_running());
    }

    // The nodes reconnect.
    let before = stats(&two).endpoint.packets;
    tap.is_open.store(true, Ordering::Relaxed);
    until("they talk again", || {
        (stats(&two).endpoint.packets > before).then_some(())
    });
}

/// First datagrams of real players.
fn hellos(server: SocketAddr) -> Vec<Vec<u8>> {
    let now = Clock::new().now();
    let key = *Identity::generate(&mut Ring::new()).unwrap().public_key();
    let hello = |_| {
        let mut endpoint = Endpoint::new(Config::default(), AppId(1), Ring::new(), now).unwrap();
        let target = Target {
            addresses: vec![server],
            server: ServerIdentity::Keys(vec![key]),
            credentials: Credentials::Token {
                token: vec![7; 200],
                psk: Secret32::random(&mut Ring::new()).unwrap(),
            },
        };
        endpoint.connect(now, target).unwrap();
        let mut bytes = Vec::new();
        endpoint.poll_transmit(now, &mut bytes).unwrap();
        bytes
    };
    (0..20).map(hello).collect()
}

#[test]
fn junk_at_player_and_server_ports_is_counted_or_dropped() {
    let nodes = [("entry", FileRole::Entry), ("exit", FileRole::Exit)];
    let mut sandbox = Sandbox::new(&nodes).unwrap();
    let server = bind(sandbox.host(20));
    let server_address = server.local_addr().unwrap();
    let players = SocketAddr::new(sandbox.host(1), 4_600);
    let exit = sandbox.id(1).unwrap();
    let game = FileGame {
        name: "game".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Single,
        listen: vec![players],
        exits: vec![exit],
        server: None,
        entries: None,
        proxy_header: None,
    };
    sandbox.config_mut(1).unwrap().games = vec![FileGame {
        listen: Vec::new(),
        exits: Vec::new(),
        server: Some(server_address),
        ..game.clone()
    }];
    sandbox.config_mut(0).unwrap().games = vec![game];
    let (entry, exit) = (start(&mut sandbox, 0), start(&mut sandbox, 1));
    let (player, outsider) = (bind(sandbox.host(21)), bind(sandbox.host(22)));
    // The exit's socket to the game server gets junk too.
    let upstream = until("a packet has crossed the mesh", || {
        player.send_to(b"hello", players).unwrap();
        server.recv_from(&mut [0; 64]).ok().map(|(_, from)| from)
    });
    let captures = hellos(server_address);

    let before = stats(&exit).node.strangers;
    let mut source = Source::new(3, captures.clone(), 1_400);
    let strangers = [&outsider, &player];
    let counted = if IS_CONNECTED {
        // The kernel drops them all without counting.
        hurl(upstream, &strangers, &mut source, |_| ());
        0
    } else {
        let taken = || stats(&exit).driver.datagrams_in;
        pelt(taken, upstream, &strangers, &mut source);
        3 * COUNT
    };
    // The server's answer arrives after them.
    let mut incoming = Vec::new();
    until("what the server says has crossed the mesh", || {
        server.send_to(b"answer", upstream).unwrap();
        let mut buffer = [0; 2_048];
        let (len, from) = player.recv_from(&mut buffer).ok()?;
        incoming.push((buffer[..len].to_vec(), from));
        (incoming.len() >= 3).then_some(())
    });
    let answer = (b"answer".to_vec(), players);
    assert_eq!(incoming, [answer.clone(), answer.clone(), answer]);
    assert_eq!(stats(&exit).node.strangers - before, counted);

    // The entry takes any bytes for a player's datagram: it is delivered, or dropped for a reason.
    // Each batch waits for the previous one, because the exit's socket buffer is bounded.
    let fates = || {
        let (near, remote) = (stats(&entry), stats(&exit));
        let dropped = [&near, &remote].map(|stats| {
            let node = &stats.node;
            stats.frames_dropped() + node.too_big + node.early_dropped + node.refused_players
        });
        remote.node.delivered + dropped.iter().sum::<u64>()
    };
    let before = fates();
    let mut source = Source::new(4, captures, 1_400);
    pelt(fates, players, &[&player, &outsider], &mut source);
    assert_eq!(fates() - before, 3 * COUNT);
    assert!(entry.is_running() && exit.is_running());
}
