//! Shows a server's state in a terminal: connections, acknowledged packets, traffic, ticks, and CPU
//! time by kind. It reads the HTTP report of the example `metrics`.
//!
//! ```text
//! metrics 127.0.0.1:7777 127.0.0.1:9090     a server with an HTTP report
//! dash 127.0.0.1:9090                       shows it every second until Ctrl-C
//! dash 127.0.0.1:9090 --looks 1             shows it once
//! ```
//!
//! If stdout is not a terminal, it shows the report once.

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

/// Shows a server's state.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Arguments {
    /// HTTP address of the server, as HOST:PORT. Plain HTTP, so use this host or a tunnel.
    server: String,
    /// Exits after this many refreshes, one per second.
    #[arg(long)]
    looks: Option<u32>,
}

/// Maximum length of a report. 256 sessions with 60 seconds each take about 4 MB.
const REPORT_MAX: u64 = 16 << 20;
/// Timeout for the connection and for each read.
const PATIENCE: Duration = Duration::from_secs(3);
/// The supported schema version.
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
        // On a terminal, each page overwrites the last one.
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
    // Sent in one write, for a server that reads only once.
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
