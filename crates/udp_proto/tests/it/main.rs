//! Public API only: endpoints in virtual worlds.

#![cfg(test)]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test looks for the one event that it is about"
)]

mod alloc;
mod amplification;
mod attempts;
mod authenticated;
mod blocking;
mod certificate;
mod channel_alloc;
mod channels;
mod closing;
#[cfg(feature = "postcard")]
mod codec;
mod config_choices;
mod contract;
mod deadline;
mod delivery_reports;
mod determinism;
mod direct;
mod early_loss;
mod exchange;
mod fairness;
mod flood;
mod flow;
mod harness;
mod hostile;
mod idle_keys;
mod key_limits;
mod key_rogue;
mod key_update;
mod known_faults;
mod large;
mod limits;
mod link;
mod listen;
mod many_players;
mod migration;
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
mod rogue;
mod round_trip;
mod schedules;
mod stale_retransmits;
mod stall;
mod stats;
mod storm;
mod tampering;
mod timeouts;
mod timers;
mod token;
mod unauthenticated_refusals;
mod vectors;
mod versions;
mod world;
