#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod allocator;
pub mod command;
pub mod control;
pub mod edge;
pub mod exit;
pub mod hex;
pub mod http;
pub mod hub_api;
mod hub_client;
pub mod link;
mod log_limit;
mod matchmaking;
pub mod relay;
pub mod role;
mod signals;
mod store_copy;
pub mod trust;
