//! One endpoint on one socket, driven by the thread that polls it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::num::NonZeroU8;
use core::ops::ControlFlow;
use core::time::Duration;
use std::io;

use crypto::{NoEntropy, Ring};
use servicer::{BindError, Clock, Driver, End, SocketConfig, UdpSocket};
use udp_proto::{AppId, Config, ConnectError, Endpoint, ListenError};
use wire::Instant;

use crate::Event;
use crate::host::Host;

/// What server and client have in common.
pub(crate) struct Socket {
    driver: Driver<Endpoint<Ring>, Host>,
    address: SocketAddr,
}

impl Socket {
    pub(crate) fn open(
        address: SocketAddr,
        app_id: AppId,
        config: Config,
    ) -> Result<Self, OpenError> {
        let socket = UdpSocket::bind(address, &SocketConfig::default())?;
        Self::over(vec![socket], app_id, config)
    }

    /// Opens one socket for each address family that `destinations` need and this host has; the
    /// destinations that none of them reaches are taken out.
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
        Self::over(sockets, app_id, config)
    }

    fn over(sockets: Vec<UdpSocket>, app_id: AppId, config: Config) -> Result<Self, OpenError> {
        // Without a destination there is no socket, and the target is refused.
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let address = sockets
            .first()
            .map_or(unspecified, UdpSocket::local_address);
        let now = Clock::new().now();
        let exits = config.trusted_exits.clone();
        let endpoint = Endpoint::new(config, app_id, Ring::new(), now)?;
        let (mut driver, _) = Driver::new(
            sockets,
            endpoint,
            Host::default(),
            servicer::Config::default(),
        )?;
        driver.set_trusted_exits(&exits);
        Ok(Self { driver, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn act<R>(&mut self, action: impl FnOnce(Instant, &mut Endpoint<Ring>) -> R) -> R {
        self.driver.act(|now, endpoint, _| action(now, endpoint))
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint<Ring> {
        self.driver.machine()
    }

    /// Does what is due, and does not wait.
    pub(crate) fn poll(&mut self) -> Vec<Event> {
        self.turn();
        self.take()
    }

    /// Works until the next tick begins.
    pub(crate) fn wait_tick(&mut self, hz: NonZeroU8) -> io::Result<Vec<Event>> {
        let span = Duration::from_secs(1) / u32::from(hz.get());
        self.driver.act(|now, _, host| host.expect_tick(now, span));
        loop {
            self.turn();
            if self.driver.application().has_ticked {
                return Ok(self.take());
            }
            self.driver.wait()?;
        }
    }

    fn turn(&mut self) {
        // An end comes by a request, and there is no queue for one.
        let _end: ControlFlow<End> = self.driver.turn();
    }

    fn take(&mut self) -> Vec<Event> {
        self.driver
            .act(|now, endpoint, host| host.take(now, endpoint))
    }
}

/// Why a server or client could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The address could not be bound.
    Bind(BindError),
    /// The system gave no randomness.
    NoEntropy,
    /// Connecting could not begin.
    Connect(ConnectError),
    /// The server could not begin to listen.
    Listen(ListenError),
    /// The system refused something else.
    System(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(error) => error.fmt(f),
            Self::NoEntropy => NoEntropy.fmt(f),
            Self::Connect(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<BindError> for OpenError {
    fn from(error: BindError) -> Self {
        Self::Bind(error)
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
