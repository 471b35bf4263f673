//! The stacks, and what a match needs of them.

pub mod fortress;
pub mod ggrs;
pub mod tickwire_mesh;
pub mod tickwire_server;

use core::time::Duration;

use crate::game::Game;
use crate::network::Mailbox;
use crate::play::Play;
use crate::weather::Weather;

/// Ticks a second, of every stack.
pub const FPS: u32 = 60;
/// From one frame to the next.
pub const FRAME: Duration = Duration::from_nanos(16_666_667);
/// Frames that are predicted at most, where a stack predicts: what ggrs has by itself.
pub const WINDOW: u32 = 8;
/// Frames between reading an input and its step, among equals: what ggrs's documentation advises.
pub const DELAY: u32 = 2;

/// What `udp_proto` adds to a datagram of a player and to one for it, in bytes: around one message
/// 23 of header and tag, 7 of the ACK and 1 of the frame; the test below has real sessions say so.
pub const SEAL: [u64; 2] = [31, 31];

/// What a match is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Who plays.
    pub players: usize,
    /// Frames between reading an input and its step, among equals.
    pub delay: u32,
    /// Frames that are predicted at most, among equals; 0 is lockstep.
    pub window: u32,
    /// Ticks that a server's clients go ahead of what is closed, on predicted inputs; 0 is lockstep.
    pub ahead: u8,
    /// Whether inputs are committed to before they are shown; only our mesh can.
    pub commits: bool,
    /// What the network does, for who must choose a delay by it.
    pub weather: Weather,
    /// Between two turns of a player.
    pub turn: Duration,
    /// Who goes wrong, and in which step; states are compared then.
    pub diverges: Option<(usize, u64)>,
    /// Fixes what a stack draws.
    pub seed: u64,
}

/// A match of one stack: players, numbered from 0, and a server behind them where it has one.
pub trait Stack<P: Play>: Sized {
    /// Its name in the report.
    const NAME: &'static str;
    /// Bytes that a transport adds to each datagram of a player, and of whom it hears.
    const SEAL: [u64; 2];
    /// Whether there is a server.
    const HAS_SERVER: bool;

    /// Makes all ends of it.
    fn new(setup: &Setup) -> Self;

    /// One end takes what came, runs timers and puts what it has to send into `post`.
    fn poll(&mut self, node: usize, now: Duration, post: &mut Post<'_>);

    /// A player's frame: the same, and the game reads an input and goes on.
    fn frame(&mut self, player: usize, now: Duration, input: P, post: &mut Post<'_>);

    /// A player's game.
    fn game(&self, player: usize) -> &Game;

    /// Steps of a player's game that nothing will change any more.
    fn confirmed(&self, player: usize) -> u64;

    /// What is counted of a player beside steps.
    fn count(&self, player: usize) -> Count;

    /// Whether any end has found that states differ.
    fn has_found_desync(&self) -> bool;
}

/// An end's letters.
#[derive(Debug)]
pub struct Post<'a> {
    /// What came.
    pub inbox: &'a mut Mailbox,
    /// What goes.
    pub outbox: &'a mut Mailbox,
}

/// What only some stacks have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Inputs that came too late to count.
    pub late: u64,
    /// From reading an input to its step, all together.
    pub latency: Duration,
    /// Of how many inputs.
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
        /// Length of the datagram that it sent last.
        sent: usize,
        /// On their way to it, each with when it comes.
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

        /// Takes what has come from `other`, and sends it a message on the unreliable channel.
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

    /// Two sessions 50 ms apart, each of which sends one message a tick, as a player and a server do.
    #[test]
    fn a_seal_is_as_long_as_real_sessions_make_it() {
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
            // Past what only the beginning has, such as looks at the MTU.
            if tick > 600 {
                longest = [longest[0].max(client.sent), longest[1].max(server.sent)];
            }
        }
        assert!(client.session.is_some() && server.session.is_some());
        let sealed = SEAL.map(|seal| MESSAGE.len() + usize::try_from(seal).unwrap());
        assert_eq!(longest, sealed);
    }
}
