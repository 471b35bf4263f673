//! Bounds on what one turn takes from a machine.

/// What one turn may still take of each kind. A machine with constant output thus cannot starve
/// sockets, requests or another kind of output.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) transmits: usize,
    pub(super) commands: usize,
    pub(super) events: usize,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            transmits: DRAIN_MAX,
            commands: DRAIN_MAX,
            events: DRAIN_MAX,
        }
    }
}

/// Maximum transmits, commands and events per turn, each: one answer for each datagram of a turn
/// after a pause.
const DRAIN_MAX: usize = 16_384;
