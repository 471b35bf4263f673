//! The same messages through the hub, NATS and Redis; each server is a separate process on loopback.
//!
//! Each case runs on all stacks in turn, round by round, with fresh folders. A stack is a set of
//! async functions that run one case for about a second. Payloads are 128 bytes.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "a measuring program ends at the first fault"
)]

pub mod floor;
pub mod nats;
pub mod process;
pub mod redis_stack;
pub mod sample;
pub mod tickwire;

/// Bytes of a payload.
pub const PAYLOAD: usize = 128;

/// Mailboxes that durable mail is spread over.
pub const MAILBOXES: u64 = 8_192;

/// Mails in the mailbox that is read.
pub const MAILBOX_MAILS: usize = 200;

/// Connections of receivers in a fan-out.
pub const FAN_LINKS: usize = 10;

/// Subscriptions of one connection.
pub const FAN_SUBSCRIPTIONS: usize = 10;

/// Messages that a publisher sends at once.
pub const FAN_BATCH: usize = 32;

/// Batches that are published but not delivered to all.
pub const FAN_WINDOW: usize = 2;

/// What the processes and the functions of a stack return.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
