//! The stream servicer through its public API: real sockets on loopback, and waits on channels and
//! counters, never on time.

#![cfg(test)]

mod authority;
mod end;
mod exchange;
mod host;
mod host_hostile;
mod hostile;
#[cfg(feature = "hub")]
mod hub;
mod identity;
mod limits;
mod pressure;
mod reliable;
#[cfg(feature = "hub")]
mod storage;
mod stranger;
mod toy;
