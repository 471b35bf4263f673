//! A reliable server and its clients; shared tests run with both ways to divide clients.

#![expect(
    clippy::print_stdout,
    reason = "figures for people, which decide nothing"
)]

mod descriptors;
mod end;
mod exchange;
mod gnet;
mod pressure;
mod siege;
mod stage;
