//! Tunnels: two ends in virtual time, over links that lose, double and reorder.

mod bounds;
mod ends;
mod pair;
mod passage;
