#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod config;
pub mod matching;
mod matchmaker;
mod mint;
#[cfg(feature = "netcode")]
pub mod netcode;
mod output;
pub mod record;
mod server;
mod table;
mod ticket;
mod timer;

pub use config::{Config, Duplicate, Game, Rule, TeamSize, TeamSizeError, TokenLifetime};
pub use matchmaker::{Load, Matchmaker, Stats};
pub use output::{Caller, Command, DownReason, Event, MatchEnd, Outcome};
pub use record::{SEATS_MAX, Seated};
pub use server::{ServerLink, Slot};
pub use ticket::{
    Assignment, CancelError, Ending, FailReason, GrantText, IdempotencyKey, Receipt, ReissueError,
    ResumeKey, SubmitError, TicketId, TicketIdError, TicketRequest, TicketState,
};
