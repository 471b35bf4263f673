//! Recording of replays.

use core::marker::PhantomData;

use wire::MatchId;

use super::format::{self, BODY_LEN_MAX, Kind, Layout, SEAL_LEN_MAX};
use super::{ChainHead, RecordError, ReplayConfigError, ReplayHeader};
use crate::bundle::{self, Shape};
use crate::input::{Input, Row, Turn, encode_into};
use crate::sim::SnapshotBytes;
use crate::tick::{Tick, TickRate};

/// Most ticks of one record: half a second at 60 Hz, which a crash may lose. More would save
/// little: a record has 9 bytes of overhead.
const RECORD_TICKS: u32 = 32;

/// Length at which a record is written regardless of its ticks; bounds memory.
const RECORD_LEN: usize = 4_096;

/// Longest recorded bundle; 64 KiB. A server's bundles fit one datagram.
const BUNDLE_LEN_MAX: usize = 65_535;

/// Configuration of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayConfig {
    /// The match; it keys state hashes.
    pub match_id: MatchId,
    /// Seats of the match.
    pub seats: u16,
    /// Ticks per second; 60.
    pub tick_rate: TickRate,
    /// Game and build, at most 64 bytes; empty. Another build may play the replay differently.
    pub game: Vec<u8>,
    /// Initial state of the match, at most 64 bytes; empty.
    pub seed: Vec<u8>,
    /// Ticks between state hashes; 8, which costs one byte per tick and locates a difference to 133
    /// ms at 60 Hz. 0 for none, if the recorder does not simulate.
    pub hash_interval: u8,
    /// Ticks between keyframes; 0 for none. It bounds the steps of a seek.
    pub keyframe_interval: u32,
}

impl ReplayConfig {
    /// Creates a configuration that records inputs, and a state hash every 8 ticks.
    #[must_use]
    pub const fn new(match_id: MatchId, seats: u16) -> Self {
        Self {
            match_id,
            seats,
            tick_rate: TickRate::DEFAULT,
            game: Vec::new(),
            seed: Vec::new(),
            hash_interval: 8,
            keyframe_interval: 0,
        }
    }

    fn header<I: Input>(self) -> Result<ReplayHeader, ReplayConfigError> {
        let shape = Shape {
            seats: self.seats,
            width: I::WIDTH,
        };
        if self.seats == 0 {
            return Err(ReplayConfigError::NoSeats);
        }
        if shape.bundle_len_max() > BUNDLE_LEN_MAX {
            return Err(ReplayConfigError::TooLarge);
        }
        let longest = self.game.len().max(self.seed.len());
        if longest > ReplayHeader::NAME_LEN_MAX {
            return Err(ReplayConfigError::TooLong);
        }
        let mut neutral = Vec::new();
        encode_into(&I::default(), &mut neutral);
        Ok(ReplayHeader {
            match_id: self.match_id,
            shape,
            period_nanos: self.tick_rate.period_nanos(),
            game: self.game,
            seed: self.seed,
            neutral,
            hash_interval: self.hash_interval,
            keyframe_interval: self.keyframe_interval,
        })
    }
}

/// Records a match as its ticks close: turns of a [`ClientPeer`](crate::ClientPeer) or a
/// [`MatchServer`](crate::MatchServer), or confirmed ones of a rollback game. Append the bytes in
/// `out` to the file; `out` may be cleared after each call. In the steady state only `out` is
/// allocated.
///
/// All recorders of a match with the same [`ReplayConfig::game`] and `seed` get the same
/// [`head`](Self::head), whichever hashes and keyframes each keeps.
#[derive(Debug)]
pub struct ReplayWriter<I> {
    layout: Layout,
    row: Row,
    initial: Row,
    pending: Vec<u8>,
    pending_ticks: u32,
    next: Tick,
    /// Tick of the last keyframe; `Tick(0)` if none was.
    keyframe: Tick,
    chain: ChainHead,
    checksum: u32,
    scratch: Vec<u8>,
    input: PhantomData<fn(I)>,
}

