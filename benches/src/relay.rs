//! A mesh's relay: the routes it computes, and packets through it beside bare forwarders.

use core::time::Duration;

pub mod child;
pub mod ends;
pub mod map;
pub mod operator;
pub mod rounds;
pub mod routing;
pub mod row;
pub mod socket;
pub mod table;

#[expect(clippy::disallowed_methods, reason = "processes wait for each other")]
fn nap(span: Duration) {
    std::thread::sleep(span);
}
