//! Building blocks for game servers, independent of the hub and of each other.
//!
//! - [`PlayerSessions`](session::PlayerSessions): login, timers, write-back of changed state, request
//!   limit, kick and logout of each player.
//! - [`TimedStates`](timed_states::TimedStates): a state machine for many players, with states that
//!   end at a deadline.
//! - [`Leaderboard`](leaderboard::Leaderboard): ranks among a million players.
//! - [`ElapsedTimeCheck`](elapsed_time::ElapsedTimeCheck): detects a client with a fast clock.
//!
//! All take the time as an argument, and none has a thread, a clock or a socket.

pub mod elapsed_time;
pub mod leaderboard;
pub mod session;
pub mod timed_states;
