//! An emulated network in front of a node's sockets: delay and loss by remote address.
//!
//! Requires the feature `emulation`. Without it [`Emulation`] does nothing, and a configuration
//! file with `links` is rejected.

use std::net::IpAddr;
#[cfg(feature = "emulation")]
use std::time::Duration;

#[cfg(feature = "emulation")]
use netsim::{Chance, Link, LinkConfig, Loss};
use serde::{Deserialize, Serialize};
use servicer::UdpServicer;
#[cfg(feature = "emulation")]
use servicer::{Conditioner, Direction, Rules};
#[cfg(feature = "emulation")]
use wire::Seed;

/// An emulated link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileLink {
    /// The remote host.
    pub remote: IpAddr,
    /// One-way delay, milliseconds.
    pub delay_ms: u64,
    /// Loss, per million.
    #[serde(default)]
    pub loss_per_million: u32,
}

/// Rules for the datagrams that a node sends and receives. A clone shares the rules.
#[derive(Clone, Debug, Default)]
pub struct Emulation {
    /// Rules for outbound datagrams; none for the real network.
    #[cfg(feature = "emulation")]
    pub outbound: Rules,
    /// Rules for inbound datagrams.
    #[cfg(feature = "emulation")]
    pub inbound: Rules,
}

#[cfg(feature = "emulation")]
impl Emulation {
    pub(super) fn apply(&self, servicer: UdpServicer) -> UdpServicer {
        servicer
            .with_conditioner(Direction::Outbound, Conditioner::new(self.outbound.clone()))
            .with_conditioner(Direction::Inbound, Conditioner::new(self.inbound.clone()))
    }

    /// Adds or replaces an outbound link. Its losses are drawn from `stream` of `seed`.
    pub(super) fn set_link(&self, link: &FileLink, seed: u64, stream: u64) {
        let config = LinkConfig::default()
            .with_delay(Duration::from_millis(link.delay_ms))
            .with_loss(Loss::Bernoulli(Chance::per_million(
                link.loss_per_million.min(1_000_000),
            )));
        let generator = Seed::from_number(seed).generator(stream);
        self.outbound.set(link.remote, Link::new(config, generator));
    }
}

#[cfg(not(feature = "emulation"))]
#[expect(
    clippy::missing_const_for_fn,
    clippy::unused_self,
    reason = "the same calls as with the feature"
)]
impl Emulation {
    pub(super) fn apply(&self, servicer: UdpServicer) -> UdpServicer {
        servicer
    }

    pub(super) fn set_link(&self, _link: &FileLink, _seed: u64, _stream: u64) {}
}
