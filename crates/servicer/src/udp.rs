//! A servicer that runs a machine on UDP sockets, on its own thread.

mod shards;

use std::net::IpAddr;

use wire::Machine;

pub use shards::Shards;

#[cfg(feature = "conditioner")]
use crate::conditioner::{Conditioner, Direction};
use crate::counters::Counters;
use crate::driver::{Application, Conditioners, Config, Driver, PeerAddress};
use crate::handle::{self, SpawnError};
use crate::socket::UdpSocket;

/// A UDP servicer that has not started.
#[derive(Debug)]
pub struct UdpServicer {
    /// Name of the thread, in logs and in the report.
    name: String,
    config: Config,
    conditioners: Conditioners,
    trusted_exits: Vec<IpAddr>,
}

impl UdpServicer {
    /// Creates a servicer. `name` is the name of its thread; most systems show only about 15 bytes
    /// of it.
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

    /// Trusts PROXY protocol headers (version 2) from exits at these addresses.
    ///
    /// An exit may put a header before a datagram's own bytes. The driver strips it and gives the
    /// machine the address in it, with this datagram and all that follow from the exit's port
    /// ([`Config::exit_flows_max`]). A header that names another address than before is accepted
    /// only if the flow has no session and was silent for 5 s in both directions; otherwise the
    /// datagram is dropped. This requires that an exit omits the header only if it received a
    /// datagram of this host within those 5 s and the player's bytes do not begin like a header, as
    /// `relay_mesh` does. Datagrams of other senders reach the machine unchanged.
    ///
    /// Anyone who can forge an exit's address is trusted too. The network between exits and this
    /// host must prevent that.
    #[must_use]
    pub fn with_trusted_exits(mut self, exits: Vec<IpAddr>) -> Self {
        self.trusted_exits = exits;
        self
    }

    /// Applies the rules of `conditioner` to the datagrams of one direction.
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
    /// `machine` receives times of [`Clock`](crate::Clock), so construct it with that clock.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the system has no descriptor or thread left.
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

/// How a UDP servicer ended, with its final counters.
pub type Report = handle::Report<Counters>;
