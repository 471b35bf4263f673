//! Integration tests: meshes in virtual time.

#![cfg(test)]

mod addresses;
mod agreed_mode;
mod alloc;
mod beside;
mod carrier;
mod chance;
mod contract;
mod crowd;
mod detour;
mod detour_attacks;
mod drain;
mod echo;
mod failover;
mod faults;
mod flood;
mod games;
mod greedy;
mod grey_failure;
mod harness;
mod here;
mod hog;
mod hostile;
mod hundreds;
mod junk;
mod kept_places;
mod liar;
mod limits;
mod link_failures;
mod losses;
mod mass;
mod member;
mod memo;
mod moves;
mod outage;
#[cfg(feature = "tcp")]
mod places;
mod play;
mod player;
mod process;
mod proxied;
mod proxy_header;
mod release;
mod repeated;
mod revoked;
mod roamer;
mod rumour;
mod shards;
mod signed;
mod spread;
mod stall;
#[cfg(feature = "tcp")]
mod streams;
mod survey;
mod swarm;
mod tag_only;
mod told;
mod toy;
mod trouble;
mod trunk;
#[cfg(feature = "tcp")]
mod tunnel;
mod unseen;
mod unsettled;
mod weather;
mod world;
