//! A mesh relay: its route computation, and its packet forwarding compared with bare forwarders.

use core::time::Duration;

pub mod child;
mod clients;
pub mod end;
pub mod ends;
pub mod frames;
pub mod map;
pub mod operator;
mod paced;
pub mod rounds;
pub mod routing;
pub mod socket;
pub mod subject;
pub mod table;

#[expect(clippy::disallowed_methods, reason = "processes wait for each other")]
fn nap(span: Duration) {
    std::thread::sleep(span);
}
