//! The datagrams: pure functions between bytes and meaning.
//!
//! Byte 0 is the kind. Numbers are big-endian; bit fields start at the highest bit. What receivers make
//! of them, in what windows and how often they go out stands in `docs/lockstep-protocol.md`.
//!
//! | kind | direction | message |
//! |---|---|---|
//! | `0x01` | up | [`Up::Ready`]: `version8`, `next32`, the first tick that is lacking |
//! | `0x02` | up | [`Up::Report`]: see [`Report`] |
//! | `0x09` | up | [`Up::Report`] of a client that loaded a snapshot: `id8` of its transfer, and the rest |
//! | `0x03` | up | [`Up::Leave`]: `reason8`, 0 quit, 1 finished, 4 refused |
//! | `0x05` | up | [`ChunkAck`]: which chunks of a snapshot arrived |
//! | `0x06` | up | [`Up::Answer`]: see [`Answer`] |
//! | `0x0a` | up | [`Chunk`]: a piece of a snapshot |
//! | `0x0b` | up | [`Up::SnapshotAsk`] of a spectator, for those it serves; the kind alone |
//! | `0x81` | down | [`Down::Welcome`]: see [`Welcome`] |
//! | `0x82` | down | [`Down::Turns`]: see [`Turns`] |
//! | `0x83` | down | [`Down::Turns`] that ask for state hashes |
//! | `0x84` | down | [`Down::Bye`]: `reason8`, see [`CloseReason`](crate::CloseReason::code) |
//! | `0x85` | down | [`Down::Early`]: see [`EarlyInputs`]; then a message of kind `0x82` or `0x83` |
//! | `0x87` | down | [`Chunk`]: a piece of a snapshot |
//! | `0x88` | down | [`Down::Question`]: see [`Question`] |
//! | `0x8b` | down | [`Down::SnapshotAsk`]: `id8`, the transfer that shall bring it |
//! | `0x8d` | down | [`Turns::stretch`]`16`, 1 to 1,000; then a message of kind `0x82`, `0x83` or `0x85` |
//! | `0x8c` | down | [`ChunkAck`]: which chunks of a snapshot arrived |
//! | `0x40` | mesh | [`MeshMessage::Hello`]: see [`Hello`] |
//! | `0x41` | mesh | [`MeshMessage::Play`]: see [`Play`] |
//! | `0x42` | mesh | [`MeshMessage::Leave`]: nothing more |
//! | `0x43` | mesh | [`MeshMessage::Statement`]: see [`Statement`] |
//! | `0x44` | mesh | [`MeshMessage::Decision`]: see [`Decision`] |
//! | `0x45` | mesh | [`MeshMessage::Ask`]: `seat8`, `tick32` |
//! | `0x46` | mesh | [`MeshMessage::Forward`]: `seat8`, `tick32`, bundles of one seat |
//! | `0x47` | mesh | [`MeshMessage::Committed`]: see [`Commitment`] |
//! | `0x50` | players | [`HostedMessage::Presence`]: see [`Presence`] |
//! | `0x51` | players | [`HostedMessage::Leave`]: nothing more |
//! | `0x52` | players | [`HostedMessage::Statement`]: `epoch8`, the rest as [`Statement`] |
//! | `0x53` | players | [`HostedMessage::Decision`]: `epoch8`, the rest as [`Decision`] |
//! | `0x54` | players | [`HostedMessage::Ask`]: `tick32` |
//! | `0x55` | players | [`HostedMessage::Forward`]: `tick32`, bundles |
//!
//! Chunks and their acknowledgements are read by [`decode_chunk`] and [`decode_chunk_ack`], since
//! they look alike both ways; [`decode_up`] and [`decode_down`] refuse them.
//!
//! Reserved, and refused today: `0x04` order, `0x07` commit, `0x08` reveal; `0x86` order
//! acknowledgement, `0x8a` signed chain head; `0x48` to `0x4f` mesh peers; `0x56` to `0x5f` hosted
//! matches; welcome modes past 2; the extension bit of a bundle.

mod bisect;
mod chunk;
mod down;
mod hosted;
mod mesh;
mod up;

use crate::bits::Malformed;

