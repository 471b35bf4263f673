//! Several servicers behind one port.

#![expect(
    clippy::print_stdout,
    reason = "figures for people, which decide nothing"
)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use servicer::{Application, End, Shards, SocketConfig, UdpServicer, UdpSocket};
use wire::{Arrival, CommandId, Instant, Machine, Transmit};

use crate::harness::{TIMEOUT, plain, receive};

const SHARDS: u8 = 4;

#[test]
fn a_port_is_divided_and_a_moved_player_stays_with_its_shard() {
    let (shards, address) = start();
    let mut met = [0; SHARDS as usize];
    for _ in 0..64 {
        let client = plain("127.0.0.1");
        client.send_to(b"new", address).unwrap();
        let (session, from) = receive(&client);
        assert_eq!(from, address);
        met[usize::from(session[1])] += 1;
        for _ in 0..4 {
            let moved = plain("127.0.0.1");
            moved.send_to(&session, address).unwrap();
            assert_eq!(receive(&moved), (session.clone(), address));
        }
    }
    println!(
        "sessions of each shard: {met:?}, passed on {}",
        shards.passed_on()
    );
    // The system chooses one socket each time with a probability of about 2^-126.
    assert!(met.iter().filter(|count| **count > 0).count() > 1);
    assert!(shards.passed_on() > 0);
    assert_eq!(shards.dropped(), 0);
    let reports = shards.shutdown(TIMEOUT);
    assert!(reports.iter().all(|report| report.end == End::Drained));
    assert_eq!(reports.len(), usize::from(SHARDS));
}

#[test]
fn an_unknown_datagram_is_answered_by_one_shard_or_dropped_if_full() {
    let (shards, address) = start();
    let client = plain("127.0.0.1");
    // An unknown session: each of the other shards gets the datagram, and the last one answers.
    client.send_to(&[b's', 0, 255], address).unwrap();
    assert_eq!(receive(&client), (b"gone".to_vec(), address));
    client.send_to(b"new", address).unwrap();
    assert_eq!(receive(&client).0[0], b's');
    let others = u64::from(SHARDS) - 1;
    assert_eq!(shards.passed_on(), others);
    let flooder = plain("127.0.0.1");
    for number in 0..20_000_u32 {
        let [.., high, low] = number.to_be_bytes();
        flooder.send_to(&[b's', high | 128, low], address).unwrap();
    }
    client.send_to(b"new", address).unwrap();
    assert_eq!(receive(&client).0[0], b's');
    let copies = shards.passed_on() + shards.dropped();
    assert!(copies <= others * 20_001, "{copies}");
}

#[test]
fn a_shard_that_panics_takes_its_sessions_along_and_no_others() {
    let (shards, address) = start();
    // The same sockets throughout, because the system chooses by their addresses.
    let mut sessions = Vec::new();
    while sessions.len() < 64 {
        let client = plain("127.0.0.1");
        client.send_to(b"new", address).unwrap();
        let (session, _) = receive(&client);
        sessions.push((client, session));
    }
    let place_of = |session: &[u8]| usize::from(session[1]);
    let (victim, lost) = {
        let (client, session) = &sessions[0];
        client.send_to(b"boom", address).unwrap();
        (place_of(session), session.clone())
    };
    while shards.handles()[victim].is_running() {
        std::thread::yield_now();
    }
    // The system now divides datagrams among the remaining sockets: most move to another one.
    let (stay, gone): (Vec<_>, Vec<_>) = sessions
        .into_iter()
        .partition(|(_, session)| place_of(session) != victim);
    assert!(gone.iter().any(|(_, session)| *session == lost));
    assert!(!stay.is_empty(), "one in 4^63");
    for (client, session) in &stay {
        client.send_to(session, address).unwrap();
        assert_eq!(receive(client), (session.clone(), address));
    }
    // Clients of the removed shard get a new session on another one.
    for (client, session) in &gone {
        client.send_to(session, address).unwrap();
        assert_eq!(receive(client), (b"gone".to_vec(), address));
        client.send_to(b"new", address).unwrap();
        assert_ne!(place_of(&receive(client).0), victim);
    }
    let reports = shards.shutdown(TIMEOUT);
    for (place, report) in reports.iter().enumerate() {
        if place == victim {
            assert_eq!(report.end, End::Panicked("told to".to_owned()));
        } else {
            assert_eq!(report.end, End::Drained);
        }
    }
}

/// Starts shards on a port chosen by the system.
fn start() -> (Shards<()>, SocketAddr) {
    let count = NonZeroUsize::new(usize::from(SHARDS)).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let sockets = UdpSocket::bind_shards(any, &SocketConfig::default(), count).unwrap();
    let address = sockets[0].local_address();
    assert!(
        sockets
            .iter()
            .all(|socket| socket.local_address() == address)
    );
    let shards = UdpServicer::named("shard").spawn_shards(sockets, |place| {
        let place = u8::try_from(place).unwrap();
        let machine = FirstSender {
            place,
            sessions: 0,
            outbox: VecDeque::new(),
        };
        (machine, Silent)
    });
    (shards.unwrap(), address)
}

/// Gives each new client a session: `s`, its shard and a number. Echoes datagrams of its own
/// sessions, and answers others as closed.
#[derive(Debug)]
struct FirstSender {
    place: u8,
    sessions: u8,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Machine for FirstSender {
    type Peer = SocketAddr;
    type Event = Infallible;
    type Command = Infallible;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<SocketAddr>, datagram: &mut [u8]) {
        let is_stray = self.is_stray(datagram);
        let answer = match &*datagram {
            b"new" => {
                self.sessions += 1;
                vec![b's', self.place, self.sessions]
            }
            b"boom" => panic!("told to"),
            _ if is_stray => b"gone".to_vec(),
            known => known.to_vec(),
        };
        self.outbox.push_back((arrival.peer, answer));
    }

    fn is_stray(&self, datagram: &[u8]) -> bool {
        matches!(datagram, [b's', place, number]
            if *place != self.place || *number > self.sessions)
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn handle_completed(&mut self, _: Instant, _: CommandId, outcome: Infallible) {
        match outcome {}
    }

    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        let (peer, bytes) = self.outbox.pop_front()?;
        buf.extend_from_slice(&bytes);
        Some(Transmit::to(peer))
    }

    fn poll_command(&mut self) -> Option<(CommandId, Infallible)> {
        None
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends nothing.
struct Silent;

impl Application<FirstSender> for Silent {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut FirstSender, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut FirstSender, event: Infallible) {
        match event {}
    }

    fn on_command(&mut self, _: Instant, _: &mut FirstSender, _: CommandId, command: Infallible) {
        match command {}
    }
}
