//! A test for authors: whether a game depends on more than its turns.

use core::fmt;

use wire::{Generator, MatchId, Seat};

use crate::bundle::Shape;
use crate::checksum::StateHasher;
use crate::input::{Input, encode_into};
use crate::saves::Saves;
use crate::sim::Sim;
use crate::tick::Tick;
use crate::turn::{Origin, Row, Turn};

/// Ticks that a test can go back, at most; as many as a window.
const DISTANCE_MAX: u8 = 32;

/// Chances in a million of one seat in one tick of random inputs: something else is done, and the
/// server had to fill it in.
const CHANGE_CHANCE: u32 = 250_000;
const SUBSTITUTED_CHANCE: u32 = 30_000;

/// Runs a game as rollback does, and compares what comes of each tick the second time with the
/// first.
///
/// After each tick it goes back `distance` ticks and makes them again on the same inputs. A state
/// that is not saved whole, a step that reads a clock, a random number of its own, or the order of
/// a hash table comes out differently sooner or later; the first tick that does is named. What all
/// runs of a process share, as the result of a float operation, only another machine can tell.
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
    /// Ticks to go back each time.
    distance: u32,
    /// Next tick.
    at: Tick,
    saves: Saves<S::Snapshot>,
    /// Inputs of tick `t`, and the hash of the state after it, at place `t % distance`.
    log: Vec<(Row, u64)>,
    /// Hash of the state before the oldest tick of the log.
    before: u64,
    /// Makes all hashes. Any match will do: nobody else hears of them.
    hasher: StateHasher,
    /// Inputs of the tick before; kept for its memory too.
    row: Row,
    /// The input being worked on; kept for its memory.
    scratch: Vec<u8>,
}

/// A tick that came out differently the second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The first tick after which the states differ.
    pub tick: Tick,
    /// What made them differ.
    pub cause: SyncFault,
}

/// What made two states differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// The state after the tick, saved and loaded, hashes differently from what was saved.
    Load,
    /// The tick's step from the same state, or what seemed so, with the same inputs.
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
    /// Makes the test of a game before tick 0; it goes back `distance` ticks, 1 to 32, each time.
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

    /// Makes one tick with these inputs, one for each seat, those that are missing the default;
    /// then the last `distance` ticks again.
    ///
    /// # Errors
    ///
    /// [`Divergence`], the first there is. The test cannot go on then.
    pub fn advance(&mut self, inputs: &[S::Input]) -> Result<(), Divergence> {
        let default = S::Input::default();
        for index in 0..self.row.origins.len() {
            let input = inputs.get(index).unwrap_or(&default);
            encode_into(input, &mut self.scratch);
            self.row.set(seat(index), &self.scratch, Origin::Confirmed);
        }
        self.step()
    }

    /// Makes `ticks` ticks with random inputs: whatever bits there can be, held for a few ticks,
    /// a few of them filled in as the server does.
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
                    // As its writer leaves it: the spare bits are zero.
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

    /// Returns the game, as it is now.
    pub const fn game(&self) -> &S {
        &self.game
    }

    /// Returns the next tick.
    pub const fn tick(&self) -> Tick {
        self.at
    }

    fn step(&mut self) -> Result<(), Divergence> {
        let tick = self.at;
        if let Some(place) = self.saves.place(tick) {
            self.game.save(place);
        }
        let place = self.place(tick);
        if let Some((row, after)) = self.log.get_mut(place) {
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

    /// Goes back to `first`, and forth again.
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
            let place = self.place(tick);
            let Some((row, after)) = self.log.get(place) else {
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

    fn place(&self, tick: Tick) -> usize {
        let place = tick.0.checked_rem(self.distance).unwrap_or(0);
        usize::try_from(place).unwrap_or(0)
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