pub use bisect::{
    ANSWER_LEN_MAX, Answer, BISECT_SECTIONS_LEN_MAX, BISECT_TICKS_MAX, Question, SectionHashes,
    TickHashes,
};
pub(crate) use bisect::{
    bisect_ticks_max, write_acknowledged, write_question, write_sections, write_ticks,
};
pub use chunk::{
    AHEAD_MAX, CHUNK_HEAD_LEN, Chunk, ChunkAck, Direction, chunk_count, chunk_len, decode_chunk,
    decode_chunk_ack,
};
pub(crate) use chunk::{ack_of, chunk_offset, write_chunk, write_chunk_ack};
pub use down::{
    Bundles, Down, EarlyInputs, Mode, PERIOD_NANOS, STRETCH_MAX, Turns, Welcome, decode_down,
};
pub(crate) use down::{
    EarlyWriter, INPUT_AHEAD_MAX, decode_down_knowing, write_bye, write_early_head,
    write_snapshot_ask, write_stretch, write_turns_head, write_welcome,
};
pub use hosted::{FORWARD_HEAD_LEN, HostedMessage, Presence, decode_hosted};
pub(crate) use hosted::{
    write_hosted_ask, write_hosted_decision, write_hosted_forward_head, write_hosted_leave,
    write_hosted_statement, write_presence,
};
pub use mesh::{
    COMMITTED_HEAD_LEN, COMMITTED_SALT_LEN, Commitment, Decision, Hello, LEAD_UNKNOWN,
    MESH_DELAY_MAX, MESH_SEATS_MAX, MatchParameters, MeshMessage, PLAY_HEAD_LEN_MAX, Play,
    PlayHead, QUIET, SeatBundles, SeatHashes, Seats, Statement, Ticks, bit, decode_mesh,
};
pub(crate) use mesh::{
    decode_known_play, pick_seat, play_bytes, seats_in, take_lowest, write_ask,
    write_committed_head, write_decision, write_forward_head, write_hello, write_mesh_leave,
    write_play_head, write_statement,
};
pub use up::{HASHES_MAX, HashRun, INPUTS_MAX, InputRun, Report, Up, decode_up};
pub(crate) use up::{
    HashSlice, ReportHead, decode_bare_report, fitting_inputs, write_leave, write_ready,
    write_report, write_snapshot_request,
};

/// Version of the format; a side that receives another one refuses it.
pub const VERSION: u8 = 2;

/// Longest header before the bundles of a [`Turns`] message.
pub const TURNS_HEAD_LEN_MAX: usize = 8;

pub(crate) const STRETCH_LEN: usize = 3;

const READY: u8 = 0x01;
const REPORT: u8 = 0x02;
const REPORT_LOADED: u8 = 0x09;
const LEAVE: u8 = 0x03;
const ANSWER: u8 = 0x06;
const SNAPSHOT_REQUEST: u8 = 0x0b;
const WELCOME: u8 = 0x81;
const TURNS: u8 = 0x82;
const TURNS_ASKING: u8 = 0x83;
const BYE: u8 = 0x84;
const MESH_HELLO: u8 = 0x40;
const MESH_PLAY: u8 = 0x41;
const MESH_LEAVE: u8 = 0x42;
const MESH_STATEMENT: u8 = 0x43;
const MESH_DECISION: u8 = 0x44;
const MESH_ASK: u8 = 0x45;
const MESH_FORWARD: u8 = 0x46;
const MESH_COMMITTED: u8 = 0x47;
const HOSTED_PRESENCE: u8 = 0x50;
const HOSTED_LEAVE: u8 = 0x51;
const HOSTED_STATEMENT: u8 = 0x52;
const HOSTED_DECISION: u8 = 0x53;
const HOSTED_ASK: u8 = 0x54;
const HOSTED_FORWARD: u8 = 0x55;
const EARLY: u8 = 0x85;
const STRETCHED: u8 = 0x8d;
const SNAPSHOT_ASK: u8 = 0x8b;
const QUESTION: u8 = 0x88;

/// Why a datagram is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// It has no first byte, or ends before its fields do.
    Truncated,
    /// Its kind is not known to this version.
    UnknownKind(u8),
    /// It is of another version of the format.
    Version(u8),
    /// A field has a value that no sender writes.
    Malformed,
}

wire::error_text! { DecodeError {
    Self::Truncated => "datagram ends before its fields do",
    Self::UnknownKind(kind) => "unknown message kind {kind:#04x}",
    Self::Version(version) => "format version {version} where {VERSION} is spoken",
    Self::Malformed => "a field has a value that no sender writes",
}}

#[expect(clippy::fn_params_excessive_bools, reason = "it checks a bool")]
pub(crate) const fn require(is_valid: bool) -> Result<(), DecodeError> {
    if is_valid {
        Ok(())
    } else {
        Err(DecodeError::Malformed)
    }
}

impl From<wire::Truncated> for DecodeError {
    fn from(_: wire::Truncated) -> Self {
        Self::Truncated
    }
}

impl From<Malformed> for DecodeError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

#[cfg(test)]
mod tests;
