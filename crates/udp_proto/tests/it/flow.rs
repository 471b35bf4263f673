//! Rates, windows and their effect on a bottleneck.

#![expect(
    clippy::print_stdout,
    reason = "figures that docs/protocol.md states, for whoever runs it with --nocapture"
)]

mod bottleneck;
mod lane;
mod outage;
mod rates;
mod reliable;
mod size;
