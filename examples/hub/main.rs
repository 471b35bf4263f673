//! A hub, three game servers and scripted players: what a game needs beyond its matches.
//!
//! ```text
//! hub                     one hub in a temporary folder; prints a table, status 1 if a step failed
//! hub --shards 2          the same with two hubs that share the players
//! hub soak --kills 1000   kills hub, sender and receiver at random, and checks all mail
//! ```
//!
//! `cluster.rs` starts the hub and its nodes, `play.rs` has the steps, `raid.rs` the rules of the
//! raid, `soak.rs` the long run.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most events do not matter here"
)]

mod cluster;
mod play;
mod raid;
mod soak;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cluster::Cluster;

/// Plays a game's day on a hub; prints a table, and ends with status 1 if a step failed.
#[derive(Parser)]
struct Line {
    /// Hubs that share the players.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    shards: u8,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand)]
enum Mode {
    /// Kills hub, sender and receiver at random moments, and checks all mail.
    Soak(soak::Options),
    /// The hub of a soak.
    #[command(hide = true)]
    Serve { folder: PathBuf },
    /// The sender of a soak.
    #[command(hide = true)]
    Send { folder: PathBuf, run: u64 },
    /// The receiver of a soak.
    #[command(hide = true)]
    Receive { folder: PathBuf, seen: String },
}

/// What a step returns; a text says what was measured.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A folder that is removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn main() -> ExitCode {
    let line = Line::parse();
    let outcome = match line.mode {
        None => play_all(line.shards),
        Some(Mode::Soak(options)) => soak::run(&options).map(|text| println!("{text}")),
        Some(Mode::Serve { folder }) => soak::serve(&folder),
        Some(Mode::Send { folder, run }) => soak::send(&folder, run),
        Some(Mode::Receive { folder, seen }) => soak::receive(&folder, &seen),
    };
    tickwire_examples::end("hub", outcome)
}

fn play_all(shards: u8) -> Outcome<()> {
    let name = format!("tickwire-example-hub-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    let mut cluster = Cluster::start(&folder.0, shards)?;
    println!(
        "hubs: {shards}; three game servers, an operator; {} players",
        play::PLAYERS
    );
    println!();
    let mut failed = 0;
    for (name, step) in play::STEPS {
        let (mark, text) = match step(&mut cluster) {
            Ok(text) => ("ok", text),
            Err(error) => {
                failed += 1;
                ("FAILED", error.to_string())
            }
        };
        println!("{mark:<7} {name:<16} {text}");
    }
    cluster.shutdown()?;
    println!();
    if failed > 0 {
        return Err(format!("{failed} of {} steps failed", play::STEPS.len()).into());
    }
    println!("{0} of {0} steps hold", play::STEPS.len());
    Ok(())
}
