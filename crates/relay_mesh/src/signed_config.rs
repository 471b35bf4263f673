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
//! the change that retires the key ([`Holder`]).
//!
//! **Distribution.** Nodes advertise the version they hold to neighbours, and fetch a newer one
//! from any of them, in pieces ([`ConfigMessage`], [`Spread`]).
//!
//! **Order of checks.** Signatures are checked before the text: the JSON parser sees only bytes
//! that enough admins signed.

mod document;
mod envelope;
#[cfg(test)]
mod fixture;
mod game_rule;
mod holder;
mod outcome;
mod puregamer;
mod spread;
#[cfg(test)]
mod tests;

pub use self::document::{
    AfterEnd, DOCUMENT_LEN_MAX, Document, DocumentError, Fault, LeftOut, Place,
};
pub use self::envelope::{
    AdminKeys, AdminKeysError, ENVELOPE_LEN_MAX, Envelope, EnvelopeError, SIGNATURES_MAX, SignError,
};
pub use self::game_rule::{GameRule, NodeList, Protocol, ProxyExtra, ProxyRule, ProxyVersion};
pub use self::holder::{
    BUNDLE_LEN_MAX, HeldVersion, Holder, LINKS_MAX, Minimum, RestoreError, STORED_LEN_MAX,
    VERSION_JUMP_MAX,
};
pub use self::outcome::{Accepted, Difference, HolderStats, Offered, Refused, Validity};
pub use self::puregamer::{Import, ImportError, NodeFile, PeerAddress};
pub use self::spread::{ConfigMessage, Judged, Piece, PieceOutcome, Spread};
