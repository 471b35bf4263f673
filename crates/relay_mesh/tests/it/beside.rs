//! The other shards of a node, and the system that divides what comes to its port.

use crypto::Provider;
use relay_mesh::shard::ShardId;
use relay_mesh::{Forwarder, Leg, Node};
use wire::{Instant, Machine, Transmit};

/// Forwarders beside a node; by default there are none.
pub(crate) struct Beside<P: Provider> {
    pub(crate) forwarders: Vec<Forwarder<P>>,
    pub(crate) division: Division,
    /// Datagrams that came to the socket of another.
    pub(crate) strays: u64,
    /// Of them, those that another forwarder's shard was meant to have.
    pub(crate) strays_of_forwarders: u64,
}

/// How the system divides what comes to a port among its sockets.
#[derive(Clone, Copy, Default)]
pub(crate) enum Division {
    /// As it is told to.
    #[default]
    ByLabel,
    /// Each to a socket that is not its own.
    Wrongly,
}

impl<P: Provider> Default for Beside<P> {
    fn default() -> Self {
        Self {
            forwarders: Vec::new(),
            division: Division::default(),
            strays: 0,
            strays_of_forwarders: 0,
        }
    }
}

impl<P: Provider> Beside<P> {
    /// The forwarder whose socket gets a datagram; `None` where it is the node's.
    pub(crate) fn whose(&mut self, datagram: &[u8]) -> Option<&mut Forwarder<P>> {
        let count = u8::try_from(self.forwarders.len()).unwrap() + 1;
        let own = ShardId::of_datagram(datagram).place();
        let place = match self.division {
            Division::ByLabel => own,
            Division::Wrongly => (own + 1) % count,
        };
        self.forwarders.get_mut(usize::from(place).checked_sub(1)?)
    }

    /// Gives the node what others got; whether there was anything.
    pub(crate) fn hand_back(&mut self, now: Instant, node: &mut Node<P>) -> bool {
        let mut has_strays = false;
        for forwarder in &mut self.forwarders {
            while let Some(mut stray) = forwarder.poll_event() {
                has_strays = true;
                self.strays += 1;
                let is_own = ShardId::of_datagram(&stray.datagram) == ShardId::FIRST;
                self.strays_of_forwarders += u64::from(!is_own);
                node.handle_datagram(now, stray.arrival, &mut stray.datagram);
            }
        }
        has_strays
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit<Leg>> {
        let mut forwarders = self.forwarders.iter_mut();
        forwarders.find_map(|forwarder| forwarder.poll_transmit(now, buf))
    }
}
