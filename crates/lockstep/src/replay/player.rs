//! Playback and comparison of replays.

use super::reader::{Cursor, Item};
use super::{ReplayReader, SeekError};
use crate::checksum::StateHasher;
use crate::input::{Input, Turn, encode_into};
use crate::sim::{Sim, SnapshotBytes};
use crate::tick::Tick;

/// Plays a replay with its game.
#[derive(Debug)]
pub struct ReplayPlayer<'a, S: Sim> {
    replay: &'a ReplayReader<'a>,
    cursor: Cursor<'a>,
    sim: S,
    start: S::Snapshot,
}

impl<'a, S: Sim> ReplayPlayer<'a, S> {
    /// Creates a player with `sim` in its state before tick 0.
    ///
    /// `None` if the game's inputs have another width or another default.
    #[must_use]
    pub fn new(replay: &'a ReplayReader<'a>, sim: S) -> Option<Self> {
        let header = replay.header();
        let mut neutral = Vec::new();
        encode_into(&S::Input::default(), &mut neutral);
        if header.shape.width != S::Input::WIDTH || header.neutral != neutral {
            return None;
        }
        let mut start = S::Snapshot::default();
        sim.save(&mut start);
        Some(Self {
            replay,
            cursor: replay.cursor(),
            sim,
            start,
        })
    }

    /// Steps the game by one tick and returns its turn; `None` at the end.
    pub fn step(&mut self) -> Option<Turn<'_, S::Input>> {
        let (tick, _) = self.cursor.next_tick()?;
        let turn = Turn::new(tick, &self.cursor.row);
        self.sim.step(&turn);
        Some(turn)
    }

    /// Returns the first tick not yet stepped.
    pub const fn next(&self) -> Tick {
        self.cursor.next
    }

    /// Returns the game in its current state.
    pub const fn sim(&self) -> &S {
        &self.sim
    }

    /// Returns the hash of the current state.
    pub fn state_hash(&self) -> u64 {
        let mut hasher = StateHasher::new(self.replay.header().match_id);
        self.sim.hash(&mut hasher);
        hasher.finish()
    }

    fn rewind(&mut self) {
        self.cursor.rewind();
        self.sim.load(&self.start);
    }
}

impl<S: Sim> ReplayPlayer<'_, S>
where
    S::Snapshot: SnapshotBytes,
{
    /// Seeks to the state before `tick` and returns the number of steps run.
    ///
    /// Steps from the current state, or from the nearest keyframe before `tick` if that is closer:
    /// at most as many as lie between two keyframes.
    ///
    /// # Errors
    ///
    /// [`SeekError`]. Past the end nothing changes; after an unreadable keyframe the player is
    /// before tick 0.
    pub fn seek(&mut self, tick: Tick) -> Result<u32, SeekError> {
        if tick.0 > self.replay.ticks() {
            return Err(SeekError::PastEnd {
                ticks: self.replay.ticks(),
            });
        }
        let keyframe = self.replay.keyframe_before(tick);
        let nearest = keyframe.map_or(Tick(0), |keyframe| keyframe.tick);
        let is_near = (nearest..=tick).contains(&self.next());
        match keyframe {
            _ if is_near => {}
            None => self.rewind(),
            Some(keyframe) => {
                let snapshot = self.cursor.resume(keyframe.offset, keyframe.tick);
                let Some(snapshot) = snapshot.and_then(S::Snapshot::read) else {
                    self.rewind();
                    return Err(SeekError::Keyframe {
                        tick: keyframe.tick,
                    });
                };
                self.sim.load(&snapshot);
            }
        }
        let from = self.next();
        while self.next() < tick && self.step().is_some() {}
        Ok(self.next().since(from))
    }

    /// Plays the whole replay again and compares each recorded state.
    ///
    /// A keyframe is compared by its hash, and playback continues from the played state, so a
    /// forged keyframe only affects seeks to it.
    ///
    /// # Errors
    ///
    /// The first [`Mismatch`].
    pub fn verify(&mut self) -> Result<Verified, Mismatch> {
        self.rewind();
        let mut verified = Verified::default();
        let mut played = S::Snapshot::default();
        loop {
            match self.cursor.next_item() {
                Ok(Item::Tick {
                    tick, state_hash, ..
                }) => {
                    self.sim.step(&Turn::new(tick, &self.cursor.row));
                    verified.ticks = verified.ticks.saturating_add(1);
                    if let Some(recorded) = state_hash {
                        let replayed = self.state_hash();
                        if replayed != recorded {
                            return Err(Mismatch::State {
                                tick,
                                recorded,
                                replayed,
                            });
                        }
                        verified.hashes = verified.hashes.saturating_add(1);
                    }
                }
                Ok(Item::Keyframe { snapshot, .. }) => {
                    let tick = self.next();
                    let replayed = self.state_hash();
                    let snapshot =
                        S::Snapshot::read(snapshot).ok_or(Mismatch::Keyframe { tick })?;
                    self.sim.save(&mut played);
                    self.sim.load(&snapshot);
                    let recorded = self.state_hash();
                    self.sim.load(&played);
                    if replayed != recorded {
                        return Err(Mismatch::Keyframe { tick });
                    }
                    verified.keyframes = verified.keyframes.saturating_add(1);
                }
                Ok(Item::Seal(_)) => {}
                Ok(Item::End(_)) | Err(_) => return Ok(verified),
            }
        }
    }
}

