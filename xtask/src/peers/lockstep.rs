//! `lockstep` beside ggrs and its fork: `benches/peers_lockstep`.

mod goal;
mod table;

use std::path::Path;

use super::row::Rows;
use super::table::versions;
use super::{Options, build, collect, load, processor, publish, read, report};
use crate::failure::Failure;
use table::Machine;

/// The package that measures.
const MANIFEST: &str = "benches/peers_lockstep/Cargo.toml";
/// What it was built with.
const LOCK: &str = "benches/peers_lockstep/Cargo.lock";

/// Measures and judges; what has no row yet is told as not measured, and never as met.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let before = load();
    let rows = measure(options)?;
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        versions: versions(&read(Path::new(LOCK))?, &table::PACKAGES),
        rounds: options.rounds,
    };
    report(&rows, options)?;
    let judged = goal::judge(&rows);
    let tables = table::tables(&rows, &judged, &machine);
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    publish(&tables)
}

/// Builds the package, and has its programs play and count.
fn measure(options: &Options) -> Result<Rows, Failure> {
    let programs = build(MANIFEST)?;
    let rounds = options.rounds.to_string();
    let mut rows = Rows::default();
    let arguments = ["--rounds", &rounds];
    collect(&programs.join("peers-lockstep"), &arguments, &mut rows)?;
    collect(&programs.join("peers-lockstep-count"), &[], &mut rows)?;
    Ok(rows)
}