impl<I: Input> ReplayWriter<I> {
    /// Begins a file: appends the header to `out`.
    ///
    /// # Errors
    ///
    /// [`ReplayConfigError`], with no change to `out`.
    pub fn new(config: ReplayConfig, out: &mut Vec<u8>) -> Result<Self, ReplayConfigError> {
        let header = config.header::<I>()?;
        let mut match_part = Vec::new();
        header.write_match(&mut match_part);
        let row = header.initial_row();
        let tick_len_max = header
            .shape
            .bundle_len_max()
            .saturating_add(size_of::<u64>());
        Ok(Self {
            layout: header.layout(),
            initial: row.clone(),
            row,
            pending: Vec::with_capacity(RECORD_LEN.saturating_add(tick_len_max)),
            pending_ticks: 0,
            next: Tick(0),
            keyframe: Tick(0),
            chain: ChainHead::new(&match_part),
            checksum: header.write(out),
            scratch: Vec::new(),
            input: PhantomData,
        })
    }

    /// Records the next turn, after the game's step.
    ///
    /// `state_hash` is called every [`ReplayConfig::hash_interval`] ticks and returns the hash of
    /// the state after that step, as for [`ClientPeer::report`](crate::ClientPeer::report).
    ///
    /// # Errors
    ///
    /// [`RecordError`], with no change.
    pub fn turn(
        &mut self,
        turn: &Turn<'_, I>,
        state_hash: impl FnOnce() -> u64,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let tick = turn.tick();
        if tick != self.next || tick >= Tick::LAST {
            return Err(RecordError::OutOfOrder {
                expected: self.next,
            });
        }
        if turn.seat_count() != usize::from(self.layout.shape.seats) {
            return Err(RecordError::Seats);
        }
        if self.needs_keyframe() {
            return Err(RecordError::KeyframeMissing);
        }
        let start = self.pending.len();
        bundle::encode(&self.row, turn.row(), &mut self.pending);
        self.chain
            .absorb(self.pending.get(start..).unwrap_or_default());
        if self.layout.has_hash_at(tick) {
            self.pending.extend_from_slice(&state_hash().to_be_bytes());
        }
        self.row.copy_from(turn.row());
        self.next = tick.plus(1);
        self.pending_ticks = self.pending_ticks.saturating_add(1);
        if self.pending_ticks >= RECORD_TICKS || self.pending.len() >= RECORD_LEN {
            self.flush(out);
        }
        Ok(())
    }

    /// Returns whether [`keyframe`](Self::keyframe) is due before the next turn.
    pub fn needs_keyframe(&self) -> bool {
        self.layout.has_keyframe_at(self.next) && self.keyframe != self.next
    }

    /// Records the state before the next turn, if [`needs_keyframe`](Self::needs_keyframe).
    ///
    /// # Errors
    ///
    /// [`RecordError::OutOfOrder`] if none is due, [`RecordError::TooLong`] past 16 MiB; with no
    /// change.
    pub fn keyframe(
        &mut self,
        snapshot: &impl SnapshotBytes,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        if !self.needs_keyframe() {
            return Err(RecordError::OutOfOrder {
                expected: self.next,
            });
        }
        self.scratch.clear();
        bundle::encode(&self.initial, &self.row, &mut self.scratch);
        snapshot.write(&mut self.scratch);
        if self.scratch.len() > BODY_LEN_MAX {
            return Err(RecordError::TooLong);
        }
        self.flush(out);
        self.checksum = format::write(Kind::Keyframe, &[&self.scratch], self.checksum, out);
        self.keyframe = self.next;
        Ok(())
    }

    /// Records a statement about the chain so far, such as a signature of [`head`](Self::head) and
    /// its key id.
    ///
    /// # Errors
    ///
    /// [`RecordError::TooLong`] past 1,024 bytes, with no change.
    pub fn seal(&mut self, words: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        if words.len() > SEAL_LEN_MAX {
            return Err(RecordError::TooLong);
        }
        self.flush(out);
        self.checksum = format::write(Kind::Seal, &[words], self.checksum, out);
        Ok(())
    }

    /// Writes pending ticks, at most 32; without [`finish`](Self::finish) a match loses no more
    /// than these.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.pending_ticks > 0 {
            self.checksum = format::write(Kind::Ticks, &[&self.pending], self.checksum, out);
            self.pending.clear();
            self.pending_ticks = 0;
        }
    }

    /// Ends the file. A file without this end opens as truncated.
    pub fn finish(mut self, out: &mut Vec<u8>) -> ChainHead {
        self.flush(out);
        let head = self.chain;
        let ticks = head.ticks.to_be_bytes();
        format::write(Kind::End, &[&ticks, &head.digest], self.checksum, out);
        head
    }

    /// Returns the hash over the match and all ticks so far.
    pub const fn head(&self) -> ChainHead {
        self.chain
    }
}
