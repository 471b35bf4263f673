//! Tunnels: two ends in virtual time, over links that lose, duplicate and reorder.

mod bounds;
mod ends;
mod pair;
mod transfer;
