//! Cost of the sync test in addition to the game's own steps and hashes.
//!
//! `cargo bench --bench rollback [-- ROUNDS]`, 15 by default. Times are CPU time of one thread.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]
#![expect(
    clippy::expect_used,
    reason = "a bench whose game is not sound must stop, not measure something else"
)]

use benches::measure::{Repeat, compare};
use harness::usage::answer;
use lockstep::{Sim, StateHasher, SyncTest, Turn};
use wire::{MatchId, Seed};

/// Players and resimulated ticks per tick, as in the published measurement of the fastest other
/// library.
const PLAYERS: u16 = 8;
const DISTANCE: u8 = 7;

/// A game with minimal state.
#[derive(Clone, Debug, Default)]
struct Trivial(u64);

impl Trivial {
    fn mix(&mut self, input: u32) {
        self.0 = (self.0 ^ u64::from(input)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Sim for Trivial {
    type Input = u32;
    type Snapshot = u64;

    fn step(&mut self, turn: &Turn<'_, u32>) {
        for (_, input, _) in turn.inputs() {
            self.mix(input);
        }
    }

    fn save(&self, into: &mut u64) {
        *into = self.0;
    }

    fn load(&mut self, from: &u64) {
        self.0 = *from;
    }

    fn hash(&self, hasher: &mut StateHasher) {
        hasher.u64(self.0);
    }
}

/// The `--help` text.
const USAGE: &str = "\
Times the sync test of a game beside its own steps and hashes.

Usage: cargo bench --bench rollback -- [ROUNDS]

ROUNDS: 15 by default.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(15);
    let mut generator = Seed::from_number(1).generator(0);
    let mut inputs = [0_u32; PLAYERS as usize];
    let mut test = SyncTest::new(Trivial::default(), PLAYERS, DISTANCE);
    let mut tick = 0_usize;
    let ours = move || {
        // One player after the other changes its input.
        if let Some(input) = inputs.get_mut(tick % usize::from(PLAYERS)) {
            *input = generator.next_u32();
        }
        tick = tick.wrapping_add(1);
        test.advance(&inputs).expect("the game is sound");
    };
    let mut bare = Trivial::default();
    let floor = move || {
        for _ in 0..=DISTANCE {
            (0..u32::from(PLAYERS)).for_each(|input| bare.mix(input));
            let mut hasher = StateHasher::new(MatchId([0; 16]));
            bare.hash(&mut hasher);
            bare.mix(u32::from(hasher.finish() == 0));
        }
    };
    let result = compare(&mut Repeat(ours), &mut Repeat(floor), rounds);
    println!("sync test, {PLAYERS} players, distance {DISTANCE}, CPU time of a tick");
    println!(
        "ours {:.0} ns, steps and hashes alone {:.0} ns, ratio {:.2}",
        result.ours, result.floor, result.ratio
    );
}
