//! The fault matrix of TWP/1: every pair of faults, in a thousand worlds.

use std::collections::BTreeMap;

use netsim::{for_each_seed, test_site};
use udp_proto::{CloseCode, CloseReason, Event};

use super::faults::{Axis, Row, rows};
use super::storm::Storm;
use crate::harness::runs_its_own_seeds;

/// M1, M2, R2, R5, T6 and A1 under all combinations: channels keep their promises, both ends stay
/// within one key phase, no lost packet is acknowledged, and a session ends only by timeout or by
/// the application.
#[test]
fn sim_twp_m1_m2_r2_r5_t6_a1_the_fault_matrix_holds_under_1000_seeds() {
    let rows = rows();
    let mut seen = BTreeMap::<Row, u64>::new();
    let (mut opened, mut lived, mut delivered) = (0, 0, 0);
    let (mut moved, mut hostile) = (0, 0);
    for_each_seed(&test_site!(), 1_000, |seed| {
        let count = u64::try_from(rows.len()).unwrap();
        let row = rows[usize::try_from(seed.generator(3).below(count)).unwrap()];
        let storm = Storm::run_row(seed, row, |storm| {
            let open = storm.open_sessions();
            lived += open.len();
            for (ours, theirs) in open {
                for (sender, receiver) in [(&ours, &theirs), (&theirs, &ours)] {
                    assert!(sender.packets_acknowledged <= receiver.packets_received);
                    assert!(sender.key_phase_sent - receiver.key_phase_received <= 1);
                    if row.level(Axis::Limits) == 0 {
                        assert_eq!(sender.key_phase_sent, 0, "nobody asked for it");
                    }
                }
            }
        });
        let server = storm.testbed.log(storm.testbed.server);
        opened += server.sessions().len();
        delivered += server.messages.len();
        let is_move = |event: &&Event| matches!(event, Event::AddressChanged { .. });
        moved += server.events.iter().filter(is_move).count();
        let stats = storm.testbed.peer(storm.testbed.server).machine.stats();
        hostile += stats.dropped_replayed + stats.dropped_forged;
        let handles = storm.players.iter().map(|player| player.client);
        for handle in handles.chain([storm.testbed.server]) {
            for (_, reason) in storm.testbed.log(handle).closes() {
                let is_meant = matches!(
                    reason,
                    CloseReason::Local(CloseCode::App)
                        | CloseReason::Peer(CloseCode::App)
                        | CloseReason::Timeout
                );
                assert!(is_meant, "{reason}");
            }
        }
        *seen.entry(row).or_default() += 1;
    });
    // If all seeds were run, most sessions must have opened and survived.
    if runs_its_own_seeds() {
        assert_eq!(seen.len(), rows.len(), "{seen:?}");
        assert!(
            opened >= 1_800 && lived >= 1_750,
            "{opened}, {lived} of 2,000"
        );
        assert!(delivered >= 130_000, "{delivered}");
        assert!(moved >= 1_000, "{moved} changes of address");
        assert!(hostile >= 20_000, "{hostile} packets replayed or forged");
    }
}
