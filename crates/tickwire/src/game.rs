//! A server that calls a game, on one thread, at a fixed rate.

use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use udp_proto::{ChannelId, CloseReason, MessageId, MessageOutcome, Peer, SessionId};

use crate::{Event, Server};

/// What a game does when something happens to its server.
///
/// All calls come from [`Server::run`], on the thread that called it, one after the other: a game
/// needs no lock. Of one session the order is `connect`, any number of `message` and `settled`,
/// `disconnect`; no `message` follows once the game has sent it away. Within a tick all news come before
/// `tick`.
pub trait Game {
    /// The server runs from now on.
    fn start(&mut self, _server: &mut Server) {}

    /// A player has come: messages may be sent.
    fn connect(&mut self, _server: &mut Server, _session: SessionId, _peer: &Peer) {}

    /// A player has sent a message.
    fn message(
        &mut self,
        server: &mut Server,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    );

    /// What became of a message that was sent tracked, of those on `channel` the one numbered
    /// `message`.
    fn settled(
        &mut self,
        _server: &mut Server,
        _session: SessionId,
        _message: (ChannelId, MessageId),
        _outcome: MessageOutcome,
    ) {
    }

    /// A player has gone. The session takes nothing any more.
    fn disconnect(&mut self, _server: &mut Server, _session: SessionId, _reason: CloseReason) {}

    /// One step of the simulation; `Break` ends the server.
    ///
    /// `since` is the time since the last tick was due: the tick rate's span as a rule, and longer
    /// where a tick took so long that others were left out.
    fn tick(&mut self, server: &mut Server, since: Duration) -> ControlFlow<()>;

    /// The server ends: what is sent now is the last. Each player's `disconnect` follows.
    fn stop(&mut self, _server: &mut Server) {}
}

/// Ends [`Server::run`] from another thread or a signal's handler.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Has the server stop before its next tick, as if the game had asked for it.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Server {
    /// Returns what ends [`run`](Self::run).
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs `game` at `hz` ticks a second until it or a [`Stopper`] ends it; then all sessions are
    /// closed, with what was sent reliably delivered first as far as [`Config::linger`] lets it.
    ///
    /// [`Config::linger`]: udp_proto::Config::linger
    ///
    /// # Errors
    ///
    /// The system's, where it cannot wait. The game was told to stop, and players were not.
    pub fn run(&mut self, hz: NonZeroU8, game: &mut impl Game) -> io::Result<()> {
        game.start(self);
        let outcome = self.play(hz, game);
        game.stop(self);
        outcome?;
        self.shutdown();
        // Longer than any linger: a session then ends whatever its peer does.
        for _ in 0..u32::from(hz.get()).saturating_mul(DRAIN_SECONDS_MAX) {
            if !self.socket.has_sessions() {
                break;
            }
            for event in self.wait_tick(hz)? {
                tell(game, self, event);
            }
        }
        for event in self.poll() {
            tell(game, self, event);
        }
        Ok(())
    }

    fn play(&mut self, hz: NonZeroU8, game: &mut impl Game) -> io::Result<()> {
        loop {
            let (events, since) = self.socket.wait_tick_and_tell(hz)?;
            for event in events {
                tell(game, self, event);
            }
            if self.stopper.is_stopped() || game.tick(self, since).is_break() {
                return Ok(());
            }
        }
    }
}

/// Gives one event to the game.
fn tell(game: &mut impl Game, server: &mut Server, event: Event) {
    match event {
        Event::Connected { session, peer } => game.connect(server, session, &peer),
        // The game has sent it away on account of an event before.
        Event::Message { session, .. } if server.socket.is_hushed(session) => {}
        Event::Message {
            session,
            channel,
            bytes,
        } => game.message(server, session, channel, &bytes),
        Event::Settled {
            session,
            channel,
            message,
            outcome,
        } => game.settled(server, session, (channel, message), outcome),
        Event::Disconnected {
            session, reason, ..
        } => game.disconnect(server, session, reason),
        // A server dials nobody.
        Event::Unreachable { .. } => {}
    }
}

/// How long closing may take: a linger of 500 ms by default, and what a slow one may ask for.
const DRAIN_SECONDS_MAX: u32 = 5;
