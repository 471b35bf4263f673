//! Player inputs, equal for every stack.

use core::fmt::Debug;

use lockstep::bits::{BitReader, BitWriter};
use lockstep::{Input, Width};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::Generator;

/// One player's input for one frame, with a fixed size in memory and on every stack.
pub trait Play:
    Input + Copy + Debug + Eq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// Returns the input of the next frame.
    #[must_use]
    fn next(self, generator: &mut Generator) -> Self;

    /// Returns the input as a number for the game.
    fn word(self) -> u64;
}

/// Twelve buttons in four bytes. In one frame of ten, one of them is pressed or released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Pad(u32);

/// A pad with two axes of eight bits which change in every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Stick(u32);

/// A command of 32 bytes in one frame of fifty, otherwise empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Burst([u8; 32]);

/// Toggles per million frames.
const TOGGLE_PER_MILLION: u32 = 100_000;
/// Commands per million frames.
const COMMAND_PER_MILLION: u32 = 20_000;

fn toggled(buttons: u32, generator: &mut Generator) -> u32 {
    if generator.chance(TOGGLE_PER_MILLION) {
        buttons ^ (1 << generator.below(12))
    } else {
        buttons
    }
}

impl Play for Pad {
    fn next(self, generator: &mut Generator) -> Self {
        Self(toggled(self.0, generator))
    }

    fn word(self) -> u64 {
        self.0.into()
    }
}

impl Play for Stick {
    fn next(self, generator: &mut Generator) -> Self {
        let buttons = toggled(self.0 >> 16, generator);
        Self((buttons << 16) | (generator.next_u32() & 0xffff))
    }

    fn word(self) -> u64 {
        self.0.into()
    }
}

impl Play for Burst {
    fn next(self, generator: &mut Generator) -> Self {
        let mut command = [0; 32];
        if generator.chance(COMMAND_PER_MILLION) {
            generator.fill(&mut command);
        }
        Self(command)
    }

    fn word(self) -> u64 {
        let bytes = self.0.iter().zip(1..);
        bytes.fold(0, |sum: u64, (byte, place)| {
            sum.wrapping_add(u64::from(*byte) * place)
        })
    }
}

/// Encodes as four bytes, most significant bit first.
macro_rules! four_bytes {
    ($($name:ident),*) => {$(
        impl Input for $name {
            const WIDTH: Width = Width::bits::<32>();

            fn write(&self, out: &mut BitWriter<'_>) {
                out.bits(self.0.into(), 32);
            }

            fn read(bits: &mut BitReader<'_>) -> Option<Self> {
                u32::try_from(bits.bits(32).ok()?).ok().map(Self)
            }
        }
    )*};
}

four_bytes!(Pad, Stick);

impl Input for Burst {
    const WIDTH: Width = Width::bits::<256>();

    fn write(&self, out: &mut BitWriter<'_>) {
        for byte in self.0 {
            out.bits(byte.into(), 8);
        }
    }

    fn read(bits: &mut BitReader<'_>) -> Option<Self> {
        let mut command = [0; 32];
        for byte in &mut command {
            *byte = u8::try_from(bits.bits(8).ok()?).ok()?;
        }
        Some(Self(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Seed;

    /// Returns in how many of 10,000 frames the input differs from the last.
    fn changes<P: Play>() -> usize {
        let mut generator = Seed::from_number(1).generator(0);
        let mut held = P::default();
        let changed = (0..10_000).filter(|_| {
            let before = held;
            held = held.next(&mut generator);
            held != before
        });
        changed.count()
    }

    #[test]
    fn players_use_as_much_as_the_configuration_allows() {
        assert!((900..1_100).contains(&changes::<Pad>()));
        assert!(changes::<Stick>() > 9_990);
        // Each command is two changes.
        assert!((300..500).contains(&changes::<Burst>()));
    }

    #[test]
    fn an_input_has_the_same_size_on_every_stack() {
        assert_eq!(bincode::serialized_size(&Pad(7)).unwrap(), 4);
        assert_eq!(Pad::WIDTH.get(), 32);
        assert_eq!(bincode::serialized_size(&Stick(7)).unwrap(), 4);
        assert_eq!(Stick::WIDTH.get(), 32);
        assert_eq!(bincode::serialized_size(&Burst([7; 32])).unwrap(), 32);
        assert_eq!(Burst::WIDTH.get(), 256);
    }
}
