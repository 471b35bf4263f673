//! The state hashes of a client's report.

use crate::bits::{BitReader, BitWriter, Malformed};

/// State hashes that one report may carry.
pub const HASHES_MAX: u32 = 16;

/// State hashes of consecutive hash steps, not yet unpacked but known to be there.
#[derive(Clone, Copy, Debug)]
pub struct HashRun<'a> {
    /// Steps from the newest step before the report's `next` back to the first hash.
    pub back: u32,
    /// How many there are, at most [`HASHES_MAX`].
    pub count: u32,
    /// At the first of them.
    reader: BitReader<'a>,
}

impl<'a> HashRun<'a> {
    /// None.
    pub const NONE: Self = Self {
        back: 0,
        count: 0,
        reader: BitReader::new(&[]),
    };

    /// Takes the number of hashes, and them.
    pub(super) fn take(reader: &mut BitReader<'a>) -> Result<Self, Malformed> {
        let count = reader.gamma(HASHES_MAX)?;
        if count == 0 {
            return Ok(Self::NONE);
        }
        let back = reader.gamma(u32::MAX)?;
        let run = Self {
            back,
            count,
            reader: *reader,
        };
        for _ in 0..count {
            reader.bits(32)?;
        }
        Ok(run)
    }

    /// Returns the hashes, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut reader = self.reader;
        (0..self.count).map_while(move |_| u32::try_from(reader.bits(32).ok()?).ok())
    }
}

impl PartialEq for HashRun<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.back, self.count) == (other.back, other.count) && self.iter().eq(other.iter())
    }
}

impl Eq for HashRun<'_> {}

/// State hashes of consecutive hash steps, to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HashSlice {
    /// Steps from the newest step before the report's `next` back to the first hash.
    pub(crate) back: u32,
    /// How many of `values` count, at most [`HASHES_MAX`].
    pub(crate) count: u32,
    /// The hashes, oldest first; zero past `count`.
    pub(crate) values: [u32; 16],
}

impl HashSlice {
    /// Appends what [`HashRun`] reads.
    pub(super) fn write(&self, writer: &mut BitWriter<'_>) {
        writer.gamma(self.count);
        if self.count > 0 {
            writer.gamma(self.back);
            for (hash, _) in self.values.iter().zip(0..self.count) {
                writer.bits((*hash).into(), 32);
            }
        }
    }
}
