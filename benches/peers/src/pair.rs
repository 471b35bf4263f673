//! Two ends in memory, run alike for every stack.

use core::net::SocketAddr;
use core::time::Duration;

use crate::case::{Case, Direction};
use crate::lane::Lane;
use crate::stack::{Delivery, End, SERVER, Stack, client_address};

/// A link that carries messages, tick by tick.
pub trait Link {
    /// Runs one tick.
    fn tick(&mut self);

    /// Returns what was carried since the warm-up.
    fn carried(&self) -> Carried;

    /// Runs ticks until `messages` more have arrived. Returns how many did.
    ///
    /// # Panics
    ///
    /// If none arrives within 10,000 ticks.
    fn carry(&mut self, messages: u64) -> u64 {
        let before = self.carried().messages;
        let (mut last, mut idle) = (before, 0);
        while last - before < messages {
            self.tick();
            let now = self.carried().messages;
            idle = if now == last { idle + 1 } else { 0 };
            assert!(idle < 10_000, "nothing comes any more");
            last = now;
        }
        last - before
    }
}

/// Messages and datagrams that a link has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Messages read.
    pub messages: u64,
    /// Datagrams of both ends.
    pub datagrams: u64,
}

/// A client and a server of one stack.
pub struct Pair<S: Stack> {
    client: S::Client,
    server: S::Server,
    to_server: Lane,
    to_client: Lane,
    case: Case,
    message: Vec<u8>,
    now: Duration,
    /// Messages that the client has sent.
    sent: u64,
    datagrams: u64,
    /// Counts at the end of the warm-up.
    cold: Carried,
}

impl<S: Stack> Pair<S> {
    /// Connects, and runs 1,000 ticks as a warm-up.
    ///
    /// # Panics
    ///
    /// If they do not connect within a minute of virtual time, or less than 99 % of messages
    /// arrive.
    pub fn new(case: Case) -> Self {
        let server = S::server(1);
        let client = S::client(&server, 1, Duration::ZERO);
        let mut pair = Self {
            client,
            server,
            to_server: Lane::default(),
            to_client: Lane::default(),
            case: Case { count: 0, ..case },
            message: vec![0x5A; case.len],
            now: Duration::ZERO,
            sent: 0,
            datagrams: 0,
            cold: Carried::default(),
        };
        while pair.client.connections() == 0 || pair.server.connections() == 0 {
            assert!(
                pair.now < Duration::from_mins(1),
                "{}: no connection",
                S::NAME
            );
            pair.tick();
        }
        pair.case = case;
        (0..1_000).for_each(|_| pair.tick());
        pair.cold = pair.carried();
        let (came, sent) = (pair.server.received(), pair.sent);
        assert!(
            came * 100 >= sent * 99,
            "{}: {came} of {sent} came",
            S::NAME
        );
        pair
    }

    fn client_sends(&mut self) -> usize {
        let under_way = self.sent - self.server.received();
        let count = if under_way > self.case.window {
            0
        } else {
            self.case.count
        };
        self.sent += count as u64;
        count
    }
}

impl<S: Stack> Link for Pair<S> {
    fn tick(&mut self) {
        let count = self.client_sends();
        let sends = Sends {
            delivery: self.case.delivery,
            count,
            message: &self.message,
        };
        let lanes = (&mut self.to_client, &mut self.to_server);
        frame(self.now, &mut self.client, SERVER, lanes, &sends);
        self.datagrams += self.to_server.datagrams();
        self.now += self.case.tick / 2;

        let count = match self.case.direction {
            Direction::Both => self.case.count,
            Direction::Up => 0,
        };
        let sends = Sends { count, ..sends };
        let lanes = (&mut self.to_server, &mut self.to_client);
        frame(self.now, &mut self.server, client_address(1), lanes, &sends);
        self.datagrams += self.to_client.datagrams();
        self.now += self.case.tick / 2;
    }

    fn carried(&self) -> Carried {
        Carried {
            messages: self.client.received() + self.server.received() - self.cold.messages,
            datagrams: self.datagrams - self.cold.datagrams,
        }
    }
}

/// The messages that an end sends in a frame.
struct Sends<'a> {
    delivery: Delivery,
    count: usize,
    message: &'a [u8],
}

/// Runs a frame of one end: receive, run timers and read, send, drain.
fn frame(
    now: Duration,
    end: &mut impl End,
    from: SocketAddr,
    (inbound, outbound): (&mut Lane, &mut Lane),
    sends: &Sends<'_>,
) {
    inbound.deliver(|_, datagram| end.take(now, from, datagram));
    end.settle(now);
    for _ in 0..sends.count {
        end.send(now, sends.delivery, sends.message);
    }
    end.drain(now, outbound);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::CASES;
    use crate::stack::enet::Enet;
    use crate::stack::quinn_proto::QuinnProto;
    use crate::stack::renet::Renet;
    use crate::stack::tickwire::Tickwire;

    /// Every message of every case arrives exactly once.
    fn carries_all<S: Stack>() {
        for case in CASES {
            let mut pair = Pair::<S>::new(case);
            let sent = pair.sent;
            for _ in 0..500 {
                pair.tick();
            }
            let (sent, carried) = (pair.sent - sent, pair.carried());
            let ways = match case.direction {
                Direction::Both => 2,
                Direction::Up => 1,
            };
            assert!(sent > 20, "{} {}: {sent} sent", S::NAME, case.name);
            let expected = sent * ways;
            let apart = carried.messages.abs_diff(expected);
            assert!(
                apart <= 64,
                "{} {}: {carried:?} of {expected}",
                S::NAME,
                case.name
            );
            assert!(carried.datagrams > 0);
        }
    }

    #[test]
    fn tickwire_delivers_all() {
        carries_all::<Tickwire>();
    }

    #[test]
    fn renet_delivers_all() {
        carries_all::<Renet>();
    }

    #[test]
    fn quinn_proto_delivers_all() {
        carries_all::<QuinnProto>();
    }

    #[test]
    fn enet_delivers_all() {
        carries_all::<Enet>();
    }
}
