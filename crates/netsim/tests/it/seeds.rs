//! The output of a run over seeds, read from a test binary that is run again.

use std::process::{Command, Output};
use std::time::Duration;

use netsim::{Datagram, World, for_each_seed, test_site};
use wire::Seed;

#[test]
fn sim_fails_if_requested() {
    let fatal = std::env::var(FATAL).ok().and_then(|text| text.parse().ok());
    for_each_seed(&test_site!(), 3, |seed| {
        let mut world = World::new(seed);
        let nobody = ([10, 0, 0, 1], 7).into();
        world.inject(Duration::ZERO, Datagram::new(nobody, nobody, vec![0xab]));
        world.run_for(Duration::from_secs(1));
        assert_ne!(fatal.map(Seed::from_number), Some(seed), "told to fail");
    });
}

#[test]
fn a_failing_seed_gives_one_command_that_repeats_it() {
    let output = run(&[("SEEDS", "9"), ("FROM", "2"), (FATAL, "5")]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    let commands: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("cargo test"))
        .collect();
    let command = "SEED=5 cargo test -p tickwire-netsim --test it \
                   seeds::sim_fails_if_requested -- --exact --nocapture";
    assert_eq!(commands, [command], "{said}");
    assert!(said.contains("3 seeds held"), "{said}");
    assert!(
        said.contains("0ns Forged 10.0.0.1:7 > 10.0.0.1:7 1 B ab"),
        "{said}"
    );

    let alone = run(&[("SEED", "5"), (FATAL, "5")]);
    assert!(!alone.status.success());
}

#[test]
fn passing_seeds_are_counted() {
    let output = run(&[("SEEDS", "4"), ("FROM", "6"), (FATAL, "5")]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("seeds::sim_fails_if_requested: 4 seeds done, from 6"),
        "{said}"
    );
}

fn run(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["SEED", "SEEDS", "FROM"] {
        command.env_remove(name);
    }
    command
        .envs(variables.iter().copied())
        .args(["seeds::sim_fails_if_requested", "--exact", "--nocapture"])
        .output()
        .unwrap()
}

/// Environment variable with the seed that fails.
const FATAL: &str = "NETSIM_FATAL_SEED";
