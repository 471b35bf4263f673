//! A reliable server and its clients; what both ways to divide clients promise runs over both.

mod end;
mod exchange;
mod gnet;
mod pressure;
mod stage;
