//! Limits of a driver.

use std::num::NonZeroUsize;

use crate::udp::Batching;

/// Limits of a driver's turn and of its queues.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Datagrams taken from all sockets before timers run; 1,024, about 1 ms of work. The result of
    /// one system call is taken completely, so up to 2,047 more may be taken. After a gap of 250 ms
    /// between turns the bound is 16 times as high, so that all datagrams queued during a pause are
    /// handled before timers run.
    pub datagrams_per_turn: NonZeroUsize,
    /// Maximum queued requests; 4,096. The queue is allocated at the start.
    pub requests_max: NonZeroUsize,
    /// Maximum sockets opened at run time, in addition to those given at the start; 1,024, which is
    /// also the default limit of open files on many systems.
    pub opened_max: usize,
    /// Maximum flows per trusted exit; 65,536, one per port of the exit to one socket, about 80
    /// bytes each. If all of them have a session or a header from the last 5 s, datagrams of new
    /// flows are dropped.
    pub exit_flows_max: usize,
    /// Maximum datagrams per system call; by default as many as the system allows. For
    /// measurements, and for systems on which a mode is faulty.
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
