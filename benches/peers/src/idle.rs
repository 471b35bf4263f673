//! Memory of a server when its clients are connected and idle.

use core::time::Duration;

use crate::lane::Lane;
use crate::stack::{End, SERVER, Stack, client_address, client_number};

/// Number of clients.
const CLIENTS: u32 = 1_000;
/// Time between two turns.
const TURN: Duration = Duration::from_millis(50);
/// Time between two connects; the rate is below any stack's handshake budget.
const APART: Duration = Duration::from_millis(5);
/// Idle time, less than any stack's idle timeout.
const SILENCE: Duration = Duration::from_secs(8);

/// Returns how many bytes the server holds per connection; `held` returns how many bytes this
/// thread holds.
///
/// # Panics
///
/// If a client does not connect or is lost.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn bytes_per_connection<S: Stack>(held: fn() -> i64) -> f64 {
    let mut pool = ClientPool::<S>::new(held);
    for number in 0..CLIENTS {
        let now = pool.now;
        let client = S::client(&pool.server, number, now);
        pool.clients.push((client, Lane::default()));
        while pool.clients[number as usize].0.connections() == 0
            || pool.server.connections() <= number as usize
        {
            assert!(pool.now < now + Duration::from_secs(10), "{}", S::NAME);
            pool.turn(number as usize..=number as usize);
            pool.now += APART;
        }
        // Keeps the earlier connections alive.
        if number.is_multiple_of(50) {
            pool.turn(0..=number as usize);
        }
    }
    let end = pool.now + SILENCE;
    while pool.now < end {
        pool.turn(0..=CLIENTS as usize - 1);
        pool.now += TURN;
    }
    assert_eq!(pool.server.connections(), CLIENTS as usize, "{}", S::NAME);
    let server = &mut pool.server;
    let bytes = pool.bytes + change(held, || server.shrink());
    bytes as f64 / f64::from(CLIENTS)
}

struct ClientPool<S: Stack> {
    server: S::Server,
    /// Clients, each with the datagrams in flight to it.
    clients: Vec<(S::Client, Lane)>,
    to_server: Lane,
    from_server: Lane,
    now: Duration,
    held: fn() -> i64,
    /// Bytes allocated and not freed by the server since its creation.
    bytes: i64,
}

impl<S: Stack> ClientPool<S> {
    fn new(held: fn() -> i64) -> Self {
        let mut from_server = Lane::default();
        from_server.reserve(CLIENTS as usize * 4);
        Self {
            server: S::server(CLIENTS as usize),
            clients: Vec::new(),
            to_server: Lane::default(),
            from_server,
            now: Duration::ZERO,
            held,
            bytes: 0,
        }
    }

    /// Runs a turn of these clients and of the server.
    fn turn(&mut self, numbers: core::ops::RangeInclusive<usize>) {
        let (now, held, server) = (self.now, self.held, &mut self.server);
        for number in numbers {
            let (client, lane) = &mut self.clients[number];
            lane.deliver(|_, datagram| client.take(now, SERVER, datagram));
            client.settle(now);
            client.drain(now, &mut self.to_server);
            let from = client_address(u32::try_from(number).expect("few"));
            self.bytes += change(held, || {
                self.to_server
                    .deliver(|_, datagram| server.take(now, from, datagram));
            });
        }
        self.bytes += change(held, || {
            server.settle(now);
            server.drain(now, &mut self.from_server);
        });
        let clients = &mut self.clients;
        self.from_server.deliver(|to, datagram| {
            clients[client_number(to)].1.copy(to, datagram);
        });
    }
}

/// Returns by how many bytes `work` raises the held memory.
fn change(held: fn() -> i64, work: impl FnOnce()) -> i64 {
    let before = held();
    work();
    held() - before
}
