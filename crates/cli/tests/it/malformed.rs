//! Junk at every port: random bytes, and truncated and bit-flipped captures of real sessions, ten
//! thousand of each. All are counted by reason and have no effect.

mod relay;
mod stream;

use relay_mesh::trunk::Frames;
use wire::{Generator, Seed};

/// Pieces of each kind.
const COUNT: u64 = 10_000;

/// Kind of junk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Random,
    Cut,
    Flipped,
}

const KINDS: [Kind; 3] = [Kind::Random, Kind::Cut, Kind::Flipped];

/// Generates junk from a seed.
struct Source {
    generator: Generator,
    captures: Vec<Vec<u8>>,
    /// Longest random piece, bytes.
    len_max: usize,
    /// Frames after the first of each piece, because a datagram between nodes holds several.
    frames_further: u64,
}

impl Source {
    fn new(seed: u64, captures: Vec<Vec<u8>>, len_max: usize) -> Self {
        assert!(captures.iter().all(|capture| !capture.is_empty()));
        Self {
            generator: Seed::from_number(seed).generator(0),
            captures,
            len_max,
            frames_further: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        let below = self.generator.below(u64::try_from(bound).unwrap());
        usize::try_from(below).unwrap()
    }

    fn next(&mut self, kind: Kind) -> Vec<u8> {
        let bytes = self.make(kind);
        let frames = Frames::new(&mut bytes.clone()).map_or(1, Iterator::count);
        self.frames_further += u64::try_from(frames.saturating_sub(1)).unwrap();
        bytes
    }

    fn make(&mut self, kind: Kind) -> Vec<u8> {
        if kind == Kind::Random {
            let mut bytes = vec![0; 1 + self.below(self.len_max)];
            self.generator.fill(&mut bytes);
            return bytes;
        }
        let at = self.below(self.captures.len());
        let mut bytes = self.captures[at].clone();
        if kind == Kind::Cut {
            let len = self.below(bytes.len());
            bytes.truncate(len);
        } else {
            let bit = self.below(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes
    }
}
