//! Sockets that are opened and closed while the driver runs.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket as PlainSocket};
use std::ops::ControlFlow;
#[cfg(feature = "conditioner")]
use std::time::Duration;

use servicer::{
    Application, BindCause, Clock, Config, Driver, PeerAddress, Requests, SocketConfig,
    SocketError, SocketIndex, SocketOrder, SocketOutcome,
};
use wire::{Arrival, CommandId, Effect, Instant, Machine, Transmit};

use crate::harness::{TIMEOUT, bind, plain, receive};

/// Sends each datagram back over the socket that received it.
#[derive(Debug, Default)]
struct Reflector {
    requested: VecDeque<OrderCommand>,
    next: u64,
    outbox: VecDeque<(Peer, Vec<u8>)>,
    outcomes: Vec<(CommandId, SocketOutcome)>,
}

/// One socket of ours and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    socket: SocketIndex,
    address: SocketAddr,
}

impl PeerAddress for Peer {
    fn from_wire(socket: SocketIndex, address: SocketAddr) -> Self {
        Self { socket, address }
    }
    fn socket(&self) -> Option<SocketIndex> {
        Some(self.socket)
    }
    fn address(&self) -> SocketAddr {
        self.address
    }
}

#[derive(Clone, Debug)]
struct OrderCommand(SocketOrder);

impl Effect for OrderCommand {
    type Outcome = SocketOutcome;
}

impl Machine for Reflector {
    type Peer = Peer;
    type Event = ();
    type Command = OrderCommand;

