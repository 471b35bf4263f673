//! Key derivation of a link, and the input of its nonces.

use crypto::{Exporter, Label, Provider, Suite, TrafficSecret};

use crate::hop::HopHeader;
use crate::shard::ShardId;

/// Secret of one direction of a link: Expand(exporter, "tw1 link", direction).
///
/// Each sealing shard has a key per opening shard, Expand(secret, "tw1 shard", from 1 | to 1). So
/// each sealer alone determines its nonces, and each opener has its own replay windows and key
/// epochs.
#[derive(Debug)]
pub struct LinkSecret(Exporter);

/// The sealing shard of one end and the opening shard of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPair {
    /// Shard of the sending node.
    pub from: ShardId,
    /// Shard of the receiving node.
    pub to: ShardId,
}

impl LinkSecret {
    /// Derives the secret of `direction`, 0 for frames of the session's dialer and 1 for those of
    /// its accepter, from the session's `exporter`.
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

/// Label, generation and number, which are combined with the IV into a nonce.
pub(crate) const fn mask(header: &HopHeader) -> [u8; 12] {
    let [l0, l1, l2, l3] = header.label.slot.to_be_bytes();
    let [_, n1, n2, n3, n4, n5, n6, n7] = header.number.to_be_bytes();
    let generation = header.label.generation;
    [l0, l1, l2, l3, generation, n1, n2, n3, n4, n5, n6, n7]
}

/// Key epochs that the header distinguishes.
pub(crate) const EPOCHS: u8 = 4;
const LINK: Label = Label::new("tw1 link");
const SHARD: Label = Label::new("tw1 shard");
