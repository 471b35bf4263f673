//! How a server fares, in a terminal: connections, acknowledged packets, traffic, ticks, and where
//! the time goes. It reads what the example `metrics` offers over HTTP.
//!
//! ```text
//! metrics 127.0.0.1:7777 127.0.0.1:9090     a server that tells how it fares
//! dash 127.0.0.1:9090                       shows it, anew each second, until Ctrl-C
//! dash 127.0.0.1:9090 --looks 1             shows it once
//! ```
//!
//! Where stdout is no terminal, it looks once.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod report;
mod view;

use std::error::Error;
use std::io::{self, IsTerminal, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use report::Report;

/// Shows how a server fares.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Arguments {
    /// Where the server tells, as HOST:PORT; plain HTTP, so on this host or through a tunnel.
    server: String,
    /// Ends after so many looks, a second apart.
    #[arg(long)]
    looks: Option<u32>,
}

/// Longest report that is read: some 256 sessions with a minute each have 4 MB.
const REPORT_MAX: u64 = 16 << 20;
/// Time to connect, and for each read.
const PATIENCE: Duration = Duration::from_secs(3);
/// The shape that is known here.
const SCHEMA: u64 = 1;

fn main() -> ExitCode {
    tickwire_examples::end("dash", show(Arguments::parse()))
}

fn show(Arguments { server, looks }: Arguments) -> Result<(), Box<dyn Error>> {
    let is_watched = io::stdout().is_terminal();
    let looks = looks
        .or_else(|| (!is_watched).then_some(1))
        .unwrap_or(u32::MAX);
    for look in 1..=looks {
        let report = ask(&server)?;
        if report.schema != SCHEMA {
            return Err(format!("the report has shape {}, not {SCHEMA}", report.schema).into());
        }
        // Where it is watched, over the page of before, and nothing of that stays.
        let (home, end) = if is_watched {
            ("\x1b[H", "\x1b[K\n")
        } else {
            ("", "\n")
        };
        println!("{home}{}", view::page(&report).replace('\n', end));
        if is_watched {
            print!("\x1b[J");
            io::stdout().flush()?;
        }
        if look < looks {
            thread::park_timeout(Duration::from_secs(1));
        }
    }
    Ok(())
}

fn ask(server: &str) -> Result<Report, Box<dyn Error>> {
    let address = server.trim_start_matches("http://").trim_end_matches('/');
    let to = address
        .to_socket_addrs()?
        .next()
        .ok_or("there is no such host")?;
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)
        .map_err(|error| format!("nobody tells at {address}: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In one piece: a server that reads once has all of it.
    let request =
        format!("GET /report.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(REPORT_MAX).read_to_end(&mut bytes)?;
    let answer = String::from_utf8(bytes)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("that is no HTTP")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        let line = head.lines().next().unwrap_or_default();
        return Err(format!("{address} has no report: {line}").into());
    }
    Ok(serde_json::from_str(body)?)
}
