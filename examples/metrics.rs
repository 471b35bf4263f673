//! A server with counters over HTTP: as Prometheus text and as JSON.
//!
//! ```text
//! metrics 127.0.0.1:7777 127.0.0.1:9090     echoes messages, and serves HTTP on port 9090
//! curl http://127.0.0.1:9090/metrics        Prometheus text
//! curl http://127.0.0.1:9090/report.json    the same, and the last 60 seconds
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use tickwire::servicer::Clock;
use tickwire::{AppId, Event, HZ_60, Report, Server};

/// Echoes messages over encrypted UDP and reports its counters over HTTP.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Arguments {
    /// UDP address for players.
    udp: SocketAddr,
    /// HTTP address of the report. There is no authentication, so do not expose it to a public
    /// network.
    http: SocketAddr,
}

fn main() -> ExitCode {
    tickwire_examples::end("metrics", serve(&Arguments::parse()))
}

fn serve(&Arguments { udp, http }: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut server = Server::bind(udp, AppId(0x6563_686f))?;
    let listener = TcpListener::bind(http)?;
    println!(
        "{} {} http://{}",
        server.address(),
        server.key(),
        listener.local_addr()?
    );
    let shown = Arc::new(Mutex::new(server.report()));
    let reported = Arc::clone(&shown);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnects early is not an error of the server.
            answer(stream, &reported).ok();
        }
    });
    for tick in 0_u64.. {
        for event in server.wait_tick(HZ_60)? {
            if let Event::Message {
                session,
                channel,
                bytes,
            } = event
                && server.send(session, channel, &bytes).is_err()
            {
                server.disconnect(session).ok();
            }
        }
        if tick.is_multiple_of(u64::from(HZ_60.get())) {
            *shown.lock().unwrap_or_else(PoisonError::into_inner) = server.report();
        }
    }
    Ok(())
}

/// Answers one request. The client has one second to send it.
fn answer(mut stream: TcpStream, shown: &Mutex<Report>) -> std::io::Result<()> {
    let clock = Clock::new();
    let deadline = clock.now() + Duration::from_secs(1);
    let (mut head, mut len) = ([0; 4_096], 0);
    // Reads the whole head, however it is segmented: unread bytes would reset the connection.
    while !head.get(..len).is_some_and(|it| it.ends_with(b"\r\n\r\n")) {
        let left = deadline.saturating_since(clock.now());
        // A timeout of zero is an error, which also ends the request.
        stream.set_read_timeout(Some(left))?;
        match stream.read(head.get_mut(len..).unwrap_or_default())? {
            0 => break,
            more => len += more,
        }
    }
    let asked = head.get(..len).unwrap_or_default();
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let report = shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, kind, body) = if asked.starts_with(b"GET /metrics ") {
        (
            "200 OK",
            "text/plain; version=0.0.4",
            report.to_prometheus(),
        )
    } else if asked.starts_with(b"GET /report.json ") {
        ("200 OK", "application/json", report.to_json())
    } else {
        (
            "404 Not Found",
            "text/plain",
            "/metrics or /report.json\n".to_owned(),
        )
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
