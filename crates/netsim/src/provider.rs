//! Cryptography for simulations: a provider that a seed replays, and wrappers that watch any
//! provider.
//!
//! All three implement the public trait [`crypto::Provider`]; nothing in `crypto` knows of them.
//!
//! - [`SimProvider`]: real cryptography, drawn from a seed. One seed replays a run byte for byte.
//! - [`Counting`]: counts each kind of call, so that a test can say "no elliptic-curve call".
//! - [`Recording`]: keeps every pair of key and nonce that was sealed under, so that a test can say
//!   "none came twice".
//!
//! Wrappers nest: `Counting<Recording<SimProvider>>` is a provider.

mod counting;
mod recording;
mod sim;

pub use counting::{CallCounts, Counting, CountingAead, Counts};
pub use recording::{KeyFingerprint, NonceLog, NonceReuse, Recording, RecordingAead};
pub use sim::{SimAead, SimEphemeral, SimProvider, SimSigningKey};
