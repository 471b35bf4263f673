//! Determinism test: detects games that depend on more than their turns.

use core::fmt;

use wire::{Generator, MatchId, Seat};

use crate::bundle::Shape;
use crate::checksum::StateHasher;
use crate::input::{Input, Origin, Row, Turn, encode_into};
use crate::sim::{Saves, Sim};
use crate::tick::Tick;

/// Most ticks that a test rolls back; the largest window.
const DISTANCE_MAX: u8 = 32;

/// Probability, in millionths, that a seat's random input changes in a tick; and below, that it is
/// substituted.
const CHANGE_CHANCE: u32 = 250_000;
const SUBSTITUTED_CHANCE: u32 = 30_000;

/// Runs a game as rollback does, and compares the results of each tick's two runs.
///
/// After each tick it rolls back `distance` ticks and repeats them with the same inputs. A state that is
/// not saved completely, or a step that reads a clock, its own random numbers or the order of a hash
/// table gives a different result sooner or later; the first such tick is reported. Differences between
/// machines, as of float operations, are not detected.
///
/// ```
/// # use lockstep::{Sim, StateHasher, SyncTest, Turn};
/// # use wire::Seed;
/// /// Forgets in its saves when it last rang.
/// #[derive(Default)]
/// struct Bell { rings: u32, last: u32 }
///
/// impl Sim for Bell {
///     type Input = bool;
///     type Snapshot = u32;
///     fn step(&mut self, turn: &Turn<'_, bool>) {
///         let is_pulled = turn.inputs().any(|(_, pulled, _)| pulled);
///         if is_pulled && turn.tick().since(lockstep::Tick(self.last)) > 2 {
///             (self.rings, self.last) = (self.rings + 1, turn.tick().0);
///         }
///     }
///     fn save(&self, into: &mut u32) { *into = self.rings; }
///     fn load(&mut self, from: &u32) { self.rings = *from; }
///     fn hash(&self, hasher: &mut StateHasher) { hasher.u32(self.rings); }
/// }
///
/// let mut test = SyncTest::new(Bell::default(), 2, 4);
/// let divergence = test.run(&mut Seed::from_number(1).generator(0), 200).unwrap_err();
/// assert_eq!(divergence.to_string(), "the state after tick 3 came out differently the second time");
/// ```
///
/// Memory is taken in [`new`](Self::new), but for what snapshots hold themselves.
#[derive(Debug)]
pub struct SyncTest<S: Sim> {
    game: S,
    distance: u32,
    at: Tick,
    saves: Saves<S::Snapshot>,
    /// Inputs of tick `t`, and the hash of the state after it, in slot `t % distance`.
    log: Vec<(Row, u64)>,
    before: u64,
    hasher: StateHasher,
    row: Row,
    scratch: Vec<u8>,
}

/// A tick with a different result the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The first tick after which the states differ.
    pub tick: Tick,
    /// The cause.
    pub cause: SyncFault,
}

/// Why two states differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// The state after the tick, saved and loaded, hashes differently from what was saved.
    Load,
    /// The tick's step, with the same inputs, from what hashes as the same state.
    Step,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tick = self.tick;
        match self.cause {
            SyncFault::Load => write!(
                f,
                "the state after tick {tick} was not loaded as it was saved"
            ),
            SyncFault::Step => write!(
                f,
                "the state after tick {tick} came out differently the second time"
            ),
        }
    }
}

impl core::error::Error for Divergence {}

impl<S: Sim> SyncTest<S> {
    /// Creates a test of a game before tick 0; it rolls back `distance` ticks, 1 to 32, each time.
    #[must_use]
    pub fn new(game: S, seats: u16, distance: u8) -> Self {
        let distance = distance.clamp(1, DISTANCE_MAX);
        let shape = Shape {
            seats,
            width: S::Input::WIDTH,
        };
        let mut scratch = Vec::new();
        encode_into(&S::Input::default(), &mut scratch);
        let mut row = Row::initial(seats, shape.width, &scratch);
        row.origins.fill(Origin::Confirmed);
        let mut hasher = StateHasher::new(MatchId([0; 16]));
        let before = hash(&game, &mut hasher);
        Self {
            game,
            distance: distance.into(),
            at: Tick(0),
            saves: Saves::new(distance.into()),
            log: vec![(row.clone(), 0); distance.into()],
            before,
            hasher,
            row,
            scratch,
        }
    }

