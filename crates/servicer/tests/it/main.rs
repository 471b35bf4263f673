//! The servicer through its public API: real sockets on loopback, and waits on channels only.

#![cfg(test)]

mod alloc;
mod batches;
mod exchange;
mod exits;
mod gnet;
mod harness;
mod opened_sockets;
mod order;
#[cfg(target_os = "linux")]
mod shards;
mod shutdown;
mod sockets;
#[cfg(feature = "conditioner")]
mod wide_area;
