//! A game client in a frame loop.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use std::io;
use std::net::ToSocketAddrs;

use udp_proto::{
    AppId, ChannelId, CidLen, CloseCode, Config, Credentials, Message, MessageId, NoSession,
    SendError, ServerIdentity, SessionId, SessionStats, Target,
};

use crate::socket::{OpenError, Socket};
use crate::{Event, Report, ServerKey};

/// One session with one server.
///
/// Nothing runs between calls: the thread that polls it does all the work.
pub struct Client {
    pub(crate) socket: Socket,
    session: SessionId,
}

impl Client {
    /// Begins to connect to a server in open mode, which must hold `key`. [`Event::Connected`] or
    /// [`Event::Unreachable`] follows.
    ///
    /// `server` is an address or a host name with a port, such as `"play.example.net:7777"`. A name is resolved here
    /// and anew by each call, which blocks as long as the system's resolver does; the first 8 addresses are tried in
    /// turn, each for 2.5 s.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the name does not resolve or the system refuses.
    pub fn connect(
        server: impl ToSocketAddrs,
        app_id: AppId,
        key: ServerKey,
    ) -> Result<Self, OpenError> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in server.to_socket_addrs().map_err(OpenError::Resolve)? {
            if addresses.len() < Target::ADDRESSES_MAX && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let target = Target {
            addresses,
            server: ServerIdentity::Keys(vec![key.0]),
            credentials: Credentials::Open,
        };
        Self::connect_to(target, app_id, Config::default())
    }

    /// Begins to connect as `target` says, such as with a token that a matchmaker gave.
    ///
    /// Its addresses are tried in turn, each for 2.5 s, and may be of both families: the client has
    /// a socket for each, and passes over those of a family that this host does not speak, and those
    /// that nothing can answer from: port 0, `0.0.0.0` and `[::]`, broadcast and multicast addresses.
    ///
    /// # Errors
    ///
    /// [`OpenError`] where the system or the target refuses.
    pub fn connect_to(
        mut target: Target,
        app_id: AppId,
        mut config: Config,
    ) -> Result<Self, OpenError> {
        // One session: the address tells packets apart, and they are 4 bytes shorter.
        config.cid_len = CidLen::Zero;
        target.settle_addresses()?;
        let mut socket = Socket::towards(&mut target.addresses, app_id, config)?;
        let session = socket.act(|now, endpoint| endpoint.connect(now, target))?;
        Ok(Self { socket, session })
    }

    /// Returns the session, which is open from [`Event::Connected`] on.
    pub const fn session(&self) -> SessionId {
        self.session
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
    /// [`SendError`] where the session is not open or the message does not fit its channel.
    pub fn send(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.send(now, session, channel, message))
    }

    /// As [`send`](Self::send), and [`Event::Settled`] tells what became of it, with the number
    /// returned.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and where 4,096 messages of the session are tracked already.
    pub fn send_tracked(&mut self, message: &Message<'_>) -> Result<MessageId, SendError> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.send_tracked(now, session, message))
    }

    /// Ends the session, once what was sent reliably has arrived; poll on until
    /// [`Event::Disconnected`].
    ///
    /// # Errors
    ///
    /// [`NoSession`] where it has ended already.
    pub fn disconnect(&mut self) -> Result<(), NoSession> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.close(now, session, CloseCode::NoError, &[]))
    }

    /// Returns counters and the state of the path.
    pub fn stats(&self) -> Option<SessionStats> {
        self.socket.endpoint().session_stats(self.session)
    }

    /// Returns all counters, and a series of the last 60 seconds.
    ///
    /// Series are kept while someone polls: an entry ends at the first poll a second after the one
    /// before.
    pub fn report(&mut self) -> Report {
        self.socket.report()
    }
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
