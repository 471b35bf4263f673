//! Replays: a match in a file, and the proof of its inputs.
//!
//! [`ReplayWriter`] records turns, [`ReplayReader`] checks a file, [`ReplayPlayer`] plays it, seeks to any
//! tick and verifies its states, and [`first_difference`] compares two. A file is a header and
//! records; integers are big-endian, offsets and sizes in bytes.
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 4 | `TWRP` |
//! | 4 | 1 | version, 1 |
//! | 5 | 16 | match id |
//! | 21 | 2 | seats, at least 1 |
//! | 23 | 2 | bits of an input, 1 to 2,048 |
//! | 25 | 4 | length of a tick in nanoseconds, 1,000,000 to 1,000,000,000 |
//! | 29 | 1 + g | length, at most 64, and build of the game |
//! | 30 + g | 1 + s | length, at most 64, and what the match begins from |
//! | 31 + g + s | w | the input of an empty seat, in `ceil(bits / 8)` bytes, spare bits zero |
//! | 31 + g + s + w | 1 | ticks from one state hash to the next; 0 for none |
//! | 32 + g + s + w | 4 | ticks from one keyframe to the next; 0 for none |
//! | 36 + g + s + w | 4 | CRC32C of all before |
//!
//! The first 31 + g + s + w bytes are the *match part*: it is the same in all recordings of a match.
//!
//! | offset | size | record |
//! |---|---|---|
//! | 0 | 1 | kind |
//! | 1 | 3 | length n of the body |
//! | 4 | 1 | exclusive or of the 4 bytes before, inverted |
//! | 5 | n | body |
//! | 5 + n | 4 | CRC32C of the 5 + n bytes before, begun with the checksum before this record instead of 0 |
//!
//! | kind | | body |
//! |---|---|---|
//! | 1 | ticks, 1 or more | for each a [`bundle`](crate::bundle), coded against the tick before it, tick 0 against the input of empty seats and [`Origin::Absent`](crate::Origin::Absent) in every seat; and after it, if the tick is a multiple of the hash interval, the 8 bytes of the [state hash](crate::StateHasher) after its step |
//! | 2 | keyframe, before each tick but 0 that is a multiple of the keyframe interval | a bundle that leads from what tick 0 is coded against to the tick before; then the [state](crate::SnapshotBytes) |
//! | 3 | seal, anywhere | 0 to 1,024 bytes of the application about the chain so far |
//! | 4 | end; the last record | 4 bytes, number of ticks; 32, the head of the chain |
//!
//! The head of the chain before tick 0 is the SHA-256 of a zero byte and the match part; behind each
//! tick, that of a byte 1, the head before and the bundle. State hashes do not enter it: they follow
//! from the inputs. A signature of [`ChainHead::to_bytes`] proves all inputs of the match up to there.
//! The 64-bit hashes that machines compare during a match do not detect tampering; the chain does.
//!
//! A checksum finds faults, not tampering. Trust only what the chain and [`ReplayPlayer::verify`]
//! confirm.
//!
//! ```
//! use lockstep::replay::{ReplayConfig, ReplayLimits, ReplayPlayer, ReplayReader, ReplayWriter};
//! # use lockstep::{Input, MatchServer, Sim, StateHasher, Turn};
//! # use wire::{Instant, MatchId, Seed};
//! # #[derive(Clone, Default)]
//! # struct Game(u64);
//! # impl Sim for Game {
//! #     type Input = u16;
//! #     type Snapshot = Vec<u8>;
//! #     fn step(&mut self, turn: &Turn<'_, u16>) {
//! #         self.0 += 1 + turn.inputs().map(|(_, buttons, _)| u64::from(buttons)).sum::<u64>();
//! #     }
//! #     fn save(&self, into: &mut Vec<u8>) { *into = self.0.to_be_bytes().to_vec(); }
//! #     fn load(&mut self, from: &Vec<u8>) {
//! #         self.0 = u64::from_be_bytes(from.as_slice().try_into().unwrap_or_default());
//! #     }
//! #     fn hash(&self, hasher: &mut StateHasher) { hasher.u64(self.0); }
//! # }
//! # let (now, id) = (Instant::ZERO, MatchId([1; 16]));
//! # let mut server = MatchServer::<u16>::new(lockstep::Config::default(), id, Seed::from_number(1), now)?;
//! # server.start(now)?;
//! # server.handle_timeout(now + core::time::Duration::from_millis(100));
//! // Record: each turn after its step.
//! let mut config = ReplayConfig::new(id, 2);
//! config.keyframe_interval = 600;
//! let (mut file, mut game) = (Vec::new(), Game::default());
//! let mut writer = ReplayWriter::new(config, &mut file)?;
//! while let Some(turn) = server.poll_turn() {
//!     game.step(&turn);
//!     let hash = || {
//!         let mut hasher = StateHasher::new(id);
//!         game.hash(&mut hasher);
//!         hasher.finish()
//!     };
//!     writer.turn(&turn, hash, &mut file)?;
//!     if writer.needs_keyframe() {
//!         let mut snapshot = Vec::new();
//!         game.save(&mut snapshot);
//!         writer.keyframe(&snapshot, &mut file)?;
//!     }
//! }
//! writer.finish(&mut file);
//!
//! // Play: from the start, or from anywhere.
//! let replay = ReplayReader::open(&file, &ReplayLimits::default())?;
//! let mut player = ReplayPlayer::new(&replay, Game::default()).ok_or("another game's")?;
//! let verified = player.verify()?;
//! assert_eq!((verified.ticks, verified.hashes), (6, 1));
//! player.seek(lockstep::Tick(3))?;
//! assert_eq!(player.sim().0, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod format;
mod player;
mod reader;
mod writer;

pub use format::{Damage, RecordError, ReplayConfigError, ReplayError, ReplayHeader, SeekError};
pub use player::{Difference, Mismatch, ReplayPlayer, Verified, first_difference};
pub use reader::{ChainHead, Ending, ReplayLimits, ReplayReader};
pub use writer::{ReplayConfig, ReplayWriter};

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod tests;
