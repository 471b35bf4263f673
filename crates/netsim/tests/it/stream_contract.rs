//! The contract of stream machines: a correct one passes, and each broken one is found.

use netsim::contract::{Rule, examine_stream};
use netsim::{Limits, StreamContractSubject, check_stream_contract, test_site};
use wire::{Generator, Instant, NodeId, PeerIdentity, Seed};

use crate::ledger::{CONNECTIONS_MAX, Fault, Ledger, NUMBER, OPEN_MAX, OUTBOX_MAX, Store};

#[test]
fn sim_a_correct_stream_machine_satisfies_the_contract() {
    check_stream_contract(&test_site!(), 8, &Ledgers(Fault::None));
}

#[test]
fn finds_writes_beyond_the_credit() {
    assert_found(Fault::IgnoresCredit, Rule::Credit);
}

#[test]
fn finds_writes_to_connections_that_have_ended() {
    assert_found(Fault::WritesToTheDead, Rule::Credit);
}

#[test]
fn p4_finds_a_timer_that_acts_early() {
    assert_found(Fault::EarlyTimer, Rule::Timeout);
}

#[test]
fn p7_finds_memory_without_bound() {
    assert_found(Fault::Hoards, Rule::Memory);
}

fn assert_found(fault: Fault, rule: Rule) {
    let violation = (0..4)
        .find_map(|number| examine_stream(&Ledgers(fault), Seed::from_number(number)).err())
        .expect("a broken machine passed");
    assert_eq!(violation.rule, rule, "{violation}");
}

/// Three ledgers in a row.
struct Ledgers(Fault);

impl StreamContractSubject for Ledgers {
    type Machine = Ledger;

    fn build(&self, _seed: Seed, now: Instant) -> Vec<Ledger> {
        (0..3).map(|_| Ledger::new(now, self.0)).collect()
    }

    fn connections(&self) -> Vec<(usize, usize)> {
        vec![(0, 1), (1, 2)]
    }

    fn identity(&self, index: usize) -> PeerIdentity {
        PeerIdentity::Node(NodeId([u8::try_from(index).unwrap(); 32]))
    }

    fn poke(&self, _index: usize, machine: &mut Ledger, now: Instant, generator: &mut Generator) {
        // Sometimes more than a connection's credit admits.
        let burst = if generator.chance(20_000) { 100 } else { 1 };
        for _ in 0..burst {
            machine.publish(now, generator.next_u64());
        }
    }

    fn hostile(&self, _index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let mut record = vec![NUMBER];
        record.extend_from_slice(&generator.next_u64().to_be_bytes());
        Some(record)
    }

    fn outcome(&self, _command: Option<&Store>, generator: &mut Generator) -> Option<bool> {
        Some(generator.chance(900_000))
    }

    fn memory(&self, machine: &Ledger) -> usize {
        machine.memory()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::new(64 * (CONNECTIONS_MAX * (OUTBOX_MAX + 1) + OPEN_MAX));
        limits.late_clock = true;
        limits.outputs = 2_000;
        limits.steps = 100;
        limits
    }
}
