//! A reliable server and its clients; shared tests run with both ways to divide clients.

#![expect(
    clippy::print_stdout,
    reason = "figures for people, which decide nothing"
)]

mod backpressure;
mod combined_load;
mod descriptors;
mod exchange;
mod gnet;
mod harness;
mod shutdown;
