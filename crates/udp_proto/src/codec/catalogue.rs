//! The message types that both ends must agree on.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::Writer;

/// The types of an application's messages, with their versions and codec.
///
/// Empty by default; then the ends need only agree on their channels. Clones share one list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Part of the channel digest; empty without types.
    encoded: Arc<[u8]>,
}

impl Catalogue {
    /// Creates a catalogue of types, by id with their versions, encoded by the codec with code
    /// `codec`: 0 for postcard, 1 for bincode, from 128 for custom ones.
    #[must_use]
    pub fn new(codec: u8, types: &BTreeMap<u16, u16>) -> Self {
        let mut encoded = Vec::new();
        let mut writer = Writer::new(&mut encoded);
        writer.u8(codec);
        for (id, version) in types {
            writer.u16(*id);
            writer.u16(*version);
        }
        Self {
            encoded: encoded.into(),
        }
    }

    /// Appends what both ends must agree on. The channel digest hashes the channel table and this:
    /// `codec 1 | types * (id 2 | version 2)`, big-endian, ids ascending; nothing without a
    /// catalogue.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encoded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u22_the_encoding_is_frozen() {
        let mut out = Vec::new();
        Catalogue::default().encode(&mut out);
        assert_eq!(out, [0; 0]);
        Catalogue::new(1, &BTreeMap::from([(0x0102, 3), (7, 0x0405)])).encode(&mut out);
        assert_eq!(out, [1, 0, 7, 4, 5, 1, 2, 0, 3]);
    }
}
