//! Encrypted UDP between two processes. The client authenticates the server by its key.
//!
//! ```text
//! echo server 127.0.0.1:7777          prints its key, and sends each message back
//! echo client 127.0.0.1:7777 KEY hi   sends a message, prints the reply, and exits
//! echo both                           starts a server process for IPv4 and one for IPv6, and a
//!                                     client for each
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use tickwire::{
    AppId, ChannelId, Client, Event, HZ_60, RELIABLE, SendError, Server, ServerKey, SessionId,
};

const APP: AppId = AppId(0x6563_686f);

/// Sends messages back over encrypted UDP.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Role {
    /// Prints its address and key, and sends each message back.
    Server { address: SocketAddr },
    /// Sends a message, prints the reply, and exits.
    Client {
        address: SocketAddr,
        key: ServerKey,
        message: String,
    },
    /// Starts servers as separate processes, and a client for each.
    Both,
}

fn main() -> ExitCode {
    let outcome = match Role::parse() {
        Role::Server { address } => serve(address),
        Role::Client {
            address,
            key,
            message,
        } => ask(address, key, &message).map(|answer| println!("{answer}")),
        Role::Both => both(),
    };
    tickwire_examples::end("echo", outcome)
}

fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut server = Server::bind(address, APP)?;
    println!("{} {}", server.address(), server.key());
    loop {
        for event in server.wait_tick(HZ_60)? {
            match event {
                Event::Message {
                    session,
                    channel,
                    bytes,
                } => echo(&mut server, session, channel, &bytes),
                Event::Connected { peer, .. } => println!("{} came", peer.address),
                Event::Disconnected { reason, .. } => println!("one left: {reason}"),
                Event::Unreachable { .. } | Event::Settled { .. } | _ => {}
            }
        }
    }
}

/// Sends a message back. If the send fails, only that client is disconnected.
fn echo(server: &mut Server, session: SessionId, channel: ChannelId, message: &[u8]) {
    match server.send(session, channel, message) {
        // The client has left.
        Ok(()) | Err(SendError::Closed) => {}
        Err(error) => {
            println!("one is let go: {error}");
            // If the session has already ended, there is nothing to do.
            server.disconnect(session).ok();
        }
    }
}

fn ask(address: SocketAddr, key: ServerKey, message: &str) -> Result<String, Box<dyn Error>> {
    let mut client = Client::connect(address, APP, key)?;
    let mut answer = None;
    loop {
        for event in client.wait_tick(HZ_60)? {
            match event {
                Event::Connected { .. } => client.send(RELIABLE, message.as_bytes())?,
                Event::Message { bytes, .. } => {
                    answer = Some(String::from_utf8_lossy(&bytes).into_owned());
                    client.disconnect()?;
                }
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { reason, .. } => {
                    return answer.ok_or_else(|| reason.to_string().into());
                }
                Event::Settled { .. } | _ => {}
            }
        }
    }
}

fn both() -> Result<(), Box<dyn Error>> {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let mut server = Command::new(std::env::current_exe()?)
            .args(["server", address])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = server.stdout.take().ok_or("the server has no output")?;
        let mut stdout = BufReader::new(stdout);
        let outcome = greet(&mut stdout);
        server.kill()?;
        server.wait()?;
        println!("{}", outcome?);
    }
    println!("echo: both servers sent back what they heard");
    Ok(())
}

/// Reads the server's first line, and sends it a message.
fn greet(server: &mut impl BufRead) -> Result<String, Box<dyn Error>> {
    let mut line = String::new();
    server.read_line(&mut line)?;
    let (address, key) = line
        .trim()
        .split_once(' ')
        .ok_or("the server said nothing")?;
    let answer = ask(
        address.parse()?,
        key.parse()?,
        "hello over an encrypted session",
    )?;
    Ok(format!("{address} answered: {answer}"))
}
