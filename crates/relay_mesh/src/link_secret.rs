//! Where the keys of a link come from, and what makes its nonces.

use crypto::{Exporter, Label, Provider, Suite, TrafficSecret};

use crate::hop::HopHeader;
use crate::shard::ShardId;

/// What the keys of one direction of a link come from: Expand(exporter, "tw1 link", direction).
///
/// Each shard that seals has a key for each shard that opens, Expand(that, "tw1 shard", from 1 | to 1): so
/// nonces are a matter of one sealer, and windows and key epochs of one opener, whatever runs beside them.
#[derive(Debug)]
pub struct LinkSecret(Exporter);

/// The shard of a link's one end that seals, and that of the other which opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPair {
    /// Of the node that sends.
    pub from: ShardId,
    /// Of the node that receives.
    pub to: ShardId,
}

impl LinkSecret {
    /// Takes that of the direction `direction`, 0 for what the session's dialler sends and 1 for its
    /// accepter, of the link whose session has `exporter`.
    #[must_use]
    pub fn new<P: Provider>(provider: &P, exporter: &Exporter, direction: u8) -> Self {
        Self(exporter.branch(provider, LINK, &[direction]))
    }

    pub(crate) fn of<P: Provider>(&self, provider: &P, pair: ShardPair) -> (Suite, TrafficSecret) {
        let context = [pair.from.place(), pair.to.place()];
        let secret = self.0.expand(provider, SHARD, &context);
        (Suite::Aes128Gcm, TrafficSecret::new(secret))
    }
}

/// Label, generation and number: what makes a nonce of a link's iv.
pub(crate) const fn mask(header: &HopHeader) -> [u8; 12] {
    let [l0, l1, l2, l3] = header.label.slot.to_be_bytes();
    let [_, n1, n2, n3, n4, n5, n6, n7] = header.number.to_be_bytes();
    let generation = header.label.generation;
    [l0, l1, l2, l3, generation, n1, n2, n3, n4, n5, n6, n7]
}

/// Key epochs that the header tells apart.
pub(crate) const EPOCHS: u8 = 4;
const LINK: Label = Label::new("tw1 link");
const SHARD: Label = Label::new("tw1 shard");
