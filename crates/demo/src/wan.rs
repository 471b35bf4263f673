//! The virtual wide-area network, as one process sees it: what leaves a host of the map travels as
//! long, and is lost as often, as the map says.
//!
//! Each process conditions what it sends. An accident on a link is made at one of its ends for
//! both directions: what is sent is worse from then on, and so is what arrives.

use std::net::IpAddr;
use std::time::Duration;

use netsim::{Chance, Link, LinkConfig, Loss};
use serde::{Deserialize, Serialize};
use servicer::{Conditioner, Direction, Ends, Remote, Rules, UdpServicer};

use super::plan::Plan;

/// The rules of one process.
#[derive(Clone, Debug)]
pub struct Weather {
    plan: Plan,
    outbound: Rules,
    inbound: Rules,
}

impl Weather {
    /// Makes the links from `host` to everyone else on the map.
    #[must_use]
    pub fn of(plan: &Plan, host: IpAddr) -> Self {
        let weather = Self {
            plan: plan.clone(),
            outbound: Rules::new(),
            inbound: Rules::new(),
        };
        for remote in plan.hosts().filter(|remote| *remote != host) {
            if let Some(link) = plan.link(host, remote) {
                weather.set((host, remote), link);
            }
        }
        weather
    }

    /// Puts a servicer behind these links.
    #[must_use]
    pub fn over(&self, servicer: UdpServicer) -> UdpServicer {
        servicer
            .with_conditioner(Direction::Outbound, Conditioner::new(self.outbound()))
            .with_conditioner(Direction::Inbound, Conditioner::new(self.inbound()))
    }

    /// Returns what happens to that which leaves; it follows later accidents.
    #[must_use]
    pub fn outbound(&self) -> Rules {
        self.outbound.clone()
    }

    /// Returns what happens to that which arrives; it follows later accidents.
    #[must_use]
    pub fn inbound(&self) -> Rules {
        self.inbound.clone()
    }

    /// Makes the link between `host` and `remote` worse, in both directions.
    ///
    /// Says whether there is such a link.
    pub fn degrade(&self, (host, remote): (IpAddr, IpAddr), accident: Accident) -> bool {
        let Some(usual) = self.plan.link(host, remote) else {
            return false;
        };
        self.set((host, remote), accident.worsen(usual));
        let link = accident.worsen(LinkConfig::default());
        self.inbound
            .set(ends(host, remote), self.model(link, (remote, host)));
        true
    }

    fn set(&self, (host, remote): (IpAddr, IpAddr), link: LinkConfig) {
        self.outbound
            .set(ends(host, remote), self.model(link, (host, remote)));
    }

    /// A link with a stream of the seed to itself.
    fn model(&self, link: LinkConfig, (from, to): (IpAddr, IpAddr)) -> Link {
        let low = |host: IpAddr| match host {
            IpAddr::V4(v4) => u64::from(v4.octets()[3]),
            IpAddr::V6(_) => 0,
        };
        let stream = LINKS | (low(from) << 8) | low(to);
        Link::new(link, self.plan.seed().generator(stream))
    }
}

/// What becomes worse on a link, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accident {
    /// More time, milliseconds.
    pub delay_ms: u64,
    /// More loss, in a million.
    pub loss_per_million: u32,
}

impl Accident {
    /// What the run does at its first third.
    pub const DEGRADED: Self = Self {
        delay_ms: 100,
        loss_per_million: 100_000,
    };

    fn worsen(self, usual: LinkConfig) -> LinkConfig {
        // The map knows no other kind.
        let usual_loss = if let Loss::Bernoulli(chance) = usual.loss {
            chance.as_per_million()
        } else {
            0
        };
        // What one lets through the other may lose.
        let passed = |lost: u32| u64::from(1_000_000_u32.saturating_sub(lost));
        let survives = passed(usual_loss).saturating_mul(passed(self.loss_per_million)) / 1_000_000;
        let delay = Duration::from_millis(self.delay_ms);
        let lost = u32::try_from(1_000_000_u64.saturating_sub(survives)).unwrap_or(1_000_000);
        usual
            .with_delay(usual.delay.saturating_add(delay))
            .with_loss(Loss::Bernoulli(Chance::per_million(lost)))
    }
}

const fn ends(host: IpAddr, remote: IpAddr) -> Ends {
    Ends {
        local: Some(host),
        remote: Remote::Host(remote),
    }
}

/// Streams of the seed; both hosts are in the low bits.
const LINKS: u64 = 4 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Block, PlanOptions};

    fn plan() -> Plan {
        let options = PlanOptions {
            players: 2,
            ..PlanOptions::default()
        };
        Plan::new(options, "127.70.1".parse::<Block>().unwrap())
    }

    #[test]
    fn a_host_has_a_link_to_everyone_else() {
        let plan = plan();
        let weather = Weather::of(&plan, plan.server().ip());
        assert_eq!(weather.outbound.len(), 2 + 5);
        assert!(weather.inbound.is_empty());
    }

    #[test]
    fn an_accident_is_on_one_link_and_in_both_directions() {
        let plan = plan();
        let (relay, server) = (plan.relay(0).ip(), plan.server().ip());
        let weather = Weather::of(&plan, relay);
        assert!(weather.degrade((relay, server), Accident::DEGRADED));
        assert_eq!(weather.inbound.len(), 1);
        assert_eq!(weather.outbound.len(), 2 + 4 + 1);
        assert!(!weather.degrade((relay, plan.hub().ip()), Accident::DEGRADED));
    }

    #[test]
    fn losses_add_as_chances_do() {
        let usual = LinkConfig::default()
            .with_delay(Duration::from_millis(20))
            .with_loss(Loss::Bernoulli(Chance::percent(10)));
        let worse = Accident::DEGRADED.worsen(usual);
        assert_eq!(worse.delay, Duration::from_millis(120));
        assert_eq!(worse.loss, Loss::Bernoulli(Chance::percent(19)));
    }
}
