//! Stateless reset: the answer of a server or node that has lost a session.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | `0 1`, and six random bits |
//! | 1 | 21 | random |
//! | 22 | 16 | the token from the session's ACCEPT, or from a node's CONFIRM |
//!
//! It looks like a packet. Only servers with connection ids of 8 bytes send resets: shorter ids are
//! reused, so a client could collect the tokens of other sessions.

use crypto::key_schedule::expand;
use crypto::{Label, Provider, Secret32};
use wire::codec::concat;
use wire::{Generator, Instant, NetworkKey, NodeId};

use crate::budget::Rationed;
use crate::packet::Cid;

/// Length of the datagram, bytes.
pub const LEN: usize = 38;
/// Length in bytes of the shortest packet answered by a reset: nearly three times as long, so that
/// two servers do not answer each other, and a spoofed source gets at most 0.35 of the bytes.
pub const TRIGGER_LEN_MIN: usize = 110;
/// Resets per second and burst, an eighth of it for one /24 or /48; TWP/1, section 12.
const RATE: u32 = 1_000;

/// The token of one session's reset. Its holder can end the session.
#[derive(Clone)]
pub struct ResetToken([u8; Self::LEN]);

impl ResetToken {
    /// Length, bytes.
    pub const LEN: usize = 16;

    /// Decodes the field of the parameters; `None`, if all zero, means no token.
    #[must_use]
    pub fn decode(field: [u8; Self::LEN]) -> Option<Self> {
        (field != [0; Self::LEN]).then_some(Self(field))
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Returns whether `datagram` is a reset with this token, in constant time.
    #[must_use]
    pub fn ends(&self, datagram: &[u8]) -> bool {
        datagram.len() >= LEN
            && datagram
                .last_chunk::<{ Self::LEN }>()
                .is_some_and(|tail| crypto::equal(tail, &self.0))
    }
}

impl PartialEq for ResetToken {
    fn eq(&self, other: &Self) -> bool {
        crypto::equal(&self.0, &other.0)
    }
}

impl Eq for ResetToken {}

wire::opaque_debug!(ResetToken);

impl Drop for ResetToken {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

#[derive(Debug)]
pub(crate) struct Resets {
    secret: Secret32,
    /// The server's id, constant across restarts.
    node: NodeId,
    budget: Rationed,
}

impl Resets {
    pub(crate) fn new(
        now: Instant,
        (secret, node): (Secret32, NodeId),
        generator: &mut Generator,
    ) -> Self {
        Self {
            secret,
            node,
            budget: Rationed::new(RATE, RATE, now, generator),
        }
    }

    /// Returns the token of an 8-byte connection id; `None` for shorter ones.
    pub(crate) fn token<P: Provider>(&self, provider: &P, cid: Cid) -> Option<ResetToken> {
        if cid.len() != Cid::LEN_MAX {
            return None;
        }
        let context: [u8; 32 + Cid::LEN_MAX] = concat(&[&self.node.0, cid.as_slice()]);
        let bytes = expand(provider, &self.secret, RESET, &context);
        let token = bytes.expose().first_chunk().copied()?;
        Some(ResetToken(token))
    }

    /// Charges a reset to `source` if a packet of `len` bytes may be answered. Returns whether it
    /// may.
    pub(crate) fn take(&mut self, now: Instant, source: NetworkKey, len: usize) -> bool {
        len >= TRIGGER_LEN_MIN && self.budget.take(now, source).is_ok()
    }
}

pub(crate) fn encode(token: &ResetToken, generator: &mut Generator, buf: &mut Vec<u8>) {
    let mut clear = [0; LEN - ResetToken::LEN];
    generator.fill(&mut clear);
    let [first, ..] = &mut clear;
    *first = 0x40 | (*first & 0x3F);
    buf.extend_from_slice(&clear);
    buf.extend_from_slice(token.expose());
}

const RESET: Label = Label::new("tw1 reset");

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use crypto::Ring;
    use wire::Seed;

    use super::*;
    use crate::packet::Kind;

    fn token(secret: u8, node: u8, cid: &[u8]) -> Option<ResetToken> {
        let names = (Secret32::new([secret; 32]), NodeId([node; 32]));
        let mut generator = Seed::from_number(1).generator(0);
        let resets = Resets::new(Instant::ZERO, names, &mut generator);
        resets.token(&Ring::new(), Cid::from_slice(cid).unwrap())
    }

    #[test]
    fn a_token_is_of_one_secret_server_and_connection_id_of_8_bytes() {
        let one = token(1, 2, &[3; 8]).unwrap();
        assert_eq!(Some(&one), token(1, 2, &[3; 8]).as_ref());
        for other in [(2, 2, 3), (1, 3, 3), (1, 2, 4)] {
            let (secret, node, cid) = other;
            assert_ne!(Some(&one), token(secret, node, &[cid; 8]).as_ref());
        }
        assert_eq!(token(1, 2, &[3; 4]), None);
    }

    #[test]
    fn twp_k12_a_token_prints_no_byte_of_it() {
        let text = format!("{:?}", token(1, 2, &[3; 8]));
        assert_eq!(text, "Some(ResetToken(..))");
    }

    #[test]
    fn a_reset_looks_like_a_packet_and_is_recognised_by_its_last_bytes() {
        let token = token(1, 2, &[3; 8]).unwrap();
        let mut generator = Seed::from_number(1).generator(0);
        let mut first_bytes = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let mut datagram = Vec::new();
            encode(&token, &mut generator, &mut datagram);
            assert_eq!(datagram.len(), LEN);
            assert_eq!(Kind::of(datagram[0]), Kind::Protected);
            assert!(token.ends(&datagram) && !token.ends(&datagram[1..]));
            first_bytes.insert(datagram[0]);
            datagram[LEN - 1] ^= 1;
            assert!(!token.ends(&datagram));
        }
        assert_eq!(first_bytes.len(), 64);
    }

    #[test]
    fn resets_are_limited_to_1000_a_second_and_an_eighth_for_one_network() {
        let names = (Secret32::new([1; 32]), NodeId([2; 32]));
        let network = |number: u8| NetworkKey::of(IpAddr::from([192, 0, number, 1]));
        let mut sent = [0, 0];
        for (count, networks) in sent.iter_mut().zip([1_u8, 16]) {
            let mut generator = Seed::from_number(1).generator(0);
            let mut resets = Resets::new(Instant::ZERO, names.clone(), &mut generator);
            for millis in 0..10_000 {
                let now = Instant::from_millis(millis);
                for number in 0..networks {
                    assert!(!resets.take(now, network(number), TRIGGER_LEN_MIN - 1));
                    *count += u32::from(resets.take(now, network(number), TRIGGER_LEN_MIN));
                }
            }
        }
        // At once, and in the following 9,999 ms.
        assert_eq!(sent, [125 + 1_249, 1_000 + 9_999]);
    }
}
