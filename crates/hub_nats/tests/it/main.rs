#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests wait for their processes"
)]
//! A hub's log on real servers of NATS, and on a pretended one.

mod cluster;
mod conformance;
mod connect;
mod fencing;
mod harness;
mod kill;
mod limit;
mod python;
mod raw_client;
