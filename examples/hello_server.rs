//! The first server of the page of `tickwire`.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use core::num::NonZeroU8;
use tickwire::{AppId, Event, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("0.0.0.0:7777").parse()?;
    let mut server = Server::bind(address, AppId(1))?;
    println!("{} {}", server.address(), server.key());
    loop {
        for event in server.wait_tick(NonZeroU8::MIN.saturating_add(59))? {
            if let Event::Message {
                session,
                channel,
                bytes,
            } = event
                && server.send(session, channel, &bytes).is_err()
            {
                // It has left, or asks for more than it acknowledges: its end, not the server's.
                server.disconnect(session).ok();
            }
        }
    }
}
