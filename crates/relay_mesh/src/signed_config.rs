//! Signed configuration: a document of games, members and admin keys, signed by admins.
//!
//! A [`Document`] is JSON text that an operator writes. An [`Envelope`] is that text, byte for
//! byte, with the admins' signatures. A [`Holder`] keeps the document in force: it accepts a newer
//! one if enough admins of the one in force signed it, never an older one, and returns the changes.
//! This module uses no clock, file or socket.
//!
//! **Signatures.** ECDSA P-256 with SHA-256, r and s of 32 bytes. Signed bytes:
//!
//! ```text
//! "tw1 mesh config" 15 ‖ document
//! ```
//!
//! A document is never re-encoded. Documents are identified by network, keys and version only: an
//! ECDSA signature can be altered without the key, so none serves as an identity.
//!
//! **Order.** Changes of the admin keys count before versions: no document signed by a key outlives
//! the
//! change that retires the key ([`Holder`]).
//!
//! **Distribution.** Nodes advertise the version they hold to neighbours, and fetch a newer one
//! from any
//! of them, in pieces ([`ConfigMessage`], [`Spread`]).
//!
//! **Order of checks.** Signatures are checked before the text: the JSON parser sees only bytes
//! that
//! enough admins signed.

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
