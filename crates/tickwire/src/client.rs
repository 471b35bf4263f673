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
/// No work happens between calls: the polling thread does all of it.
pub struct Client {
    pub(crate) socket: Socket,
    session: SessionId,
}

impl Client {
    /// Starts to connect to a server in open mode, which must hold `key`. [`Event::Connected`] or
    /// [`Event::Unreachable`] follows.
    ///
    /// `server` is an address, or a host name with a port, such as `"play.example.net:7777"`. Each
    /// call resolves a name again and blocks until the system's resolver answers. The first 8
    /// addresses are tried in turn, each for 2.5 s.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the name does not resolve or a system call fails.
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

    /// Starts to connect to `target`, for example with a token from a matchmaker.
    ///
    /// Its addresses are tried in turn, each for 2.5 s, and may be of both families: the client
    /// opens a socket for each. It skips addresses of a family that this host lacks, and addresses
    /// which cannot answer: port 0, `0.0.0.0`, `[::]`, broadcast and multicast.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if a system call fails or the target is invalid.
    pub fn connect_to(
        mut target: Target,
        app_id: AppId,
        mut config: Config,
    ) -> Result<Self, OpenError> {
        // A client has one session: the address identifies its packets, which are 4 bytes shorter.
        config.cid_len = CidLen::Zero;
        target.settle_addresses()?;
        let mut socket = Socket::towards(&mut target.addresses, app_id, config)?;
        let session = socket.act(|now, endpoint| endpoint.connect(now, target))?;
        Ok(Self { socket, session })
    }

    /// Returns the session, which is open once [`Event::Connected`] was returned.
    pub const fn session(&self) -> SessionId {
        self.session
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
    /// [`SendError`] if the session is not open or the message does not fit its channel.
    pub fn send(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.send(now, session, channel, message))
    }

    /// Like [`send`](Self::send), but [`Event::Settled`] reports the outcome with the returned
    /// number.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and if 4,096 messages of the session are already tracked.
    pub fn send_tracked(&mut self, message: &Message<'_>) -> Result<MessageId, SendError> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.send_tracked(now, session, message))
    }

    /// Ends the session after all reliable messages have arrived. Poll until
    /// [`Event::Disconnected`].
    ///
    /// # Errors
    ///
    /// [`NoSession`] if it has already ended.
    pub fn disconnect(&mut self) -> Result<(), NoSession> {
        let session = self.session;
        self.socket
            .act(|now, endpoint| endpoint.close(now, session, CloseCode::NoError, &[]))
    }

    /// Returns the session's counters and the state of its path.
    pub fn stats(&self) -> Option<SessionStats> {
        self.socket.endpoint().session_stats(self.session)
    }

    /// Returns all counters, and a series of the last 60 seconds.
    ///
    /// The series advances only while the application polls.
    pub fn report(&mut self) -> Report {
        self.socket.report()
    }
}

wire::debug_fields!(
    Client,
    this {
        session: this.session
    }
);
