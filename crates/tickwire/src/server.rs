//! A game server: polled by its game, or calling it at a fixed rate.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crypto::token::TokenKey;
use crypto::{Certificate, Identity, Provider, Ring, Secret32, identity_file, reset_file};
use udp_proto::{
    AppId, BlockError, ChannelId, CidLen, CloseCode, CloseReason, Config, Listen, Message,
    MessageId, MessageOutcome, NoSession, Peer, Prefix, SendError, SessionId, SessionStats,
};
use wire::InstanceId;

use crate::socket::{OpenError, Socket};
use crate::{Event, Report, ServerKey};

/// Reads or creates the secret for stateless resets of a server at `address`. Logs if there is
/// none.
fn reset_secret(identity: &Path, address: SocketAddr) -> Option<Secret32> {
    if address.port() == 0 {
        tracing::info!("no resets for players of the last run: the port is another each time");
        return None;
    }
    reset_file::secret_for(identity, address, &mut Ring::new())
        .inspect_err(|error| {
            let path = reset_file::sibling_path(identity, address);
            tracing::warn!(file = %path.display(), %error, "no resets for players of the last run");
        })
        .ok()
}

/// Accepts players on one UDP socket.
///
/// No work happens between calls: the polling thread does all of it.
pub struct Server {
    pub(crate) socket: Socket,
    pub(crate) stopper: Stopper,
    key: ServerKey,
    instance: InstanceId,
}

impl Server {
    /// Opens a server with a new key, which any client with the key may join; for local networks and
    /// development. The limits are those of [`Config::for_server`].
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the address is taken or a system call fails.
    pub fn bind(address: SocketAddr, app_id: AppId) -> Result<Self, OpenError> {
        let identity = Identity::generate(&mut Ring::new())?;
        Self::bind_with(address, app_id, Config::for_server(), |instance| {
            Listen::new(identity, instance).with_open_mode()
        })
    }

    /// Like [`bind_with`](Self::bind_with), with the identity from the file `identity`, which is
    /// created if it does not exist, so that clients can keep pinning the key after a restart.
    ///
    /// After a restart, players of the previous run are notified within a second by stateless
    /// resets. Their secret is in a file next to the identity, one for each address: see
    /// [`crypto::reset_file`]. This sets connection ids to 8 bytes, whatever `config` says. With port
    /// 0, or if that file cannot be used, there are no resets; this is logged.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and [`OpenError::Identity`].
    pub fn bind_kept(
        address: SocketAddr,
        app_id: AppId,
        mut config: Config,
        identity: &Path,
        listen: impl FnOnce(Identity, InstanceId) -> Listen,
    ) -> Result<Self, OpenError> {
        let mut provider = Ring::new();
        let own = identity_file::read_or_create(identity, &mut provider)?;
        let secret = reset_secret(identity, address);
        if secret.is_some() {
            config.cid_len = CidLen::Eight;
        }
        Self::bind_with(address, app_id, config, |instance| {
            let listen = listen(own, instance);
            match secret {
                Some(secret) => listen.with_resets(secret),
                None => listen,
            }
        })
    }

