//! Connections whose driver takes next to nothing: as many may hold their windows as fit into a bound.

use core::cmp::Reverse;
use core::time::Duration;

use wire::Instant;

use super::Tunnel;
use super::event::ConnEnd;
use super::open_record::RESET;

/// How far a connection's driver takes what the far end sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uptake {
    /// Bytes since the last look.
    taken: usize,
    /// Looks in a row that found bytes waiting and few taken.
    looks: u32,
}

impl Uptake {
    /// Takes note of bytes that the driver consumed.
    pub(super) const fn on_consumed(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
    }

    /// Looks at a connection of which `waiting` bytes wait for the driver.
    fn look(&mut self, waiting: usize) {
        let is_slow = core::mem::take(&mut self.taken) < TAKEN_MIN;
        self.looks = if waiting > 0 && is_slow {
            self.looks.saturating_add(1)
        } else {
            0
        };
    }

    const fn is_stalled(self) -> bool {
        self.looks >= LOOKS
    }
}

impl Tunnel {
    /// Sets the time of the next look, if there are connections.
    pub(super) fn plan_look(&mut self, now: Instant) {
        if self.conns.is_empty() {
            self.look_at = None;
        } else if self.look_at.is_none() {
            self.look_at = Some(now + LOOK_GAP);
        }
    }

    /// Resets the longest stalled connections beyond [`STALLED_MAX`].
    pub(super) fn reset_stalled(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.look_at = None;
        let mut stalled = Vec::new();
        for (number, conn) in &mut self.conns {
            conn.uptake.look(conn.chunk.len());
            if conn.uptake.is_stalled() {
                stalled.push((Reverse(conn.uptake.looks), *number));
            }
        }
        let over = stalled.len().saturating_sub(STALLED_MAX);
        stalled.sort_unstable();
        for (_, number) in stalled.into_iter().take(over) {
            if let Some(stream) = self.conns.get(&number).and_then(|conn| conn.stream) {
                self.quic.reset(stream, RESET);
            }
            self.stats.stalled = self.stats.stalled.saturating_add(1);
            self.end(number, ConnEnd::Reset);
        }
    }
}

/// Time between two looks.
const LOOK_GAP: Duration = Duration::from_secs(2);
/// Bytes that a driver takes within it at least: 32 kbit/s.
const TAKEN_MIN: usize = 8 << 10;
/// A connection is stalled after so many looks in a row: 4 to 6 s.
const LOOKS: u32 = 3;
/// Stalled connections of one tunnel: they hold 66 MiB at most, each [`WINDOW`](super::WINDOW) and a chunk.
const STALLED_MAX: usize = 128;
