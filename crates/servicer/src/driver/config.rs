//! Limits of a driver.

use std::num::NonZeroUsize;

use crate::udp::Batching;

/// How much a driver does between two waits, and may be asked at once.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Datagrams taken from all sockets before timers run; 1,024, about 1 ms of work. What one
    /// system call yields is taken whole, so that up to 2,047 more may come. After a gap of
    /// 250 ms between turns the bound is 16 times as high, so that what waited through a pause
    /// is heard before timers judge the silence.
    pub datagrams_per_turn: NonZeroUsize,
    /// Requests that may wait; 4,096. Room for all of them is allocated at the start.
    pub requests_max: NonZeroUsize,
    /// Sockets that may be open at a time beside those that the driver was given; 1,024, which is
    /// also how many files many systems allow a process by default.
    pub opened_max: usize,
    /// Flows of each trusted exit whose players are remembered; 65,536, which is as many ports as it has
    /// towards one socket, some 80 bytes each. Where all have a session, or a header that came less than
    /// 5 s ago, what begins another flow is dropped.
    pub exit_flows_max: usize,
    /// How many datagrams one system call may carry; as many as the system allows. For measurements, and
    /// for systems on which one of the ways is at fault.
    pub batching: Batching,
}

impl Default for Config {
    fn default() -> Self {
        const DATAGRAMS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
        const REQUESTS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
        Self {
            datagrams_per_turn: DATAGRAMS,
            requests_max: REQUESTS,
            opened_max: 1_024,
            exit_flows_max: 65_536,
            batching: Batching::default(),
        }
    }
}
