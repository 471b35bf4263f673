//! Release of labels before they expire, by the node that requested them.
//!
//! | message | body |
//! |---|---|
//! | release 0x22 | count 1, count × (slot 4, generation 1) |
//!
//! Count is 1 to 64. It is sent to the node that allocated the labels, over the session of the
//! request, which authenticates it. The node frees those labels that it allocated for the sender,
//! regardless of route, flow or request, and sends no answer. A late release names an old
//! generation and frees nothing. If it is lost with its session, the labels expire.

use wire::{Reader, Writer};

use crate::hop::LabelName;
use crate::message::{DecodeError, code};
use crate::route_request::{FLOWS_MAX, read_count, read_label, read_type, write_label};

/// Labels to free; 1 to 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRelease(Vec<LabelName>);

impl RouteRelease {
    /// Maximum number of labels per message.
    pub const COUNT_MAX: usize = FLOWS_MAX;

    /// Creates a release of the first 64 of `labels`; `None` if there are none.
    #[must_use]
    pub fn new(labels: impl IntoIterator<Item = LabelName>) -> Option<Self> {
        let labels: Vec<LabelName> = labels.into_iter().take(Self::COUNT_MAX).collect();
        (!labels.is_empty()).then_some(Self(labels))
    }

    /// Returns the labels.
    #[must_use]
    pub fn labels(&self) -> &[LabelName] {
        &self.0
    }

    /// Returns the number of labels.
    #[must_use]
    pub fn count(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(code::ROUTE_RELEASE);
        writer.u8(self.count());
        for label in &self.0 {
            write_label(&mut writer, *label);
        }
    }

    /// Decodes a whole message with its type byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] names the first rule that `bytes` break.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        read_type(&mut reader, code::ROUTE_RELEASE)?;
        let count = read_count(&mut reader)?;
        if count == 0 {
            return Err(DecodeError::BadValue);
        }
        let labels = (0..count)
            .map(|_| read_label(&mut reader))
            .collect::<Result<_, _>>()?;
        if reader.is_empty() {
            Ok(Self(labels))
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(slot: u32) -> LabelName {
        LabelName {
            slot,
            generation: 5,
        }
    }

    #[test]
    fn the_bytes_are_frozen() {
        let release = RouteRelease::new([label(0x0102_0304), label(7)]).unwrap();
        let mut out = Vec::new();
        release.encode(&mut out);
        assert_eq!(out, [0x22, 2, 1, 2, 3, 4, 5, 0, 0, 0, 7, 5]);
        assert_eq!(RouteRelease::decode(&out), Ok(release));
    }

    #[test]
    fn mesh_a1_counts_are_bounded() {
        assert_eq!(RouteRelease::new([]), None);
        let many = RouteRelease::new((0..99).map(label)).unwrap();
        assert_eq!((many.count(), many.labels().len()), (64, 64));
        let mut out = Vec::new();
        many.encode(&mut out);
        assert_eq!(RouteRelease::decode(&out), Ok(many));
        out[1] = 65;
        out.extend([0; 5]);
        assert_eq!(
            RouteRelease::decode(&out),
            Err(DecodeError::OverLimit { found: 65, max: 64 })
        );
        out[1] = 0;
        assert_eq!(RouteRelease::decode(&out), Err(DecodeError::BadValue));
        assert_eq!(
            RouteRelease::decode(&[0x22, 1, 0]),
            Err(DecodeError::Truncated)
        );
        assert_eq!(
            RouteRelease::decode(&[0x22, 1, 0, 0, 0, 0, 0, 0]),
            Err(DecodeError::Trailing)
        );
        assert_eq!(
            RouteRelease::decode(&[0x21]),
            Err(DecodeError::UnknownType(0x21))
        );
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(count in 0_u8..4, body: Vec<u8>, cut in 0_usize..22) {
            let mut bytes = vec![0x22, count];
            bytes.extend(body.iter().copied().chain(core::iter::repeat(9)).take(cut));
            if let Ok(release) = RouteRelease::decode(&bytes) {
                let mut out = Vec::new();
                release.encode(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
