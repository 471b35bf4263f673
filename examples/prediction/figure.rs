//! A figure that walks on the field.

use wire::{Generator, Reader, Truncated, Writer};

/// A figure, in thousandths of its width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) at: [i32; 2],
    /// Direction of a shove, and how many ticks it still lasts.
    pub(crate) shove: [i32; 2],
    pub(crate) shoved: u8,
}

impl Figure {
    /// Moves for one tick, by the player's input and by a shove in progress.
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

/// A player's input in one tick: -1, 0 or 1 on each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way(pub(crate) [i8; 2]);

impl Way {
    pub(crate) fn draw(generator: &mut Generator) -> Self {
        Self([(); 2].map(|()| i8::try_from(generator.below(3)).unwrap_or(0) - 1))
    }
}

/// Side length of the field.
pub(crate) const FIELD: i32 = 40_000;

/// Distance that a figure walks per tick, and that a shove moves it.
pub(crate) const PACE: i32 = 100;
pub(crate) const SHOVE: i32 = 60;
