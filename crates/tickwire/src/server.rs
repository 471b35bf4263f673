//! A game server in a fixed-rate loop.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use core::time::Duration;
use std::io;
use std::path::Path;

use crypto::token::TokenKey;
use crypto::{Certificate, Identity, Provider, Ring, Secret32, identity_file, reset_file};
use udp_proto::{
    AppId, BlockError, ChannelId, CidLen, CloseCode, Config, Listen, Message, MessageId, NoSession,
    Prefix, SendError, SessionId, SessionStats,
};
use wire::InstanceId;

use crate::socket::{OpenError, Socket};
use crate::{Event, Report, ServerKey, Stopper};

/// Reads or makes the secret for resets of a server at `address`; says so where there is none.
fn reset_secret(identity: &Path, address: SocketAddr) -> Option<Secret32> {
    if address.port() == 0 {
        tracing::info!("no resets for players of the last run: the port is another each time");
        return None;
    }
    reset_file::secret_for(identity, address, &mut Ring::new())
        .inspect_err(|error| {
            let path = reset_file::path_beside(identity, address);
            tracing::warn!(file = %path.display(), %error, "no resets for players of the last run");
        })
        .ok()
}

/// Accepts players on one UDP socket.
///
/// Nothing runs between calls: the thread that polls it does all the work.
pub struct Server {
    pub(crate) socket: Socket,
    pub(crate) stopper: Stopper,
    key: ServerKey,
    instance: InstanceId,
}

impl Server {
    /// Opens a server that anyone may join who knows its key, which is drawn anew each time.
    ///
    /// It has the limits of [`Config::for_server`]. For play on a local network and for development;
    /// where a matchmaker lets players in, see
    /// [`bind_with`](Self::bind_with).
    ///
    /// # Errors
    ///
    /// [`OpenError`] where the address is taken or the system refuses.
    pub fn bind(address: SocketAddr, app_id: AppId) -> Result<Self, OpenError> {
        let identity = Identity::generate(&mut Ring::new())?;
        Self::bind_with(address, app_id, Config::for_server(), |instance| {
            Listen::new(identity, instance).with_open_mode()
        })
    }

    /// Opens a server with the identity in the file `identity`, which is made where there is none, so
    /// that clients may go on pinning its key after a restart; otherwise as
    /// [`bind_with`](Self::bind_with).
    ///
    /// Players of a run that has ended hear of it within a second (stateless resets), by a secret in a
    /// file beside the identity, one for each address: see [`crypto::reset_file`]. For that, connection ids
    /// have 8 bytes, whatever `config` says, which is 4 bytes more of each packet to the server. With port
    /// 0, or where that file cannot be used, there are no resets, and the log says so.
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

    /// Opens a server as `listen` says, which is told the random instance id that connect tokens
    /// must bear.
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
        let mut id = [0; 8];
        Ring::new().random(&mut id)?;
        let instance = InstanceId(u64::from_be_bytes(id));
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

    /// Returns the address it listens on, its port chosen by the system where 0 was asked for.
    pub const fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    /// Returns what connect tokens for this run must bear.
    pub const fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Lets players in whose tokens were sealed with `key`.
    pub fn add_token_key(&mut self, key: TokenKey) {
        self.socket.act(|_, endpoint| endpoint.add_token_key(key));
    }

    /// Receives and sends until the next tick begins, and returns what has happened.
    ///
    /// # Errors
    ///
    /// The system's, where it cannot wait.
    pub fn wait_tick(&mut self, hz: NonZeroU8) -> io::Result<Vec<Event>> {
        self.socket.wait_tick(hz)
    }

    /// Receives and sends what is due, does not wait, and returns what has happened.
    pub fn poll(&mut self) -> Vec<Event> {
        self.socket.poll()
    }

    /// Queues a message; it leaves with the next tick or poll.
    ///
    /// # Errors
    ///
    /// [`SendError`] where the session has ended or the message does not fit its channel.
    pub fn send(
        &mut self,
        session: SessionId,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.socket
            .act(|now, endpoint| endpoint.send(now, session, channel, message))
    }

    /// Queues a message to each open session, as [`send`](Self::send) does.
    ///
    /// Returns the sessions that did not take it, each with the reason.
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

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it, with the number
    /// returned.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and where 4,096 messages of the session are tracked already.
    pub fn send_tracked(
        &mut self,
        session: SessionId,
        message: &Message<'_>,
    ) -> Result<MessageId, SendError> {
        self.socket
            .act(|now, endpoint| endpoint.send_tracked(now, session, message))
    }

    /// Ends a session, once what was sent reliably has arrived, for which its player has
    /// [`Config::linger`]. No poll returns a message of it any more.
    ///
    /// # Errors
    ///
    /// [`NoSession`] where its slot is free again. While one that has ended says so to its player,
    /// nothing happens.
    pub fn disconnect(&mut self, session: SessionId) -> Result<(), NoSession> {
        self.socket.hush(session);
        self.socket
            .act(|now, endpoint| endpoint.close(now, session, CloseCode::Kicked, &[]))
    }

    /// Ends a session at once, whatever is queued for it, and tells the player `reason`, cut at 128
    /// bytes: no address and no secret belongs in it. No poll returns a message of it any more.
    ///
    /// # Errors
    ///
    /// As of [`disconnect`](Self::disconnect).
    pub fn kick(&mut self, session: SessionId, reason: &[u8]) -> Result<(), NoSession> {
        self.socket.hush(session);
        self.socket
            .act(|now, endpoint| endpoint.kick(now, session, reason))
    }

    /// Hears nothing from `prefix` any more, for `span` or until [`unblock`](Self::unblock); sessions
    /// from there end by their silence.
    ///
    /// # Errors
    ///
    /// [`BlockError::Full`] where 65,536 prefixes are blocked.
    pub fn block(&mut self, prefix: Prefix, span: Option<Duration>) -> Result<(), BlockError> {
        self.socket
            .act(|now, endpoint| endpoint.block(now, prefix, span))
    }

    /// Hears `prefix` again; returns whether it was blocked.
    pub fn unblock(&mut self, prefix: &Prefix) -> bool {
        self.socket.act(|_, endpoint| endpoint.unblock(prefix))
    }

    /// Returns the prefixes that are blocked, shortest first.
    pub fn blocked(&self) -> impl Iterator<Item = Prefix> {
        let list = self.socket.endpoint().blocked();
        list.iter().map(|(prefix, _)| prefix)
    }

    /// Shows clients another certificate, or none; see [`Listen::with_certificate`]. Returns whether it
    /// is for the key and instance of this server.
    pub fn set_certificate(&mut self, certificate: Option<Certificate>) -> bool {
        self.socket
            .act(|_, endpoint| endpoint.set_certificate(certificate))
    }

    /// Ends all sessions; poll on to let them hear of it.
    pub fn shutdown(&mut self) {
        self.socket.act(|now, endpoint| endpoint.shutdown(now));
    }

    /// Returns counters and the state of a session's path.
    pub fn stats(&self, session: SessionId) -> Option<SessionStats> {
        self.socket.endpoint().session_stats(session)
    }

    /// Returns all counters, and a series of the last 60 seconds.
    ///
    /// Series are kept while someone polls: an entry ends at the first poll a second after the one
    /// before.
    pub fn report(&mut self) -> Report {
        self.socket.report()
    }

    /// Returns the sessions that are open.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.socket.endpoint().sessions()
    }
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.socket.address())
            .finish_non_exhaustive()
    }
}
