//! What the application chooses for a mesh.

use core::num::NonZeroU8;
use core::time::Duration;

use crate::commitment::CommitSecret;
use crate::config::{Repair, SavePolicy, TickRate};

/// How a [`MeshPeer`](crate::MeshPeer) plays.
///
/// `seats`, `tick_rate`, `hash_interval`, `content` and whether there is a `commit` must be the same
/// on all peers, who compare them before ticks begin; so must the match id and the width of inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshConfig {
    /// Seats of the match, 2 to 16; 2. Datagrams, work and memory grow with it.
    pub seats: u16,
    /// Ticks a second; 60.
    pub tick_rate: TickRate,
    /// Ticks between reading an input and the tick it is for, 0 to 60; 6. Without a window it must
    /// cover the way to the slowest peer and its jitter, or ticks stall; each more is a tick of
    /// latency. May differ from peer to peer, and change while ticks run.
    pub input_delay: u8,
    /// Ticks that the game may go ahead of what is confirmed, with predicted inputs, 0 to 32; 0,
    /// which is lockstep.
    pub window: u8,
    /// Which states a game with a window saves; [`SavePolicy::Auto`].
    pub save: SavePolicy,
    /// Ticks in each datagram; 4.
    pub repair: Repair,
    /// Ticks from one state hash to the next; 1. Each costs 4 bytes to each other peer.
    pub hash_interval: NonZeroU8,
    /// Longest datagram, in bytes; 1,100, which leaves room for the transport's own within the
    /// 1,200 that every path carries (RFC 9000, section 14).
    pub datagram_len_max: u16,
    /// Bytes a second that a peer behind gets above its share; 36,000.
    pub catch_up_rate: u32,
    /// Bytes that a peer behind may get at once; 16,000.
    pub catch_up_burst: u32,
    /// Silence after which the others play on without a peer; 2 s. They wait until then.
    pub patience: Duration,
    /// Has nobody see an input for a tick before having committed to an own one, where there is a
    /// secret; `None`. Else who sends last sees first.
    ///
    /// Everybody sends heads of a hash chain over the inputs it stamped, and shows the inputs once the
    /// others' heads are over the same ticks (the lockstep protocol of Baughman and Levine, "Cheat-proof
    /// playout for centralized and distributed online games", INFOCOM 2001, without its turns). Inputs
    /// that are not what was committed to never count, and who shows them is given up:
    /// [`MeshEvent::Breach`](crate::MeshEvent::Breach).
    ///
    /// Costs one more way of latency (the input delay covers the way twice, two ticks, and one for each
    /// datagram lost in a row), 21 bytes a datagram and 8 for each tick in it, a SHA-256 for each input
    /// of anybody and two for each own one, and 25 kB of memory, with 13 kB for each other seat.
    pub commit: Option<CommitSecret>,
    /// What else must be the same on all peers, as a hash: the build, the level; 0.
    pub content: u64,
}

impl Default for MeshConfig {
    fn default() -> Self {
        Self {
            seats: 2,
            tick_rate: TickRate::DEFAULT,
            input_delay: 6,
            window: 0,
            save: SavePolicy::Auto,
            repair: Repair::DEFAULT,
            hash_interval: NonZeroU8::MIN,
            datagram_len_max: 1_100,
            catch_up_rate: 36_000,
            catch_up_burst: 16_000,
            patience: Duration::from_secs(2),
            commit: None,
            content: 0,
        }
    }
}
