#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod allocator;
pub mod command;
pub mod control;
pub mod demo;
pub mod edge;
pub mod exit;
pub mod game;
mod hex;
mod http;
pub mod keyring;
pub mod link;
pub mod relay;
pub mod role;
mod talk;
pub mod trust;
