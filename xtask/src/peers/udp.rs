//! `udp_proto` beside other encrypted stacks: `benches/peers`.

use std::path::Path;

use super::row::Rows;
use super::table::{self, Machine};
use super::{Options, build, collect, goal, load, processor, publish, read, report};
use crate::failure::Failure;

/// The package that measures.
const MANIFEST: &str = "benches/peers/Cargo.toml";
/// What it was built with.
const LOCK: &str = "benches/peers/Cargo.lock";

/// Measures and judges; a goal that was not measured is a failure.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let before = load();
    let rows = measure(options)?;
    let machine = Machine {
        processor: processor(),
        load: [before, load()],
        versions: table::versions(&read(Path::new(LOCK))?, &table::PACKAGES),
        rounds: [options.rounds, options.load_rounds],
    };
    report(&rows, options)?;
    let judged = goal::judge(&rows)?;
    let tables = table::tables(&rows, &judged, &machine);
    for judgement in &judged {
        println!("peers: {}", judgement.line());
    }
    publish(&tables)
}

/// Builds the package, and has its programs time and count.
fn measure(options: &Options) -> Result<Rows, Failure> {
    let programs = build(MANIFEST)?;
    let [rounds, load_rounds] = [options.rounds, options.load_rounds].map(|it| it.to_string());
    let mut rows = Rows::default();
    let arguments = ["--rounds", &rounds, "--load-rounds", &load_rounds];
    collect(&programs.join("peers"), &arguments, &mut rows)?;
    collect(&programs.join("peers-count"), &[], &mut rows)?;
    Ok(rows)
}
