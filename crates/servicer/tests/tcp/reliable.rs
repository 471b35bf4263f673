//! A reliable server and its clients; what both ways to divide clients promise runs over both.

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
