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
    use benches::pair::{MESSAGE_LEN, Pair, UNRELIABLE};

    /// Two sessions in memory, each of which sends one message a tick, as a player and a server do.
    #[test]
    fn a_seal_is_as_long_as_real_sessions_make_it() {
        let mut pair = Pair::new(UNRELIABLE);
        (0..600).for_each(|_| pair.tick());
        let (datagrams, bytes) = pair.per_tick();
        assert!((datagrams - 2.0).abs() < 0.01, "{datagrams}");
        let both = 2 * MESSAGE_LEN as u64 + SEAL.iter().sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "a few bytes")]
        let off = bytes - both as f64;
        assert!(off.abs() < 1.0, "{bytes}");
    }
}
