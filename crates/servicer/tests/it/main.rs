//! The servicer through its public API: real sockets on loopback, and waits on channels only.

#![cfg(test)]

mod alloc;
mod batches;
mod end;
mod exchange;
mod exits;
mod gnet;
mod opened;
mod order;
#[cfg(target_os = "linux")]
mod shards;
mod sockets;
mod toy;
#[cfg(feature = "conditioner")]
mod wide_area;