    fn handle_datagram(&mut self, _: Instant, arrival: Arrival<Peer>, datagram: &mut [u8]) {
        self.outbox.push_back((arrival.peer, datagram.to_vec()));
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn handle_completed(&mut self, _: Instant, id: CommandId, outcome: SocketOutcome) {
        self.outcomes.push((id, outcome));
    }
    fn poll_transmit(&mut self, _: Instant, buf: &mut Vec<u8>) -> Option<Transmit<Peer>> {
        let (peer, bytes) = self.outbox.pop_front()?;
        buf.extend_from_slice(&bytes);
        Some(Transmit::to(peer))
    }
    fn poll_command(&mut self) -> Option<(CommandId, OrderCommand)> {
        let requested = self.requested.pop_front()?;
        self.next += 1;
        Some((CommandId(self.next), requested))
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[derive(Debug)]
struct Opener;

impl Application<Reflector> for Opener {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Reflector, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    fn on_event(&mut self, _: Instant, _: &mut Reflector, (): ()) {}
    fn on_command(&mut self, _: Instant, _: &mut Reflector, _: CommandId, command: OrderCommand) {
        panic!("{command:?} is for the driver");
    }
    fn socket_order(&self, command: &OrderCommand) -> Option<SocketOrder> {
        Some(command.0.clone())
    }
    fn on_socket(
        &mut self,
        now: Instant,
        machine: &mut Reflector,
        id: CommandId,
        outcome: SocketOutcome,
    ) {
        machine.handle_completed(now, id, outcome);
    }
}

struct Bench {
    driver: Driver<Reflector, Opener>,
    requests: Requests<()>,
    /// Of the first socket.
    address: SocketAddr,
}

impl Bench {
    fn new(opened_max: usize) -> Self {
        let socket = bind("127.0.0.1");
        let address = socket.local_address();
        let mut config = Config::default();
        config.opened_max = opened_max;
        let (driver, requests) =
            Driver::new(vec![socket], Reflector::default(), Opener, config).unwrap();
        Self {
            driver,
            requests,
            address,
        }
    }

    /// Submits one order and returns its outcome.
    fn order(&mut self, order: SocketOrder) -> SocketOutcome {
        self.driver
            .act(|_, machine, _| machine.requested.push_back(OrderCommand(order)));
        assert_eq!(self.driver.turn(), ControlFlow::Continue(()));
        let last = self.driver.act(|_, machine, _| machine.outcomes.pop());
        last.expect("each order is answered").1
    }

    fn open(&mut self) -> (SocketIndex, SocketAddr) {
        let outcome = self.order(open_at("127.0.0.1:0"));
        let SocketOutcome::Opened { socket, address } = outcome else {
            panic!("{outcome:?}");
        };
        (socket, address)
    }

    /// Opens one with `peer` as its only peer, as an exit's towards a game server.
    #[cfg(has_linux_calls)]
    fn open_for(&mut self, peer: SocketAddr) -> (SocketIndex, SocketAddr) {
        let address = "127.0.0.1:0".parse().unwrap();
        let mut config = SocketConfig::default();
        config.peer = Some(peer);
        let outcome = self.order(SocketOrder::Open { address, config });
        let SocketOutcome::Opened { socket, address } = outcome else {
            panic!("{outcome:?}");
        };
        (socket, address)
    }

    /// Runs turns until each of `clients` has received a datagram.
    fn serve(&mut self, clients: &[PlainSocket]) -> Vec<Vec<u8>> {
        for client in clients {
            client.set_nonblocking(true).unwrap();
        }
        let mut received = vec![None; clients.len()];
        let end = Clock::new().now() + TIMEOUT;
        while received.iter().any(Option::is_none) {
            assert!(Clock::new().now() < end, "{received:?}");
            // A datagram in flight on loopback wakes the driver, so it never waits forever.
            self.requests.wake();
            self.driver.wait().unwrap();
            assert_eq!(self.driver.turn(), ControlFlow::Continue(()));
            for (client, received) in clients.iter().zip(&mut received) {
                let mut bytes = [0; 64];
                if let Ok((len, _)) = client.recv_from(&mut bytes) {
                    *received = Some(bytes[..len].to_vec());
                }
            }
        }
        received.into_iter().flatten().collect()
    }
}

fn open_at(address: &str) -> SocketOrder {
    SocketOrder::Open {
        address: address.parse().unwrap(),
        config: SocketConfig::default(),
    }
}

#[test]
fn an_opened_socket_receives_and_answers_from_its_own_address() {
    let mut bench = Bench::new(8);
    let (index, address) = bench.open();
    assert_eq!(index, SocketIndex(1), "counted on from those given");
    let given = bench.address;
    let clients = [plain("127.0.0.1"), plain("127.0.0.1")];
    clients[0].send_to(b"opened", address).unwrap();
    clients[1].send_to(b"given", given).unwrap();
    assert_eq!(
        bench.serve(&clients),
        [b"opened".to_vec(), b"given".to_vec()]
    );
    // Again: the system reports datagrams that arrive after the socket was emptied.
    clients[0].set_nonblocking(false).unwrap();
    clients[0].send_to(b"again", address).unwrap();
    bench.driver.wait().unwrap();
    assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
    assert_eq!(receive(&clients[0]), (b"again".to_vec(), address));
    assert_eq!(bench.requests.counters().sockets_opened, 1);
}

#[test]
fn hundreds_of_sockets_are_all_read_in_one_turn() {
    let mut bench = Bench::new(300);
    let addresses: Vec<SocketAddr> = (0..300).map(|_| bench.open().1).collect();
    let client = plain("127.0.0.1");
    for round in 0..3_u8 {
        let before = bench.requests.counters();
        for address in &addresses {
            client.send_to(&[round], address).unwrap();
        }
        assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
        let after = bench.requests.counters();
        assert_eq!(after.datagrams_in - before.datagrams_in, 300);
        assert_eq!(after.datagrams_out - before.datagrams_out, 300);
    }
}

#[test]
fn sockets_are_limited_and_indices_are_not_reused() {
    let mut bench = Bench::new(2);
    let (first, _) = bench.open();
    let (second, _) = bench.open();
    for _ in 0..3 {
        let outcome = bench.order(open_at("127.0.0.1:0"));
        assert_eq!(outcome, SocketOutcome::Failed(SocketError::TooMany));
    }
    let outcome = bench.order(SocketOrder::Close(first));
    assert_eq!(outcome, SocketOutcome::Closed);
    let (third, _) = bench.open();
    assert_eq!([first, second, third].map(|index| index.0), [1, 2, 3]);
    let counters = bench.requests.counters();
    assert_eq!(counters.sockets_opened, 3);
    assert_eq!(counters.sockets_closed, 1);
    assert_eq!(counters.socket_orders_failed, 3);
}

#[test]
fn a_closed_socket_is_removed_and_the_given_one_cannot_be_closed() {
    let mut bench = Bench::new(2);
    let (index, address) = bench.open();
    assert_eq!(
        bench.order(SocketOrder::Close(index)),
        SocketOutcome::Closed
    );
    // Its port is free again, and the machine's later datagrams for it are dropped and counted.
    drop(PlainSocket::bind(address).unwrap());
    let late = Peer {
        socket: index,
        address,
    };
    bench
        .driver
        .act(|_, machine, _| machine.outbox.push_back((late, vec![1])));
    assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
    assert_eq!(bench.requests.counters().dropped_out_no_socket, 1);
    for index in [index, SocketIndex(0), SocketIndex(99)] {
        let outcome = bench.order(SocketOrder::Close(index));
        let unknown = SocketOutcome::Failed(SocketError::Unknown(index));
        assert_eq!(outcome, unknown);
    }
}

#[test]
fn a_busy_port_is_reported_and_costs_nothing() {
    let mut bench = Bench::new(1);
    let taken = plain("127.0.0.1");
    let address = taken.local_addr().unwrap();
    let outcome = bench.order(open_at(&address.to_string()));
    let SocketOutcome::Failed(SocketError::Bind(error)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.cause, BindCause::Busy);
    let text = SocketError::Bind(error).to_string();
    assert_eq!(
        text,
        format!("UDP port {address} is in use by another socket")
    );
    bench.open();
}

#[test]
fn a_wake_during_reads_of_opened_sockets_is_not_lost() {
    let mut bench = Bench::new(4);
    let addresses: Vec<SocketAddr> = (0..4).map(|_| bench.open().1).collect();
    let client = plain("127.0.0.1");
    for round in 1..=500 {
        client.send_to(b"x", addresses[round % 4]).unwrap();
        bench.requests.send(()).unwrap();
        let end = Clock::new().now() + TIMEOUT;
        let done = |bench: &Bench| {
            let counters = bench.requests.counters();
            let received = counters.datagrams_in == u64::try_from(round).unwrap();
            received && counters.requests == counters.datagrams_in
        };
        while !done(&bench) {
            assert!(Clock::new().now() < end, "round {round}");
            bench.driver.wait().unwrap();
            assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
        }
    }
}

#[cfg(feature = "conditioner")]
#[test]
fn the_conditioner_applies_to_opened_sockets_too() {
    use servicer::{Conditioner, Delivery, Direction, LinkModel, Remote, Rules};

    struct FixedDelay;

    impl LinkModel for FixedDelay {
        fn send(&mut self, now: Instant, datagram: &[u8], deliveries: &mut Vec<Delivery>) {
            deliveries.push(Delivery {
                at: now + Duration::from_millis(40),
                bytes: datagram.to_vec(),
            });
        }
    }

    let mut bench = Bench::new(2);
    let rules = Rules::new();
    rules.set(Remote::Any, FixedDelay);
    bench
        .driver
        .set_conditioner(Direction::Outbound, Conditioner::new(rules));
    let (index, address) = bench.open();
    let clients = [plain("127.0.0.1")];
    let sent_at = Clock::new().now();
    clients[0].send_to(b"late", address).unwrap();
    assert_eq!(bench.serve(&clients), [b"late".to_vec()]);
    let took = Clock::new().now().saturating_since(sent_at);
    assert!(took >= Duration::from_millis(40), "{took:?}");

    // A datagram in flight when its socket closes is dropped and counted.
    clients[0].send_to(b"lost", address).unwrap();
    while bench.requests.counters().datagrams_in < 2 {
        bench.driver.wait().unwrap();
        assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
    }
    assert_eq!(
        bench.order(SocketOrder::Close(index)),
        SocketOutcome::Closed
    );
    while bench.requests.counters().dropped_out_no_socket == 0 {
        bench.driver.wait().unwrap();
        assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
    }
    assert_eq!(bench.requests.counters().datagrams_out, 1);
}

#[cfg(has_linux_calls)]
#[test]
fn an_opened_socket_of_one_peer_receives_from_it_only_after_a_restart_too() {
    let mut bench = Bench::new(8);
    let (peer, other) = (plain("127.0.0.1"), plain("127.0.0.1"));
    let peer_address = peer.local_addr().unwrap();
    let (_, address) = bench.open_for(peer_address);
    other.send_to(b"stranger", address).unwrap();
    peer.send_to(b"peer", address).unwrap();
    let peers = [peer];
    assert_eq!(bench.serve(&peers), [b"peer".to_vec()]);
    assert_eq!(bench.requests.counters().datagrams_in, 1);

    // Its last datagram is undeliverable, and the ICMP error costs no other datagram.
    peers[0].send_to(b"last words", address).unwrap();
    drop(peers);
    assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
    let peers = [PlainSocket::bind(peer_address).unwrap()];
    for word in [b"back", b"more"] {
        peers[0].send_to(word, address).unwrap();
        assert_eq!(bench.serve(&peers), [word.to_vec()]);
    }
    assert_eq!(bench.requests.counters().datagrams_in, 4);
}

/// If an error ended the read, the answer behind it would wait for the next datagram, which may
/// never arrive.
#[cfg(has_linux_calls)]
#[test]
fn an_icmp_error_of_an_earlier_datagram_delays_no_answer_to_the_peer() {
    use socket2::{Domain, Protocol, Socket, Type};

    let Ok(raw) = Socket::new(Domain::IPV4, Type::from(SOCK_RAW), Some(Protocol::ICMPV4)) else {
        eprintln!("not available here: it takes the right to open raw sockets");
        return;
    };
    let mut bench = Bench::new(8);
    let peers = [plain("127.0.0.1")];
    let peer_address = peers[0].local_addr().unwrap();
    let (_, address) = bench.open_for(peer_address);
    // Destination unreachable: no such protocol, fragmentation needed, no such network.
    for (code, word) in [(2, b"one"), (4, b"two"), (0, b"six")] {
        let message = unreachable(code, (address, peer_address));
        let host = SocketAddr::new(address.ip(), 0);
        raw.send_to(&message, &host.into()).unwrap();
        peers[0].send_to(word, address).unwrap();
        assert_eq!(bench.serve(&peers), [word.to_vec()]);
    }
    assert_eq!(bench.requests.counters().datagrams_in, 3);
}

/// An ICMP message may also report a datagram as too long, but an earlier one.
#[cfg(has_linux_calls)]
#[test]
fn a_datagram_too_long_for_a_connected_socket_is_counted() {
    let mut bench = Bench::new(8);
    let peer = plain("127.0.0.1");
    let (socket, _) = bench.open_for(peer.local_addr().unwrap());
    let to = Peer {
        socket,
        address: peer.local_addr().unwrap(),
    };
    for _ in 0..3 {
        // Over IPv4 a datagram has at most 65,507 bytes. One slightly longer passes Linux's first
        // check on loopback, and ICMP reports it.
        let words = [vec![1; 65_535], vec![2]].map(|bytes| (to, bytes));
        bench
            .driver
            .act(|_, machine, _| machine.outbox.extend(words));
        assert_eq!(bench.driver.turn(), ControlFlow::Continue(()));
        assert_eq!(receive(&peer).0, [2]);
    }
    let counters = bench.requests.counters();
    assert_eq!(counters.dropped_out_too_large, 3);
    assert_eq!(counters.unreachable, 0);
    assert_eq!(counters.datagrams_out, 3);
}

/// `socket(2)`.
#[cfg(has_linux_calls)]
const SOCK_RAW: i32 = 3;

/// A router's ICMP error for a datagram of these addresses (RFC 792).
#[cfg(has_linux_calls)]
fn unreachable(code: u8, (from, to): (SocketAddr, SocketAddr)) -> Vec<u8> {
    let [from_port, to_port] = [from, to].map(|end| end.port().to_be_bytes());
    // Type, code, checksum, and an MTU of 1,000, which is used with code 4.
    let mut message = vec![3, code, 0, 0, 0, 0, 3, 232];
    message.extend([0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0]);
    message.extend([127, 0, 0, 1, 127, 0, 0, 1]);
    message.extend([from_port, to_port, [0, 16], [0, 0]].concat());
    let sum: u32 = message
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}
