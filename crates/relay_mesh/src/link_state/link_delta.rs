//! Delta: changes since an origin's link record.

use wire::{Reader, Writer};

use super::{NEIGHBOURS_MAX, ShortId};
use crate::cost::{Cost, LossCode};
use crate::measure::LinkReport;
use crate::message::DecodeError;

/// Changed measurements relative to an origin's link record.
///
/// | offset | size | field |
/// |---|---|---|
/// | 0 | 8 | short id of the origin |
/// | 8 | 4 | base: low half of the version of the link record that it changes |
/// | 12 | 2 | after: how far this state is above that version, at least 1 |
/// | 14 | 1 | count (≤ 64) |
/// | 15 | 4 each | position in the list, ascending; delay in 0.1 ms (< 32,767); loss code (< 255) |
///
/// 15 + 4 × changed links. It lists all differences from the record, not from the previous delta,
/// so the newest is enough. It is not signed: sessions authenticate it hop by hop, and the next
/// link record verifies it. It changes only links that are up in the record and takes none down,
/// which needs a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDelta {
    /// The origin.
    pub origin: ShortId,
    /// Low half of the version of the record that it changes.
    pub base: u32,
    /// Versions above that record; at least 1.
    pub after: u16,
    /// Positions in the origin's list, ascending, and their current reports.
    pub changes: Vec<(u8, LinkReport)>,
}

impl LinkDelta {
    /// Longest delta, in bytes.
    pub const LEN_MAX: usize = 15 + NEIGHBOURS_MAX * 4;

    /// Appends the delta to `writer`.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.origin.0);
        writer.u32(self.base);
        writer.u16(self.after);
        let changes = self.changes.iter().take(NEIGHBOURS_MAX);
        writer.u8(u8::try_from(changes.len()).unwrap_or(u8::MAX));
        for (position, report) in changes {
            writer.u8(*position);
            writer.u16(report.delay.units());
            writer.u8(report.loss.0);
        }
    }

    /// Decodes one delta; more may follow.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let origin = ShortId(reader.array()?);
        let base = reader.u32()?;
        let after = reader.u16()?;
        if after == 0 {
            return Err(DecodeError::BadValue);
        }
        let found = usize::from(reader.u8()?);
        if found > NEIGHBOURS_MAX {
            let max = NEIGHBOURS_MAX;
            return Err(DecodeError::OverLimit { found, max });
        }
        let mut changes: Vec<(u8, LinkReport)> = Vec::with_capacity(found);
        for _ in 0..found {
            let position = reader.u8()?;
            let units = reader.u16()?;
            let report = LinkReport {
                delay: Cost::from_units(units),
                loss: LossCode(reader.u8()?),
            };
            if units > Cost::UNROUTABLE.units() || !report.is_up() {
                return Err(DecodeError::BadValue);
            }
            if changes.last().is_some_and(|(last, _)| *last >= position) {
                return Err(DecodeError::Unordered);
            }
            changes.push((position, report));
        }
        Ok(Self {
            origin,
            base,
            after,
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(delta: &LinkDelta) -> Vec<u8> {
        let mut bytes = Vec::new();
        delta.write(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn the_bytes_are_frozen_and_each_rule_is_kept() {
        let report = LinkReport {
            delay: Cost::from_units(0x0102),
            loss: LossCode(3),
        };
        let delta = LinkDelta {
            origin: ShortId([7; 8]),
            base: 0x0a0b_0c0d,
            after: 0x0e0f,
            changes: vec![(4, report), (9, report)],
        };
        let expected = [
            &[7; 8][..],
            &[10, 11, 12, 13, 14, 15, 2, 4, 1, 2, 3, 9, 1, 2, 3],
        ];
        let good = expected.concat();
        assert_eq!(bytes(&delta), good);
        let read = |bytes: &[u8]| LinkDelta::read(&mut Reader::new(bytes));
        assert_eq!(read(&good), Ok(delta));
        for (place, value, error) in [
            (13, 0, None),
            (14, 65, Some(DecodeError::OverLimit { found: 65, max: 64 })),
            (14, 3, Some(DecodeError::Truncated)),
            (16, 0x7f, None),
            (18, 255, Some(DecodeError::BadValue)),
            (19, 4, Some(DecodeError::Unordered)),
        ] {
            let mut changed = good.clone();
            changed[place] = value;
            assert_eq!(read(&changed).err(), error, "{place}");
        }
        let mut silent = good.clone();
        silent[12] = 0;
        silent[13] = 0;
        assert_eq!(read(&silent), Err(DecodeError::BadValue), "after nothing");
        let mut down = good;
        down[16] = 0x7f;
        down[17] = 0xff;
        assert_eq!(read(&down), Err(DecodeError::BadValue), "no link goes down");
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_the_same(
            mut input in prop::collection::vec(any::<u8>(), 0..60),
            count in 0_u8..4,
        ) {
            if let Some(byte) = input.get_mut(14) {
                *byte = count;
            }
            let mut reader = Reader::new(&input);
            if let Ok(delta) = LinkDelta::read(&mut reader) {
                let rest = reader.len();
                let written = bytes(&delta);
                prop_assert!(written.len() <= LinkDelta::LEN_MAX);
                prop_assert_eq!(&written[..], &input[..input.len() - rest]);
            }
        }
    }
}
