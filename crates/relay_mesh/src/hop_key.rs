//! Tags of hop frames on tag-only links, and their keys.

use core::fmt;

use crypto::{Exporter, Label, Provider, Secret32, equal};
use siphasher::sip::SipHasher24;
use zeroize::Zeroize;

use crate::hop::{HopHeader, LabelName};

/// Tag key of one label; its node creates a new one for each use of the slot.
///
/// The tag of a frame is SipHash-2-4 (Aumasson and Bernstein, 2012) over the 16 bytes of the header
/// and the length of the frame, 2 bytes, big-endian; its 64 bits little-endian, as the authors
/// write them.
///
/// It does not cover the body. An observer that is faster than the frame can replace the body: the
/// forgery reaches the far end of the flow, fails to decrypt, and the genuine frame is dropped as a
/// duplicate. That costs the flow one packet, and neither reveals nor alters data.
///
/// The key is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct HopKey(pub [u8; Self::LEN]);

/// Protection of a label's frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HopForm {
    /// Sealed with the link key.
    #[default]
    Sealed,
    /// Tagged with this key.
    TagOnly(HopKey),
}

/// A label of the next hop, and the protection of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextLabel {
    /// The label.
    pub name: LabelName,
    /// As its node assigned it.
    pub form: HopForm,
}

impl HopKey {
    /// Length in bytes.
    pub const LEN: usize = 16;
    /// Length of a tag in bytes.
    pub const TAG_LEN: usize = 8;

    /// Returns the tag of a frame of `len` bytes in total.
    #[must_use]
    pub fn tag(&self, header: &[u8; HopHeader::LEN], len: usize) -> [u8; Self::TAG_LEN] {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        let mut input = [0; HopHeader::LEN + 2];
        if let Some(first) = input.first_chunk_mut() {
            *first = *header;
        }
        if let Some(last) = input.last_chunk_mut() {
            *last = len.to_be_bytes();
        }
        SipHasher24::new_with_key(&self.0)
            .hash(&input)
            .to_le_bytes()
    }

    /// Returns the body of a frame if its tag is valid; compares in constant time.
    pub fn open<'a>(&self, frame: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let len = frame.len();
        let (header, rest) = frame.split_first_chunk_mut::<{ HopHeader::LEN }>()?;
        let (tag, body) = rest.split_first_chunk_mut::<{ Self::TAG_LEN }>()?;
        equal(&self.tag(header, len), tag).then_some(body)
    }

    /// Appends a frame to `out`.
    pub(crate) fn close(&self, header: &HopHeader, body: &[u8], out: &mut Vec<u8>) {
        let header = header.encode();
        let len = header
            .len()
            .saturating_add(Self::TAG_LEN)
            .saturating_add(body.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.tag(&header, len));
        out.extend_from_slice(body);
    }
}

impl HopForm {
    /// Whether frames are tag-only.
    #[must_use]
    pub const fn is_tag_only(&self) -> bool {
        matches!(self, Self::TagOnly(_))
    }

    /// The key; empty if there is none.
    pub(crate) const fn key(&self) -> &[u8] {
        match self {
            Self::Sealed => &[],
            Self::TagOnly(key) => &key.0,
        }
    }
}

impl From<LabelName> for NextLabel {
    /// A label with sealed frames.
    fn from(name: LabelName) -> Self {
        let form = HopForm::Sealed;
        Self { name, form }
    }
}

impl Drop for HopKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for HopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HopKey(..)")
    }
}

/// Creates the keys of labels that one link's frames arrive at.
///
/// A key is the first 16 bytes of HMAC-SHA-256(Expand(exporter, "tw1 hop key"), label 4 |
/// generation 1 | number of keys created before 8) with the exporter of the link's session, so that
/// none repeats.
#[derive(Debug)]
pub(crate) struct HopKeyMaker {
    secret: Secret32,
    made: u64,
}

impl HopKeyMaker {
    pub(crate) fn new<P: Provider>(provider: &P, exporter: &Exporter) -> Self {
        Self {
            secret: exporter.expand(provider, HOP_KEY, &[]),
            made: 0,
        }
    }

    /// Creates the key of a label.
    pub(crate) fn make<P: Provider>(&mut self, provider: &P, name: LabelName) -> HopKey {
        let mac = provider.hmac_sha256(
            self.secret.expose(),
            &[
                &name.slot.to_be_bytes(),
                &[name.generation],
                &self.made.to_be_bytes(),
            ],
        );
        self.made = self.made.saturating_add(1);
        HopKey(mac.first_chunk().copied().unwrap_or_default())
    }
}

const HOP_KEY: Label = Label::new("tw1 hop key");

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::{Initial, Role};
    use netsim::provider::SimProvider;
    use wire::Seed;

    use crate::hop::{HopKind, Phase, Piece};

    const KEY: HopKey = HopKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    fn frame(len: usize) -> Vec<u8> {
        let header = HopHeader {
            kind: HopKind::TagOnly,
            epoch: 0,
            from: crate::shard::ShardId::FIRST,
            hops_left: 3,
            label: LabelName {
                slot: 7,
                generation: 1,
            },
            phase: Phase {
                key: 0,
                piece: Piece::Whole,
            },
            number: 9,
        };
        let mut out = Vec::new();
        KEY.close(&header, &vec![5; len], &mut out);
        out
    }

    #[test]
    fn the_hash_is_that_of_the_authors() {
        // Appendix A of "SipHash: a fast short-input PRF": 15 bytes, 0 to 14.
        let input: Vec<u8> = (0..15).collect();
        let hash = SipHasher24::new_with_key(&KEY.0).hash(&input);
        assert_eq!(hash, 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn mesh_f8_a_tag_only_frame_adds_40_bytes_and_a_sealed_one_48() {
        // 16 of header, 8 or 16 of hop tag, 16 of the flow's tag.
        assert_eq!(frame(16).len(), 40);
        assert!(HopHeader::decode(&frame(16)).is_ok());
        assert!(HopHeader::decode(&frame(15)).is_err());
    }

    #[test]
    fn mesh_a1_a_tag_holds_for_its_header_length_and_key_only() {
        let good = frame(30);
        assert_eq!(
            KEY.open(&mut good.clone()).map(|body| body.to_vec()),
            Some(vec![5; 30])
        );
        for place in 0..24 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[place] ^= 1 << bit;
                assert_eq!(KEY.open(&mut bad), None, "{place} {bit}");
            }
        }
        assert_eq!(KEY.open(&mut good[..53].to_vec()), None);
        assert_eq!(KEY.open(&mut [&good[..], &[0]].concat()), None);
        assert_eq!(HopKey([1; 16]).open(&mut good.clone()), None);
        // Not covered by the tag.
        let mut other = good;
        other[24] ^= 1;
        assert!(KEY.open(&mut other).is_some());
    }

    #[test]
    fn mesh_a1_no_two_uses_of_a_label_have_one_key() {
        let provider = SimProvider::new(Seed::from_number(1));
        let agreed = Initial::new(&provider, None).agree(&provider, &Secret32::new([3; 32]));
        let exporter = agreed.traffic(&provider, &[0; 32]).split(Role::Dialler).2;
        let mut maker = HopKeyMaker::new(&provider, &exporter);
        let name = |slot| LabelName {
            slot,
            generation: 0,
        };
        let keys: std::collections::BTreeSet<[u8; 16]> = (0..1_000)
            .map(|use_of| maker.make(&provider, name(use_of % 2)).0)
            .collect();
        assert_eq!(keys.len(), 1_000);
    }
}
