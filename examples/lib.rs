//! Each example is a program in this folder: `cargo run --release --example echo`.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{self, Write};
use std::process::{Child, ExitCode};
use std::time::Duration;

use netsim::{Chance, Link, LinkConfig, Loss};
use wire::{Generator, Instant};

/// Ends a program with status 0, or with status 1 and a one-sentence error on stderr.
///
/// If `main` returned a `Result`, its error would be printed in `Debug` format.
#[must_use]
pub fn end(program: &str, outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    // Appends the cause if the error's text leaves it out.
    let mut sentence = format!("{program}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.contains(&text) {
            sentence.push_str(": ");
            sentence.push_str(&text);
        }
        cause = error.source();
    }
    sentence.push('\n');
    // If stderr cannot be written, the status alone reports the failure.
    io::stderr().write_all(sentence.as_bytes()).ok();
    ExitCode::FAILURE
}

/// A child process, killed on drop.
#[derive(Debug)]
pub struct ChildGuard(pub Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // If it has already exited, there is nothing to kill.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// One direction of a simulated network that delays and loses datagrams.
#[derive(Debug)]
pub struct DelayedLink {
    link: Link,
    /// Arrival time and datagram. Without jitter, arrivals are in the order of sending.
    held: VecDeque<(Instant, Vec<u8>)>,
}

impl DelayedLink {
    /// Makes a link that loses this percentage of datagrams.
    #[must_use]
    pub fn new(delay: Duration, loss_percent: u32, generator: Generator) -> Self {
        let config = LinkConfig::default()
            .with_delay(delay)
            .with_loss(Loss::Bernoulli(Chance::percent(loss_percent)));
        Self {
            link: Link::new(config, generator),
            held: VecDeque::new(),
        }
    }

    /// Sends a datagram at `now`.
    pub fn send(&mut self, now: Instant, datagram: &[u8]) {
        for arrival in self.link.send(now, datagram.len()) {
            self.held.push_back((arrival.at, datagram.to_vec()));
        }
    }

    /// Returns the next datagram that has arrived.
    pub fn recv(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (at, _) = self.held.front()?;
        if *at > now {
            return None;
        }
        self.held.pop_front().map(|(_, datagram)| datagram)
    }
}

/// Rust blocks of pages that belong to no crate. Doc tests compile and run them.
#[cfg(doctest)]
#[doc = include_str!("../docs/determinism.md")]
mod determinism {}

/// The README of the repository.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The first page of the book.
#[cfg(doctest)]
#[doc = include_str!("../docs/start.md")]
mod start {}

/// The guides of the book.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/guides/client-server.md")]
    mod client_server {}
    #[doc = include_str!("../docs/guides/lockstep.md")]
    mod lockstep {}
    #[doc = include_str!("../docs/guides/hub.md")]
    mod hub {}
    #[doc = include_str!("../docs/guides/matchmaker.md")]
    mod matchmaker {}
    #[doc = include_str!("../docs/guides/secure.md")]
    mod secure {}
    #[doc = include_str!("../docs/guides/tune.md")]
    mod tune {}
}
