//! Public API only: endpoints in virtual worlds.

#![cfg(test)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for the one event that it is about"
)]

mod alloc;
mod attempts;
mod authenticated;
mod blocking;
mod certificate;
mod channel_alloc;
mod channels;
mod choices;
mod closing;
#[cfg(feature = "postcard")]
mod codec;
mod contract;
mod crowd;
mod deadline;
mod determinism;
mod direct;
mod early_loss;
mod elders;
mod exchange;
mod fairness;
mod flood;
mod flow;
mod harness;
mod hostile;
mod in_vain;
mod key_limits;
mod key_rogue;
mod key_update;
mod large;
mod limits;
mod link;
mod listen;
mod meddler;
mod mpgs;
mod nonces;
mod one_way;
mod outcomes;
mod pairs;
mod peer;
mod peer_rogue;
mod progress;
mod records;
mod refusals;
mod reset;
mod resident;
mod resting;
mod roaming;
mod rogue;
mod round_trip;
mod schedules;
mod stall;
mod stats;
mod storm;
mod timeouts;
mod timers;
mod token;
mod truth;
mod unproved;
mod vectors;
mod versions;
mod victim;
mod world;
