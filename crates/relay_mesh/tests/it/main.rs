//! Integration tests: meshes in virtual time.

#![cfg(test)]

mod addresses;
mod agreed_mode;
mod alloc;
mod byzantine;
mod carrier;
mod chance;
mod contract;
mod detour;
mod detour_attacks;
mod drain;
mod echo;
mod failover;
mod fault_sequence;
mod faults;
mod flood;
mod games;
mod gossip_faults;
mod greedy;
mod grey_failure;
mod harness;
mod hostile;
mod hundreds;
mod interrupted_setup;
mod junk;
mod limits;
mod link_failures;
mod local_exit;
mod losses;
mod lossy_paths;
mod many_players;
mod mass;
mod member;
mod memo;
mod migration;
mod moves;
mod other_shards;
mod outage;
mod outbound_headers;
mod play;
mod player;
mod process;
mod proxied;
mod proxy_header;
mod release;
mod repeated;
mod reserved_slots;
mod revoked;
mod shards;
mod signed;
mod single_host;
mod spread;
mod stall;
#[cfg(feature = "tcp")]
mod streams;
mod survey;
mod swarm;
mod tag_only;
#[cfg(feature = "tcp")]
mod tcp_slots;
mod test_provider;
mod trunk;
#[cfg(feature = "tcp")]
mod tunnel;
mod unseen;
mod world;
