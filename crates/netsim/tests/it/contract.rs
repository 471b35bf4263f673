//! The contract of datagram machines: a correct one passes, and each broken one is found.

use std::net::SocketAddr;

use netsim::contract::{Rule, examine};
use netsim::{ContractSubject, Limits, check_contract, test_site};
use wire::{Generator, Instant, Seed};

use crate::pinger::{EVENTS_MAX, Fault, Lookup, OUTBOX_MAX, PENDING_MAX, PING, Pinger};

#[test]
fn sim_a_correct_machine_satisfies_the_contract() {
    check_contract(&test_site!(), 32, &Pingers(Fault::None));
}

#[test]
fn p1_finds_a_clock_that_steps_back() {
    assert_found(Fault::GoesBack, Rule::LateClock);
}

#[test]
fn p1_is_skipped_where_debug_assertions_forbid_it() {
    assert_eq!(Limits::new(0).late_clock, !cfg!(debug_assertions));
}

#[test]
fn p2_finds_a_drain_without_end() {
    assert_found(Fault::EndlessDrain, Rule::Drain);
}

#[test]
fn p3_finds_output_without_input() {
    assert_found(Fault::Restless, Rule::Rest);
}

#[test]
fn p4_finds_a_timer_that_acts_early() {
    assert_found(Fault::EarlyTimer, Rule::Timeout);
}

#[test]
fn p4_finds_a_busy_loop() {
    assert_found(Fault::BusyLoop, Rule::Timeout);
}

#[test]
fn p5_finds_randomness_that_is_not_the_seed_s() {
    assert_found(Fault::OwnRandomness, Rule::Determinism);
}

#[test]
#[should_panic(expected = "read past the end")]
fn p7_finds_a_panic() {
    assert_found(Fault::Panics, Rule::Memory);
}

#[test]
fn p7_finds_memory_without_bound() {
    assert_found(Fault::Hoards, Rule::Memory);
}

#[test]
fn p8_finds_acceptance_of_unknown_completions() {
    assert_found(Fault::BelievesStrangers, Rule::Completion);
}

#[test]
fn p8_finds_acceptance_of_a_second_completion() {
    assert_found(Fault::BelievesTwice, Rule::Completion);
}

#[test]
fn p8_finds_that_a_missing_completion_blocks_others() {
    assert_found(Fault::WaitsForAll, Rule::Completion);
}

/// Asserts that the first failing seed fails by this rule, within ten seeds.
fn assert_found(fault: Fault, rule: Rule) {
    let violation = (0..10)
        .find_map(|number| examine(&Pingers(fault), Seed::from_number(number)).err())
        .expect("a broken machine passed");
    assert_eq!(violation.rule, rule, "{violation}");
}

#[test]
#[should_panic(expected = "did not come to: [\"no hostile input\"]")]
fn a_check_past_a_point_fails() {
    check_contract(&test_site!(), 1, &Peaceful);
}

/// Pingers without attacks, so most of their script is not checked.
struct Peaceful;

impl ContractSubject for Peaceful {
    type Machine = Pinger;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Pinger> {
        let mut pingers = Pingers(Fault::None).build(seed, now);
        pingers[0].ping(now, address(1));
        pingers[0].look_up(now);
        pingers
    }

    fn route(&self, sender: usize, destination: SocketAddr) -> Option<(usize, SocketAddr)> {
        Pingers(Fault::None).route(sender, destination)
    }

    fn poke(&self, _: usize, _: &mut Pinger, _: Instant, _: &mut Generator) {}

    fn unknown_peer(&self, _: usize, _: &mut Generator) -> SocketAddr {
        address(0)
    }

    fn outcome(&self, command: Option<&Lookup>, generator: &mut Generator) -> Option<u64> {
        Pingers(Fault::None).outcome(command, generator)
    }

    fn memory(&self, machine: &Pinger) -> usize {
        machine.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Pingers(Fault::None).limits();
        (limits.steps, limits.flood) = (0, 0);
        limits
    }
}

/// Three pingers that know each other.
struct Pingers(Fault);

impl ContractSubject for Pingers {
    type Machine = Pinger;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Pinger> {
        let mut seeds = seed.generator(9);
        let pinger = |_| Pinger::new(seeds.seed(), now).with_fault(self.0);
        (0..3).map(pinger).collect()
    }

    fn route(&self, sender: usize, destination: SocketAddr) -> Option<(usize, SocketAddr)> {
        let receiver = (0..3).find(|&index| address(index) == destination)?;
        Some((receiver, address(sender)))
    }

    fn poke(&self, index: usize, machine: &mut Pinger, now: Instant, generator: &mut Generator) {
        if generator.chance(300_000) {
            machine.look_up(now);
        } else {
            machine.ping(now, address((index + 1) % 3));
        }
    }

    fn unknown_peer(&self, _index: usize, generator: &mut Generator) -> SocketAddr {
        address(usize::try_from(generator.below(5)).unwrap())
    }

    fn hostile(&self, _index: usize, _generator: &mut Generator) -> Option<Vec<u8>> {
        Some(vec![PING, 0, 0])
    }

    fn outcome(&self, _command: Option<&Lookup>, generator: &mut Generator) -> Option<u64> {
        Some(generator.next_u64())
    }

    fn memory(&self, machine: &Pinger) -> usize {
        machine.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(OUTBOX_MAX * 9 + 64 * (2 * PENDING_MAX + EVENTS_MAX));
        limits.late_clock = true;
        limits.outputs = 500;
        limits
    }

    fn stuck(&self, machines: &[Pinger]) -> Option<String> {
        // Pings continue to the end of the script, so each machine has received answers or still
        // waits for some.
        let quiet = machines
            .iter()
            .position(|machine| !machine.has_pinged_while_waiting())?;
        Some(format!(
            "machine {quiet} pings nobody while it looks something up"
        ))
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7_000 + u16::try_from(index).unwrap()))
}
