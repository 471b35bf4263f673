#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod command;
mod config;
mod error;
mod event;
mod lease;
mod match_table;
mod matchmaker;
mod mint;
mod outbox;
mod pool;
pub mod record;
mod rule;
mod ticket;
mod ticket_table;
mod timer;

pub use command::{Command, Outcome};
pub use config::{Config, Duplicate, Game, TokenLifetime};
pub use error::{CancelError, ReissueError, SubmitError};
pub use event::{DownReason, Event, MatchEnd};
pub use lease::ServerLink;
pub use match_table::Seated;
pub use matchmaker::{Caller, Load, Matchmaker, Stats};
pub use pool::Slot;
pub use rule::{Rule, SEATS_MAX, TeamSize, TeamSizeError};
pub use ticket::{
    Assignment, Ending, FailReason, GrantText, IdempotencyKey, Receipt, ResumeKey, TicketId,
    TicketIdError, TicketRequest, TicketState,
};
