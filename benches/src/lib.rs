//! What is measured, and the bare floor beside each: the part of the work that nobody can save.
//!
//! - `cargo bench --bench ratio` prints the CPU time of each case, of its floor, and their ratio,
//!   from interleaved rounds;
//! - `cargo bench --bench spectators` prints what a spectator costs a lockstep server in a tick;
//! - `cargo bench --bench udp_proto` has criterion time the same cases;
//! - `cargo bench --bench players` serves matches of eight over loopback, beside bare loops on sockets;
//! - `cargo bench --bench rollback` and `replay` time the sync test, and checking a file;
//! - `cargo bench --bench routes` times the routes of a mesh of 1,000 nodes;
//! - `cargo bench --bench broadcast` sends a message to 1,000 clients over TCP and TLS, beside bare loops
//!   of writes.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a bench whose sessions do not work must stop, not measure something else"
)]

pub mod broadcast;
pub mod flood;
pub mod floor;
pub mod hall;
pub mod handshake;
pub mod measure;
pub mod pair;
pub mod players;
pub mod relay;
