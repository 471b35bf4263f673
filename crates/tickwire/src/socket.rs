//! An endpoint and its sockets, driven by the thread that polls it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use crypto::identity_file::IdentityFileError;
use crypto::{NoEntropy, Ring};
use servicer::{BindError, Clock, Driver, End, Requests, SocketConfig, Stack, UdpSocket};
use udp_proto::{AppId, ChannelTable, Config, ConnectError, Endpoint, ListenError, SessionId};
use wire::Instant;

use crate::Event;
use crate::host::{Delivered, Host};
use crate::shared::{EVENTS_MAX, EventSink, SharedChannel, Side, Signals, ThreadRequest};
use crate::stats::{Report, Sample};

pub(crate) struct Socket {
    driver: Driver<Endpoint<Ring>, Host>,
    requests: Requests<ThreadRequest>,
    channels: ChannelTable,
    address: SocketAddr,
    /// When the last call returned to the game; `None` before the first.
    left_at: Option<Instant>,
}

impl Socket {
    /// Opens a socket at `address`; `[::]` serves IPv4 too.
    pub(crate) fn open(
        address: SocketAddr,
        app_id: AppId,
        config: Config,
    ) -> Result<Self, OpenError> {
        let mut socket_config = SocketConfig::default();
        socket_config.stack = Stack::Dual;
        let socket = UdpSocket::bind(address, &socket_config)?;
        Self::over(vec![socket], app_id, config, Side::Server)
    }

    /// Opens one socket for each address family that `destinations` need and this host has. Removes
    /// the destinations that no socket reaches.
    pub(crate) fn towards(
        destinations: &mut Vec<SocketAddr>,
        app_id: AppId,
        config: Config,
    ) -> Result<Self, OpenError> {
        let (mut sockets, mut missing) = (Vec::new(), None);
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        for any in any {
            let is_of_family = |to: &SocketAddr| to.is_ipv4() == any.is_ipv4();
            if !destinations.iter().any(is_of_family) {
                continue;
            }
            match UdpSocket::bind(SocketAddr::new(any, 0), &SocketConfig::default()) {
                Ok(socket) => sockets.push(socket),
                Err(error) => {
                    missing = Some((error, any.is_ipv4()));
                }
            }
        }
        if let Some((error, is_ipv4)) = missing {
            destinations.retain(|to| to.is_ipv4() != is_ipv4);
            if sockets.is_empty() {
                return Err(error.into());
            }
        }
        Self::over(sockets, app_id, config, Side::Client)
    }