/// What [`ReplayPlayer::verify`] compared and found equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Ticks played.
    pub ticks: u32,
    /// State hashes. If 0, states were not verified.
    pub hashes: u32,
    /// Keyframes.
    pub keyframes: u32,
}

/// A mismatch between game and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The state after `tick` has another hash than recorded.
    State {
        /// First tick with a different hash.
        tick: Tick,
        /// Hash in the file.
        recorded: u64,
        /// Hash of the played state.
        replayed: u64,
    },
    /// The keyframe before `tick` is another state, or unreadable.
    Keyframe {
        /// First tick after it.
        tick: Tick,
    },
}

/// The first tick in which two replays differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// They are of different matches, builds or seeds.
    Match,
    /// Inputs or origins of `tick` differ.
    Inputs {
        /// First such tick.
        tick: Tick,
    },
    /// Inputs are equal up to `tick`, but the states after it have different hashes: two machines
    /// computed different results.
    State {
        /// First such tick of those with a hash in both.
        tick: Tick,
    },
    /// All is equal up to `tick`, where one ends.
    Length {
        /// First tick that only one has.
        tick: Tick,
    },
}

/// Compares inputs and state hashes of two replays, and returns their first difference; `None` if
/// they record the same match. Work is linear in the length of both.
#[must_use]
pub fn first_difference(one: &ReplayReader<'_>, other: &ReplayReader<'_>) -> Option<Difference> {
    let match_part = |replay: &ReplayReader<'_>| {
        let mut bytes = Vec::new();
        replay.header().write_match(&mut bytes);
        bytes
    };
    if match_part(one) != match_part(other) {
        return Some(Difference::Match);
    }
    let (mut ones, mut others) = (one.cursor(), other.cursor());
    loop {
        let tick = ones.next;
        match (next_tick(&mut ones), next_tick(&mut others)) {
            (Some((bundle, hash)), Some((other_bundle, other_hash))) => {
                if bundle != other_bundle {
                    return Some(Difference::Inputs { tick });
                }
                if hash
                    .zip(other_hash)
                    .is_some_and(|(one, other)| one != other)
                {
                    return Some(Difference::State { tick });
                }
            }
            (None, None) => return None,
            (Some(_), None) | (None, Some(_)) => return Some(Difference::Length { tick }),
        }
    }
}

fn next_tick<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a [u8], Option<u64>)> {
    loop {
        if let Item::Tick {
            bundle, state_hash, ..
        } = cursor.next_item().ok()?
        {
            return Some((bundle, state_hash));
        }
    }
}
