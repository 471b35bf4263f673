//! The emulated wide-area network, as one process sees it: delay and loss by the map's distances.
//!
//! Each process conditions the datagrams that it sends. A fault on a link is applied at one end for
//! both directions, to outbound and inbound datagrams.

use std::net::IpAddr;

use netsim::{Link, LinkConfig};
use servicer::{Conditioner, Direction, Ends, Remote, Rules, UdpServicer};

use super::plan::{LinkFault, Plan};

#[derive(Clone, Debug)]
pub(crate) struct LinkFaults {
    plan: Plan,
    /// Shared with the sockets, as is `inbound`: later faults apply to them.
    pub(crate) outbound: Rules,
    pub(crate) inbound: Rules,
}

impl LinkFaults {
    /// Makes the links from `host` to every other host of the map.
    pub(crate) fn of(plan: &Plan, host: IpAddr) -> Self {
        let faults = Self {
            plan: plan.clone(),
            outbound: Rules::new(),
            inbound: Rules::new(),
        };
        for remote in plan.hosts().filter(|remote| *remote != host) {
            if let Some(link) = plan.link(host, remote) {
                faults.set((host, remote), link);
            }
        }
        faults
    }

    pub(crate) fn over(&self, servicer: UdpServicer) -> UdpServicer {
        servicer
            .with_conditioner(Direction::Outbound, Conditioner::new(self.outbound.clone()))
            .with_conditioner(Direction::Inbound, Conditioner::new(self.inbound.clone()))
    }

    /// Degrades the link between two hosts in both directions; returns whether there is one.
    pub(crate) fn degrade(&self, (host, remote): (IpAddr, IpAddr), fault: LinkFault) -> bool {
        let Some(usual) = self.plan.link(host, remote) else {
            return false;
        };
        self.set((host, remote), fault.worsen(usual));
        let link = fault.worsen(LinkConfig::default());
        self.inbound
            .set(ends(host, remote), self.model(link, (remote, host)));
        true
    }

    fn set(&self, (host, remote): (IpAddr, IpAddr), link: LinkConfig) {
        self.outbound
            .set(ends(host, remote), self.model(link, (host, remote)));
    }

    /// Returns a link with its own stream of the seed.
    fn model(&self, link: LinkConfig, (from, to): (IpAddr, IpAddr)) -> Link {
        let low = |host: IpAddr| match host {
            IpAddr::V4(v4) => u64::from(v4.octets()[3]),
            IpAddr::V6(_) => 0,
        };
        let stream = LINKS | (low(from) << 8) | low(to);
        Link::new(link, self.plan.seed().generator(stream))
    }
}

const fn ends(host: IpAddr, remote: IpAddr) -> Ends {
    Ends {
        local: Some(host),
        remote: Remote::Host(remote),
    }
}

/// Stream numbers of the seed; the low bits hold both hosts.
const LINKS: u64 = 4 << 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use netsim::{Chance, Loss};

    use crate::plan::{Block, PlanOptions};

    fn plan() -> Plan {
        let options = PlanOptions {
            players: 2,
            ..PlanOptions::default()
        };
        Plan::new(options, "127.70.1".parse::<Block>().unwrap())
    }

    #[test]
    fn a_host_has_a_link_to_each_other_host() {
        let plan = plan();
        let faults = LinkFaults::of(&plan, plan.server().ip());
        assert_eq!(faults.outbound.len(), 2 + 5);
        assert!(faults.inbound.is_empty());
    }

    #[test]
    fn a_fault_hits_one_link_in_both_directions() {
        let plan = plan();
        let (relay, server) = (plan.relay(0).ip(), plan.server().ip());
        let faults = LinkFaults::of(&plan, relay);
        assert!(faults.degrade((relay, server), LinkFault::DEGRADED));
        assert_eq!(faults.inbound.len(), 1);
        assert_eq!(faults.outbound.len(), 2 + 4 + 1);
        assert!(!faults.degrade((relay, plan.hub().ip()), LinkFault::DEGRADED));
    }

    #[test]
    fn losses_combine_as_probabilities() {
        let usual = LinkConfig::default()
            .with_delay(Duration::from_millis(20))
            .with_loss(Loss::Bernoulli(Chance::percent(10)));
        let worse = LinkFault::DEGRADED.worsen(usual);
        assert_eq!(worse.delay, Duration::from_millis(120));
        assert_eq!(worse.loss, Loss::Bernoulli(Chance::percent(19)));
    }
}