    /// Runs one tick with these inputs, one per seat, the default for missing ones; then repeats
    /// the last `distance` ticks.
    ///
    /// # Errors
    ///
    /// The first [`Divergence`]. The test cannot continue then.
    pub fn advance(&mut self, inputs: &[S::Input]) -> Result<(), Divergence> {
        let default = S::Input::default();
        for index in 0..self.row.origins.len() {
            let input = inputs.get(index).unwrap_or(&default);
            encode_into(input, &mut self.scratch);
            self.row.set(seat(index), &self.scratch, Origin::Confirmed);
        }
        self.step()
    }

    /// Runs `ticks` ticks with random inputs: arbitrary bits, held for a few ticks, some of them
    /// substituted as a server does.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    pub fn run(&mut self, generator: &mut Generator, ticks: u32) -> Result<(), Divergence> {
        for _ in 0..ticks {
            for seat in (0..self.row.origins.len()).map(seat) {
                if generator.chance(SUBSTITUTED_CHANCE) {
                    self.scratch.clear();
                    self.scratch.extend_from_slice(self.row.value(seat));
                    self.row.set(seat, &self.scratch, Origin::Substituted);
                } else if generator.chance(CHANGE_CHANCE) {
                    generator.fill(&mut self.scratch);
                    // Unused bits are zero, as the encoder leaves them.
                    let spare = S::Input::WIDTH.spare_bits();
                    if let Some(last) = self.scratch.last_mut() {
                        *last &= u8::MAX << spare;
                    }
                    self.row.set(seat, &self.scratch, Origin::Confirmed);
                }
            }
            self.step()?;
        }
        Ok(())
    }

    /// Returns the game in its current state.
    pub const fn game(&self) -> &S {
        &self.game
    }

    /// Returns the next tick.
    pub const fn tick(&self) -> Tick {
        self.at
    }

    fn step(&mut self) -> Result<(), Divergence> {
        let tick = self.at;
        if let Some(slot) = self.saves.slot(tick) {
            self.game.save(slot);
        }
        let slot = tick.slot(self.distance);
        if let Some((row, after)) = self.log.get_mut(slot) {
            if tick.0 >= self.distance {
                self.before = *after;
            }
            row.copy_from(&self.row);
            self.game.step(&Turn::new(tick, row));
            *after = hash(&self.game, &mut self.hasher);
        }
        self.at = tick.plus(1);
        if self.at.0 >= self.distance {
            self.step_again(self.at.minus(self.distance))?;
        }
        Ok(())
    }

    fn step_again(&mut self, first: Tick) -> Result<(), Divergence> {
        if let Some(saved) = self.saves.find(first) {
            self.game.load(saved);
        }
        if hash(&self.game, &mut self.hasher) != self.before {
            return Err(Divergence {
                tick: first.minus(1),
                cause: SyncFault::Load,
            });
        }
        for tick in (first.0..self.at.0).map(Tick) {
            let slot = tick.slot(self.distance);
            let Some((row, after)) = self.log.get(slot) else {
                continue;
            };
            self.game.step(&Turn::new(tick, row));
            if hash(&self.game, &mut self.hasher) != *after {
                return Err(Divergence {
                    tick,
                    cause: SyncFault::Step,
                });
            }
        }
        Ok(())
    }
}

fn hash<S: Sim>(game: &S, hasher: &mut StateHasher) -> u64 {
    hasher.clear();
    game.hash(hasher);
    hasher.finish()
}

fn seat(index: usize) -> Seat {
    Seat(u16::try_from(index).unwrap_or(u16::MAX))
}