    fn over(
        sockets: Vec<UdpSocket>,
        app_id: AppId,
        config: Config,
        side: Side,
    ) -> Result<Self, OpenError> {
        // Without a destination there is no socket, and connecting fails later.
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let address = sockets
            .first()
            .map_or(unspecified, UdpSocket::local_address);
        let now = Clock::new().now();
        let channels = config.channels.clone();
        let exits = config.trusted_exits.clone();
        let linger = config.linger;
        let endpoint = Endpoint::new(config, app_id, Ring::new(), now)?;
        let (mut driver, requests) = Driver::new(
            sockets,
            endpoint,
            Host::new(now, side, linger),
            servicer::Config::default(),
        )?;
        driver.set_trusted_exits(&exits);
        Ok(Self {
            driver,
            requests,
            channels,
            address,
            left_at: None,
        })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn act<R>(&mut self, action: impl FnOnce(Instant, &mut Endpoint<Ring>) -> R) -> R {
        self.driver.act(|now, endpoint, _| action(now, endpoint))
    }

    /// Returns the handle for a game on another thread.
    pub(crate) fn share(&self) -> SharedChannel {
        let host = self.driver.application();
        // The game may have polled before.
        host.signals.muted.add(host.sessions());
        SharedChannel {
            requests: self.requests.clone(),
            channels: self.channels.clone(),
            signals: Arc::clone(&host.signals),
        }
    }

    /// Returns whether a session that was reported to the game has not ended.
    pub(crate) fn has_sessions(&self) -> bool {
        self.driver.application().recorder.has_sessions()
    }

    /// Drives the endpoint on this thread for a game on another, until the game requests the end or
    /// drops the event queue.
    pub(crate) fn serve(self, shared: &SharedChannel, sink: &impl EventSink) {
        // Dropped last, so that released callers find the queue closed.
        let _guard = shared.signals.end_guard();
        let mut socket = self;
        socket.driver.act(|_, _, host| host.events_max = EVENTS_MAX);
        loop {
            match socket.step(&shared.signals, sink) {
                Step::Again => {}
                Step::Wait if socket.driver.wait().is_ok() => {}
                Step::Wait | Step::End => break,
            }
        }
        socket.driver.application().keep_outcomes();
    }

    /// Runs one turn, delivers events to the game, and returns what to do next.
    fn step(&mut self, signals: &Signals, sink: &impl EventSink) -> Step {
        // Read first, so that the turn processes all requests made before the stop.
        let stop_at = signals.stop_at();
        self.turn();
        self.send_reports(signals);
        let delivered = self
            .driver
            .act(|now, endpoint, host| host.deliver(now, endpoint, sink));
        let stop_at = match delivered {
            Delivered::Gone => stop_at.or(Some(Instant::ZERO)),
            Delivered::HasRead | Delivered::Idle => stop_at,
        };
        if let Some(deadline) = stop_at {
            let has_begun = self
                .driver
                .act(|now, endpoint, host| host.begin_stop(now, endpoint, deadline));
            if has_begun {
                // Another turn sends what the shutdown queued.
                return Step::Again;
            }
            if !self.has_sessions() || Clock::new().now() >= deadline {
                return Step::End;
            }
        }
        match delivered {
            // Sends the credit for what was read before waiting.
            Delivered::HasRead => Step::Again,
            Delivered::Idle | Delivered::Gone => Step::Wait,
        }
    }

    fn send_reports(&mut self, signals: &Signals) {
        let callbacks = signals.reports.take();
        if callbacks.is_empty() {
            return;
        }
        let report = self.report();
        for callback in callbacks {
            callback.call(report.clone());
        }
    }

    pub(crate) fn mute(&mut self, session: SessionId) {
        self.driver.act(|_, _, host| host.mute(session));
    }

    /// Returns whether the game has ended a session whose end was not delivered yet.
    pub(crate) fn is_muted(&self, session: SessionId) -> bool {
        self.driver.application().is_muted(session)
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint<Ring> {
        self.driver.machine()
    }

    pub(crate) fn poll(&mut self) -> Vec<Event> {
        self.record_game_time();
        self.turn();
        self.take()
    }

    pub(crate) fn report(&mut self) -> Report {
        let driver = self.requests.counters();
        self.driver.act(|now, endpoint, host| {
            let endpoint = &*endpoint;
            let sample = Sample {
                now,
                endpoint: endpoint.stats(),
                driver,
            };
            host.recorder
                .report(&sample, |session| endpoint.session_stats(session))
        })
    }

    pub(crate) fn wait_tick(&mut self, hz: NonZeroU8) -> io::Result<Vec<Event>> {
        self.wait_tick_since(hz).map(|(events, _)| events)
    }

    /// Like [`wait_tick`](Self::wait_tick), and returns the time since the last tick.
    pub(crate) fn wait_tick_since(&mut self, hz: NonZeroU8) -> io::Result<(Vec<Event>, Duration)> {
        self.record_game_time();
        let span = Duration::from_secs(1) / u32::from(hz.get());
        let since = self
            .driver
            .act(|now, _, host| host.schedule_tick(now, span));
        loop {
            self.turn();
            if self.driver.application().has_ticked {
                return Ok((self.take(), since));
            }
            self.driver.wait()?;
        }
    }

    fn turn(&mut self) {
        // `End` results from a driver request, which this driver never gets.
        let _end: ControlFlow<End> = self.driver.turn();
        let requests = &self.requests;
        self.driver.act(|now, endpoint, host| {
            if host.recorder.is_due(now) {
                let endpoint = &*endpoint;
                let sample = Sample {
                    now,
                    endpoint: endpoint.stats(),
                    driver: requests.counters(),
                };
                host.recorder
                    .sample(&sample, |session| endpoint.session_stats(session));
            }
        });
    }

    fn take(&mut self) -> Vec<Event> {
        let (events, left_at) = self
            .driver
            .act(|now, endpoint, host| (host.take(now, endpoint), now));
        self.left_at = Some(left_at);
        events
    }

    fn record_game_time(&mut self) {
        let left_at = self.left_at.take();
        self.driver.act(|now, _, host| {
            host.recorder
                .on_game(left_at.map_or(Duration::ZERO, |at| now.saturating_since(at)));
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Run another turn at once.
    Again,
    /// Wait, then run another turn.
    Wait,
    /// Stop.
    End,
}

/// Why a server or client could not be opened.
///
/// `Debug` prints the same text as `Display`, because that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum OpenError {
    /// The address could not be bound.
    Bind(BindError),
    /// The system provided no randomness.
    NoEntropy,
    /// The identity file could not be used.
    Identity(IdentityFileError),
    /// The server's name could not be resolved.
    Resolve(io::Error),
    /// Connecting could not be started.
    Connect(ConnectError),
    /// The server could not listen.
    Listen(ListenError),
    /// Another system call failed.
    System(io::Error),
}

wire::error_text! { OpenError {
    Self::Bind(error) => "{error}",
    Self::NoEntropy => "{NoEntropy}",
    Self::Identity(error) => "{error}",
    Self::Resolve(error) =>
        "the server's address cannot be resolved: {error}; expected a host and a port, such as \
         play.example.net:7777, 192.0.2.1:7777 or [2001:db8::1]:7777",
    Self::Connect(error) => "{error}",
    Self::Listen(error) => "{error}",
    Self::System(error) => "{error}",
}}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<BindError> for OpenError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
    }
}

impl From<IdentityFileError> for OpenError {
    fn from(error: IdentityFileError) -> Self {
        Self::Identity(error)
    }
}

impl From<NoEntropy> for OpenError {
    fn from(NoEntropy: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

impl From<ConnectError> for OpenError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<ListenError> for OpenError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests;
