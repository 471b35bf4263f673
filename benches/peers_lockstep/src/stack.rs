//! The interface of a measured stack.

pub mod fortress;
pub mod ggrs;
pub mod tickwire_mesh;
pub mod tickwire_server;

use core::time::Duration;

use crate::conditions::NetworkConditions;
use crate::game::Game;
use crate::network::Mailbox;
use crate::play::Play;

/// Ticks per second of every stack.
pub const FPS: u32 = 60;
/// Time between two frames.
pub const FRAME: Duration = Duration::from_nanos(16_666_667);
/// Maximum number of predicted frames: the default of ggrs.
pub const WINDOW: u32 = 8;
/// Input delay in frames of peer-to-peer stacks, as ggrs's documentation recommends.
pub const DELAY: u32 = 2;

/// Bytes that `udp_proto` adds to a datagram of a player and to one for it. A message has 23 bytes
/// of header and tag, 7 of ACK and 1 of frame; the test below checks that with real sessions.
pub const SEAL: [u64; 2] = [31, 31];

/// Settings of a match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Number of players.
    pub players: usize,
    /// Input delay in frames, in peer-to-peer stacks.
    pub delay: u32,
    /// Maximum number of predicted frames, in peer-to-peer stacks; 0 is lockstep.
    pub window: u32,
    /// Number of ticks that a server's clients predict beyond the last closed one; 0 is lockstep.
    pub ahead: u8,
    /// Whether players commit to inputs before they reveal them; only Tickwire's mesh supports it.
    pub commits: bool,
    /// Network conditions, for stacks which derive a delay from them.
    pub conditions: NetworkConditions,
    /// Time between two turns of a player.
    pub turn: Duration,
    /// The player that diverges, and the step. If set, states are compared.
    pub diverges: Option<(usize, u64)>,
    /// Seed of a stack's random numbers.
    pub seed: u64,
}

/// A match of one stack: players, numbered from 0, followed by a server if the stack has one.
pub trait Stack<P: Play>: Sized {
    /// Its name in the report.
    const NAME: &'static str;
    /// Bytes that a transport adds to each datagram of a player and to each datagram for it.
    const SEAL: [u64; 2];
    /// Whether there is a server.
    const HAS_SERVER: bool;

    /// Creates all ends.
    fn new(setup: &Setup) -> Self;

    /// One end receives, runs timers and writes its outgoing datagrams to `post`.
    fn poll(&mut self, node: usize, now: Duration, post: &mut Post<'_>);

    /// A player's frame: like `poll`, then the game reads an input and advances.
    fn frame(&mut self, player: usize, now: Duration, input: P, post: &mut Post<'_>);

    /// Returns a player's game.
    fn game(&self, player: usize) -> &Game;

    /// Returns the number of final steps of a player's game.
    fn confirmed(&self, player: usize) -> u64;

    /// Returns counters of a player other than steps.
    fn count(&self, player: usize) -> Count;

    /// Returns whether any end has detected a desync.
    fn has_found_desync(&self) -> bool;
}

/// An end's mailboxes.
#[derive(Debug)]
pub struct Post<'a> {
    /// Received datagrams.
    pub inbox: &'a mut Mailbox,
    /// Datagrams to send.
    pub outbox: &'a mut Mailbox,
}

/// Counters which only some stacks have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Inputs that arrived too late.
    pub late: u64,
    /// Total time from reading inputs to their steps.
    pub latency: Duration,
    /// Number of these inputs.
    pub answered: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    use crypto::{Identity, Ring};
    use udp_proto::{
        AppId, ChannelId, Config, Credentials, Endpoint, Event, Listen, ServerIdentity, SessionId,
        Target,
    };
    use wire::{Arrival, InstanceId, Instant, UnixTime};

    /// Bytes of a message.
    const MESSAGE: [u8; 12] = [7; 12];
    const SERVER: &str = "192.0.2.1:7777";
    const CLIENT: &str = "198.51.100.1:4000";

    struct Side {
        endpoint: Endpoint<Ring>,
        session: Option<SessionId>,
        /// Length of the last datagram that it sent.
        sent: usize,
        /// Datagrams in flight to it, with their arrival times.
        coming: Vec<(Instant, Vec<u8>)>,
    }

    impl Side {
        fn new() -> Self {
            let app = AppId(1);
            let mut endpoint =
                Endpoint::new(Config::default(), app, Ring::new(), Instant::ZERO).unwrap();
            endpoint.set_unix_time(Instant::ZERO, UnixTime::from_secs(1_800_000_000));
            Self {
                endpoint,
                session: None,
                sent: 0,
                coming: Vec::new(),
            }
        }

        /// Receives datagrams of `other` and sends it a message on the unreliable channel.
        fn turn(&mut self, now: Instant, sender: &str, other: &mut Self) {
            let sender: core::net::SocketAddr = sender.parse().unwrap();
            for (at, mut datagram) in core::mem::take(&mut self.coming) {
                if at <= now {
                    let arrival = Arrival::from(sender);
                    self.endpoint.handle_datagram(now, arrival, &mut datagram);
                } else {
                    self.coming.push((at, datagram));
                }
            }
            if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                self.endpoint.handle_timeout(now);
            }
            while let Some(event) = self.endpoint.poll_event() {
                match event {
                    Event::Connected { session, .. } => self.session = Some(session),
                    Event::Readable { session } => {
                        let mut message = Vec::new();
                        while self.endpoint.receive(now, session, &mut message).is_some() {}
                    }
                    _ => {}
                }
            }
            if let Some(session) = self.session {
                self.endpoint
                    .send(now, session, ChannelId(0), &MESSAGE)
                    .unwrap();
            }
            let mut datagram = Vec::new();
            while self.endpoint.poll_transmit(now, &mut datagram).is_some() {
                self.sent = datagram.len();
                let at = now + Duration::from_millis(50);
                other.coming.push((at, core::mem::take(&mut datagram)));
            }
        }
    }

    /// Two sessions 50 ms apart, each of which sends one message per tick, as a player and a server
    /// do.
    #[test]
    fn the_overhead_equals_that_of_real_sessions() {
        let [mut client, mut server] = [Side::new(), Side::new()];
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        let target = Target {
            addresses: vec![SERVER.parse().unwrap()],
            server: ServerIdentity::Keys(vec![*identity.public_key()]),
            credentials: Credentials::Open,
        };
        let listen = Listen::new(identity, InstanceId(1)).with_open_mode();
        server.endpoint.listen(Instant::ZERO, listen).unwrap();
        client.endpoint.connect(Instant::ZERO, target).unwrap();
        let mut longest = [0, 0];
        for tick in 0..900_u32 {
            let now = Instant::ZERO + FRAME * tick;
            client.turn(now, SERVER, &mut server);
            server.turn(now, CLIENT, &mut client);
            // After the initial packets, such as MTU probes.
            if tick > 600 {
                longest = [longest[0].max(client.sent), longest[1].max(server.sent)];
            }
        }
        assert!(client.session.is_some() && server.session.is_some());
        let sealed = SEAL.map(|seal| MESSAGE.len() + usize::try_from(seal).unwrap());
        assert_eq!(longest, sealed);
    }
}
