//! What the super-admin says: a signed document of games, members and admin keys.
//!
//! A [`Document`] is JSON text that an operator writes. An [`Envelope`] is that text, byte for byte,
//! with the signatures of admins. A [`Holder`] keeps the one in force: it takes a newer one where
//! enough admins of the one in force signed it, never an older one, and says what changed. Nothing
//! here has a clock, a file or a socket.
//!
//! **Signatures.** ECDSA P-256 with SHA-256, r and s of 32 bytes. Signed bytes:
//!
//! ```text
//! "tw1 mesh config" 15 ‖ document
//! ```
//!
//! The document is never written again from what was read of it. Documents are told apart by
//! network, keys and version only: an ECDSA signature can be changed without the key, so nothing is named
//! or deduplicated by one.
//!
//! **Order.** Changes of the admin keys count before versions: no key signs a document that outlasts the
//! change that retires the key ([`Holder`]).
//!
//! **Spread.** Nodes tell neighbours the version they hold, and fetch what is newer from any of them,
//! in pieces ([`ConfigMessage`], [`Spread`]).
//!
//! **Order of checks.** Signatures come before the text: a JSON parser meets only bytes that enough
//! admins signed.

mod admin_keys;
mod chain;
mod document;
mod envelope;
mod fault;
mod game_rule;
mod holder;
mod message;
mod outcome;
mod puregamer;
mod spread;
mod text;

#[cfg(test)]
mod fixture;

pub use self::admin_keys::{AdminKeys, AdminKeysError};
pub use self::chain::{BUNDLE_LEN_MAX, LINKS_MAX, STORED_LEN_MAX};
pub use self::chain::{HeldVersion, Minimum, VERSION_JUMP_MAX};
pub use self::document::LeftOut;
pub use self::document::{AfterEnd, DOCUMENT_LEN_MAX, Document};
pub use self::envelope::{ENVELOPE_LEN_MAX, Envelope, EnvelopeError, SIGNATURES_MAX, SignError};
pub use self::fault::{DocumentError, Fault, Place};
pub use self::game_rule::{GameRule, NodeList, Protocol};
pub use self::game_rule::{ProxyExtra, ProxyRule, ProxyTiming, ProxyVersion};
pub use self::holder::{Holder, RestoreError};
pub use self::message::{ConfigMessage, Piece};
pub use self::outcome::Difference;
pub use self::outcome::{Accepted, HolderStats, Offered, Refused, Validity};
pub use self::puregamer::{Import, ImportError, NodeFile, PeerAddress};
pub use self::spread::{Judged, Spread, Taken};

#[cfg(test)]
mod tests;
