//! A server that calls a game at a fixed rate on one thread.

use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;

use udp_proto::{ChannelId, CloseReason, MessageId, MessageOutcome, Peer, SessionId};

use crate::{Event, Server};

/// Callbacks of a game server.
///
/// [`Server::run`] makes all calls on its own thread, one after another, so a game needs no lock.
/// The order for a session is `connect`, any number of `message` and `settled`, `disconnect`. After
/// the game has kicked or disconnected a session, no `message` follows. Within a tick, all events
/// precede `tick`.
pub trait Game {
    /// The server starts.
    fn start(&mut self, _server: &mut Server) {}

    /// A player has connected. The session accepts messages.
    fn connect(&mut self, _server: &mut Server, _session: SessionId, _peer: &Peer) {}

    /// A player has sent a message.
    fn message(
        &mut self,
        server: &mut Server,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    );

    /// The outcome of a tracked message: the one numbered `message` on `channel`.
    fn settled(
        &mut self,
        _server: &mut Server,
        _session: SessionId,
        _message: (ChannelId, MessageId),
        _outcome: MessageOutcome,
    ) {
    }

    /// A session has ended and accepts no more messages.
    fn disconnect(&mut self, _server: &mut Server, _session: SessionId, _reason: CloseReason) {}

    /// One step of the simulation; `Break` ends the server.
    ///
    /// `since` is the time since the previous tick was due: normally the tick interval, longer if
    /// ticks were skipped.
    fn tick(&mut self, server: &mut Server, since: Duration) -> ControlFlow<()>;

    /// The server stops. This is the last chance to send; each player's `disconnect` follows.
    fn stop(&mut self, _server: &mut Server) {}
}

/// Stops [`Server::run`] from another thread or a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Stops the server before its next tick, as if `tick` had returned `Break`.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Server {
    /// Returns a handle that stops [`run`](Self::run).
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs `game` at `hz` ticks per second until the game or a [`Stopper`] stops it. Then closes
    /// all sessions, after delivery of reliable messages within [`Config::linger`].
    ///
    /// [`Config::linger`]: udp_proto::Config::linger
    ///
    /// # Errors
    ///
    /// The system's error if waiting fails. `stop` has then been called; the sessions may still be
    /// open.
    pub fn run(&mut self, hz: NonZeroU8, game: &mut impl Game) -> io::Result<()> {
        game.start(self);
        let outcome = self.play(hz, game);
        game.stop(self);
        outcome?;
        self.shutdown();
        // Longer than any linger, after which a session ends whatever its peer does.
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

/// Calls the game for one event.
fn tell(game: &mut impl Game, server: &mut Server, event: Event) {
    match event {
        Event::Connected { session, peer } => game.connect(server, session, &peer),
        // An earlier event of the batch made the game end this session.
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
        // A server does not dial.
        Event::Unreachable { .. } => {}
    }
}

/// Bound on closing: the default linger is 500 ms, and longer ones are possible.
const DRAIN_SECONDS_MAX: u32 = 5;
