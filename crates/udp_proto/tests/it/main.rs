//! Public API only: endpoints in virtual worlds.

#![cfg(test)]

mod alloc;
mod channel_alloc;
mod channels;
mod contract;
mod exchange;
mod flood;
mod harness;
mod hostile;
mod peer;
mod token;
mod world;
