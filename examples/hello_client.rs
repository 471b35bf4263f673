//! The first client of the page of `tickwire`: its words are the address and the key of the server.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use tickwire::{AppId, Client, Event, RELIABLE};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(address), Some(key)) = (words.next(), words.next()) else {
        return Err("the words are the server's address and its key".into());
    };
    let mut client = Client::connect(address, AppId(1), key.parse()?)?;
    loop {
        for event in client.wait_tick(core::num::NonZeroU8::MIN.saturating_add(59))? {
            match event {
                Event::Connected { .. } => client.send(RELIABLE, b"hello")?,
                Event::Message { bytes, .. } => {
                    println!("{}", String::from_utf8_lossy(&bytes));
                    client.disconnect()?;
                }
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { .. } => return Ok(()),
                Event::Settled { .. } | _ => {}
            }
        }
    }
}
