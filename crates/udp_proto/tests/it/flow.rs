//! Rates, windows and what they do to a bottleneck.

mod bottleneck;
mod lane;
mod rates;
mod reliable;
