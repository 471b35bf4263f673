//! The servicer through its public API: real sockets on loopback, waits on channels only.

#![cfg(test)]

mod alloc;
mod batches;
mod end;
mod exchange;
mod exits;
mod opened;
mod order;
mod sockets;
mod toy;
#[cfg(feature = "conditioner")]
mod wide_area;