    /// Opens a server with the settings that `listen` returns. `listen` gets the random instance id
    /// that connect tokens must contain.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_with(
        address: SocketAddr,
        app_id: AppId,
        config: Config,
        listen: impl FnOnce(InstanceId) -> Listen,
    ) -> Result<Self, OpenError> {
        let instance = Ring::new().random_instance()?;
        let listen = listen(instance);
        let key = ServerKey(*listen.identity.public_key());
        let mut socket = Socket::open(address, app_id, config)?;
        socket.act(|now, endpoint| endpoint.listen(now, listen))?;
        Ok(Self {
            socket,
            stopper: Stopper::default(),
            key,
            instance,
        })
    }

    /// Returns the key that clients pin.
    pub const fn key(&self) -> ServerKey {
        self.key
    }

    /// Returns the address that the server listens on, with the port that the system chose if 0 was
    /// requested.
    pub const fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Returns the instance id that connect tokens for this run must contain.
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Accepts connect tokens sealed with `key`.
    pub fn add_token_key(&mut self, key: TokenKey) {
        self.socket.act(|_, endpoint| endpoint.add_token_key(key));
    }

    /// Receives and sends until the next tick begins, and returns the events since the last call.
    ///
    /// # Errors
    ///
    /// The system's error if waiting fails.
    pub fn wait_tick(&mut self, hz: NonZeroU8) -> io::Result<Vec<Event>> {
        self.socket.wait_tick(hz)
    }

    /// Receives and sends what is due without waiting, and returns the events since the last call.
    pub fn poll(&mut self) -> Vec<Event> {
        self.socket.poll()
    }

    /// Queues a message. It is sent with the next tick or poll.
    ///
    /// # Errors
    ///
    /// [`SendError`] if the session has ended or the message does not fit its channel.
    pub fn send(
        &mut self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.socket
            .act(|now, endpoint| endpoint.send(now, session, channel, message))
    }

    /// Queues a message to each open session, like [`send`](Self::send).
    ///
    /// Returns the sessions that refused it, each with the error.
    pub fn broadcast(&mut self, channel: ChannelId, message: &[u8]) -> Vec<(SessionId, SendError)> {
        let sessions: Vec<SessionId> = self.sessions().collect();
        let mut failed = Vec::new();
        for session in sessions {
            if let Err(error) = self.send(session, channel, message) {
                failed.push((session, error));
            }
        }
        failed
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome with the returned
    /// number.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and if 4,096 messages of the session are already tracked.
    pub fn send_tracked(
        &mut self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.socket
            .act(|now, endpoint| endpoint.send_tracked(now, session, message))
    }

    /// Ends a session after all reliable messages have arrived, but at most [`Config::linger`]
    /// later. No poll returns a message of this session any more.
    ///
    /// # Errors
    ///
    /// [`NoSession`] if its slot is already free. A session that is already closing is left as it
    /// is.
    pub fn disconnect(&mut self, session: SessionId) -> Result<(), NoSession> {
        self.socket.mute(session);
        self.socket
            .act(|now, endpoint| endpoint.close(now, session, CloseCode::Kicked, &[]))
    }

    /// Ends a session at once, drops its queued messages and sends the player `reason`, cut at 128
    /// bytes. Do not put addresses or secrets into it. No poll returns a message of this session
    /// any more.
    ///
    /// # Errors
    ///
    /// As [`disconnect`](Self::disconnect).
    pub fn kick(&mut self, session: SessionId, reason: &[u8]) -> Result<(), NoSession> {
        self.socket.mute(session);
        self.socket
            .act(|now, endpoint| endpoint.kick(now, session, reason))
    }

    /// Drops all packets from `prefix`, for `span` or until [`unblock`](Self::unblock). Sessions
    /// from there end by timeout.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] if 65,536 prefixes are blocked.
    pub fn block(&mut self, prefix: Prefix, span: Option<Duration>) -> Result<(), BlockError> {
        self.socket
            .act(|now, endpoint| endpoint.block(now, prefix, span))
    }

    /// Accepts packets from `prefix` again; returns whether it was blocked.
    pub fn unblock(&mut self, prefix: &Prefix) -> bool {
        self.socket.act(|_, endpoint| endpoint.unblock(prefix))
    }

    /// Returns the prefixes that are blocked, shortest first.
    pub fn blocked(&self) -> impl Iterator<Item = Prefix> {
        let list = self.socket.endpoint().blocked();
        list.iter().map(|(prefix, _)| prefix)
    }

    /// Replaces or removes the certificate that clients get; see [`Listen::with_certificate`].
    /// Returns whether it is for the key and instance of this server.
    pub fn set_certificate(&mut self, certificate: Option<Certificate>) -> bool {
        self.socket
            .act(|_, endpoint| endpoint.set_certificate(certificate))
    }

    /// Ends all sessions. Keep polling so that the close frames are sent.
    pub fn shutdown(&mut self) {
        self.socket.act(|now, endpoint| endpoint.shutdown(now));
    }

    /// Returns a session's counters and the state of its path.
    pub fn stats(&self, session: SessionId) -> Option<SessionStats> {
        self.socket.endpoint().session_stats(session)
    }

    /// Returns all counters, and a series of the last 60 seconds.
    ///
    /// The series advances only while the application polls.
    pub fn report(&mut self) -> Report {
        self.socket.report()
    }

    /// Returns the open sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.socket.endpoint().sessions()
    }

    /// Returns a handle that stops [`run`](Self::run).
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs `game` at `hz` ticks per second until the game or a [`Stopper`] stops it. Then closes
    /// all sessions, after delivery of reliable messages within [`Config::linger`].
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
                dispatch(game, self, event);
            }
        }
        for event in self.poll() {
            dispatch(game, self, event);
        }
        Ok(())
    }

    fn play(&mut self, hz: NonZeroU8, game: &mut impl Game) -> io::Result<()> {
        loop {
            let (events, since) = self.socket.wait_tick_since(hz)?;
            for event in events {
                dispatch(game, self, event);
            }
            if self.stopper.is_stopped() || game.tick(self, since).is_break() {
                return Ok(());
            }
        }
    }
}

wire::debug_fields!(
    Server,
    this {
        address: this.socket.address()
    }
);

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

fn dispatch(game: &mut impl Game, server: &mut Server, event: Event) {
    match event {
        Event::Connected { session, peer } => game.connect(server, session, &peer),
        // An earlier event of the batch made the game end this session.
        Event::Message { session, .. } if server.socket.is_muted(session) => {}
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
