//! Benchmarks, each with a floor: the minimum of the work, which no implementation can avoid.
//!
//! - `cargo bench --bench ratio` prints the CPU time of each case and of its floor, and their
//!   ratio,
//!   from interleaved rounds;
//! - `cargo bench --bench spectators` prints the cost of a spectator to a lockstep server per tick;
//! - `cargo bench --bench udp_proto` runs the same cases under criterion;
//! - `cargo bench --bench players` runs matches of eight over loopback, compared with bare socket
//!   loops;
//! - `cargo bench --bench rollback` and `replay` time the sync test, and the verification of a
//!   file;
//! - `cargo bench --bench routes` times the routes of a mesh of 1,000 nodes;
//! - `cargo bench --bench dwell` simulates waits and spreads of queues with fixed ticks and with an adaptive dwell;
//! - `cargo bench --bench matching` times a pass over a full queue of the matchmaker, compared with a scan;
//! - `cargo bench --bench broadcast` sends a message to 1,000 clients over TCP and TLS, compared
//!   with bare
//!   write loops.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a bench whose sessions do not work must stop, not measure something else"
)]

pub mod broadcast;
pub mod flood;
pub mod floor;
pub mod handshake;
pub mod matching;
pub mod measure;
pub mod pair;
pub mod players;
pub mod relay;
pub mod spectator_bench;
