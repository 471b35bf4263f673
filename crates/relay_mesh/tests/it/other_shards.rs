//! The other shards of a node, and the kernel's distribution of datagrams among its sockets.

use crypto::Provider;
use relay_mesh::hop::ShardId;
use relay_mesh::{Forwarder, Node, PeerAddr};
use wire::{Instant, Machine, Transmit};

/// Forwarders of a node. None by default.
pub(crate) struct OtherShards<P: Provider> {
    pub(crate) forwarders: Vec<Forwarder<P>>,
    pub(crate) steering: Steering,
    /// Datagrams that arrived at the wrong socket.
    pub(crate) strays: u64,
    /// The part of `strays` that belonged to another forwarder's shard.
    pub(crate) strays_of_forwarders: u64,
}

/// How the kernel distributes the datagrams of a port among its sockets.
#[derive(Clone, Copy, Default)]
pub(crate) enum Steering {
    /// By label, as configured.
    #[default]
    ByLabel,
    /// Each datagram goes to a wrong socket.
    Wrong,
}

impl<P: Provider> Default for OtherShards<P> {
    fn default() -> Self {
        Self {
            forwarders: Vec::new(),
            steering: Steering::default(),
            strays: 0,
            strays_of_forwarders: 0,
        }
    }
}

impl<P: Provider> OtherShards<P> {
    /// The forwarder whose socket gets the datagram; `None` if the node's own socket gets it.
    pub(crate) fn whose(&mut self, datagram: &[u8]) -> Option<&mut Forwarder<P>> {
        let count = u8::try_from(self.forwarders.len()).unwrap() + 1;
        let own = ShardId::of_datagram(datagram).place();
        let place = match self.steering {
            Steering::ByLabel => own,
            Steering::Wrong => (own + 1) % count,
        };
        self.forwarders.get_mut(usize::from(place).checked_sub(1)?)
    }

    /// Passes misdirected datagrams to the node. Returns whether there were any.
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
    ) -> Option<Transmit<PeerAddr>> {
        let mut forwarders = self.forwarders.iter_mut();
        forwarders.find_map(|forwarder| forwarder.poll_transmit(now, buf))
    }
}
