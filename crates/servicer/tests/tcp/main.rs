//! The stream servicer through its public API: real sockets on loopback, and waits on channels and
//! counters, never on time.

#![cfg(test)]

mod authority;
mod backpressure;
#[cfg(feature = "hub")]
mod claims;
mod exchange;
mod harness;
mod host;
mod host_hostile;
mod hostile;
#[cfg(feature = "hub")]
mod hub;
mod identity;
mod limits;
mod raw_client;
mod reliable;
mod shutdown;
#[cfg(feature = "hub")]
mod storage;
