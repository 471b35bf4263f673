//! The servicer: a thread of its own for a machine on UDP sockets.

pub(crate) mod batch;
mod bind;
#[cfg(has_linux_calls)]
mod drops;
#[cfg(has_linux_calls)]
mod many;
pub(crate) mod sent;
mod shards;
pub(crate) mod socket;

use std::net::IpAddr;

use wire::Machine;

pub use batch::Batching;
pub use bind::{BindCause, BindError, Granted, SocketConfig, SocketReport, Stack};
pub use shards::Shards;
pub use socket::UdpSocket;

#[cfg(feature = "conditioner")]
use crate::conditioner::{Conditioner, Direction};
use crate::driver::{Application, Conditioners, Config, Counters, Driver, PeerAddress};
use crate::handle::{self, SpawnError};

/// A UDP servicer that is not started yet.
#[derive(Debug)]
pub struct UdpServicer {
    /// Name of the thread, in logs and in the report.
    name: String,
    config: Config,
    conditioners: Conditioners,
    trusted_exits: Vec<IpAddr>,
}

impl UdpServicer {
    /// Prepares a servicer; `name` is that of its thread, of which systems show 15 bytes or so.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            config: Config::default(),
            conditioners: Conditioners::default(),
            trusted_exits: Vec::new(),
        }
    }

    /// Replaces the default limits.
    #[must_use]
    pub const fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Believes what exits at these addresses say of whom they speak for: a header of the PROXY
    /// protocol, version 2, before a datagram's own bytes. It is taken off, and the machine is told the
    /// address in it with this datagram and all that follow from the exit's port
    /// ([`Config::exit_flows_max`]). A header that says otherwise is believed where the flow has no session
    /// and was silent for 5 s, in either direction, else its datagram is dropped: a player must not say so
    /// himself where his session has just ended. For that to hold, an exit leaves its header away only
    /// where it has heard this host within a time shorter than those 5 s and the player's bytes do not begin
    /// like a header; `relay_mesh` does so. From anybody else the bytes go to the machine as they came.
    ///
    /// Whoever can send in an exit's name is believed too: exits must reach this host over a network in
    /// which their addresses cannot be forged.
    #[must_use]
    pub fn with_trusted_exits(mut self, exits: Vec<IpAddr>) -> Self {
        self.trusted_exits = exits;
        self
    }

    /// Delays, loses and copies what `conditioner`'s rules name, in one direction.
    #[cfg(feature = "conditioner")]
    #[must_use]
    pub fn with_conditioner(mut self, direction: Direction, conditioner: Conditioner) -> Self {
        match direction {
            Direction::Inbound => self.conditioners.inbound = Some(conditioner),
            Direction::Outbound => self.conditioners.outbound = Some(conditioner),
        }
        self
    }

    /// Starts the thread.
    ///
    /// `machine` takes times of [`Clock`](crate::Clock), so that is the clock to construct it with.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] where the system has no descriptor or thread left.
    pub fn spawn<M, A>(
        self,
        sockets: Vec<UdpSocket>,
        machine: M,
        application: A,
    ) -> Result<Handle<A::Request>, SpawnError>
    where
        M: Machine<Peer: PeerAddress> + Send + 'static,
        A: Application<M, Request: Send> + Send + 'static,
    {
        for socket in &sockets {
            tracing::info!(servicer = self.name, socket = %socket.report(), "bound");
        }
        let (mut driver, requests) = Driver::assemble(
            sockets,
            self.conditioners,
            machine,
            application,
            self.config,
        )?;
        driver.set_trusted_exits(&self.trusted_exits);
        Handle::start(self.name, requests, move || driver.run())
    }
}

/// A running UDP servicer.
pub type Handle<R> = handle::Handle<R, Counters>;

/// How a UDP servicer ended, and what it had done.
pub type Report = handle::Report<Counters>;
