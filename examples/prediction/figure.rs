//! What walks about the field.

use wire::{Generator, Reader, Truncated, Writer};

/// A figure, in thousandths of its own width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) at: [i32; 2],
    /// Where it is shoved to, for how many ticks more.
    pub(crate) shove: [i32; 2],
    pub(crate) shoved: u8,
}

impl Figure {
    /// One step: what the player wants, and what the server did to it.
    pub(crate) fn step(&mut self, way: Way) {
        let is_shoved = self.shoved > 0;
        self.shoved = self.shoved.saturating_sub(1);
        for ((at, shove), way) in self.at.iter_mut().zip(self.shove).zip(way.0) {
            let shove = if is_shoved { shove } else { 0 };
            *at = (*at + i32::from(way) * PACE + shove).clamp(0, FIELD);
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        for number in self.at.into_iter().chain(self.shove) {
            out.u32(number.cast_unsigned());
        }
        out.u8(self.shoved);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        let mut number = || reader.u32().map(u32::cast_signed);
        let at = [number()?, number()?];
        let shove = [number()?, number()?];
        let shoved = reader.u8()?;
        Ok(Self { at, shove, shoved })
    }
}

/// What a player does in one tick: -1, 0 or 1 on each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way(pub(crate) [i8; 2]);

impl Way {
    pub(crate) fn draw(generator: &mut Generator) -> Self {
        Self([(); 2].map(|()| i8::try_from(generator.below(3)).unwrap_or(0) - 1))
    }
}

/// Side of the field.
pub(crate) const FIELD: i32 = 40_000;

/// How far a figure goes in a tick, and how far a shove takes it.
pub(crate) const PACE: i32 = 100;
pub(crate) const SHOVE: i32 = 60;
