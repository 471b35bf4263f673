//! An echo client; its arguments are the address and the key that the server printed.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use tickwire::{AppId, Client, Event, HZ_60, RELIABLE};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(key)) = (arguments.next(), arguments.next()) else {
        return Err("expected two arguments: the server's address and its key".into());
    };
    let mut client = Client::connect(address, AppId(1), key.parse()?)?;
    loop {
        for event in client.wait_tick(HZ_60)? {
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
