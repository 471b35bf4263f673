//! Cryptography for simulations: a seeded provider, and wrappers that observe any provider.
//!
//! All implement the public trait [`crypto::Provider`].
//!
//! - [`SimProvider`]: real cryptography with seeded randomness. Equal seeds give equal bytes.
//! - [`Counting`]: counts calls by kind, to assert for example that no elliptic-curve call was
//!   made.
//! - [`Recording`]: records each key and nonce used for sealing, to assert that none was reused.
//!
//! Wrappers nest: `Counting<Recording<SimProvider>>` is a provider.

mod counting;
mod recording;
mod sim;

pub use counting::{CallCounts, Counting, CountingAead, Counts};
pub use recording::{KeyFingerprint, NonceLog, NonceReuse, Recording, RecordingAead};
pub use sim::{SimAead, SimEphemeral, SimProvider, SimSigningKey};
