//! An echo server; the page of `tickwire` and the README show it as it is.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use tickwire::{AppId, Event, HZ_60, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("0.0.0.0:7777").parse()?;
    let mut server = Server::bind(address, AppId(1))?;
    println!("{} {}", server.address(), server.key());
    loop {
        for event in server.wait_tick(HZ_60)? {
            if let Event::Message {
                session,
                channel,
                bytes,
            } = event
                && server.send(session, channel, &bytes).is_err()
            {
                // The client has left, or its queue is full: end its session, not the server.
                server.disconnect(session).ok();
            }
        }
    }
}
