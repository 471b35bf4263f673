//! How a reliable server ended.

use std::fmt;

use crate::end::End;

/// How a reliable server ended, and what became of what it was asked to send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Messages that sockets have taken in full, each addressee counted.
    pub flushed: u64,
    /// Messages that were not taken by the time their addressee left or the server ended, each addressee
    /// counted. With `flushed` this is all that was sent.
    pub dropped: u64,
    /// Threads that were started.
    pub started: usize,
    /// Threads that were joined; as many as started, unless one blocks.
    pub joined: usize,
    /// Threads that ended otherwise than in order or at the deadline, and how.
    pub faults: Vec<(String, End)>,
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flushed,
            dropped,
            started,
            joined,
            faults,
        } = self;
        write!(
            f,
            "{flushed} messages written, {dropped} dropped, {joined} of {started} threads joined"
        )?;
        for (name, end) in faults {
            write!(f, "; {name} {end}")?;
        }
        Ok(())
    }
}
