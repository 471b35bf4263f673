//! The report of a reliable server.

use std::fmt;

use crate::handle::End;

/// How a reliable server ended, with its message counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Messages completely written to sockets, counted per recipient.
    pub flushed: u64,
    /// Messages not written before the recipient left or the server ended, counted per recipient.
    /// With `flushed`, this is the number of all messages sent.
    pub dropped: u64,
    /// Threads started.
    pub started: usize,
    /// Threads joined; equal to `started` unless a thread blocks.
    pub joined: usize,
    /// Threads that ended neither in order nor at the deadline, with their ends.
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
