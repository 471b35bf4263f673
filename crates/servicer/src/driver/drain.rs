//! How much one turn takes out of a machine.

/// How many of each kind one turn may still take, so that a machine that always has more keeps
/// the driver from neither its sockets nor its queue, nor one kind another.
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

/// Transmits, commands and events, of each, that one turn takes: an answer for everything that a
/// turn after a pause has received.
const DRAIN_MAX: usize = 16_384;
