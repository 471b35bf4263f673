//! Neighbours and remote ends that try to start, take over, feed or end detours.

use std::cell::Cell;
use std::rc::Rc;

use netsim::Verdict;
use wire::Instant;

use crate::detour::part;
use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, mesh_address, ms};
use crate::many_players::gather;
use crate::member::Harness;

fn count_bytes(mesh: &mut Mesh, [from, to]: [usize; 2]) -> Rc<Cell<u64>> {
    let bytes = Rc::new(Cell::new(0));
    let counted = Rc::clone(&bytes);
    let (from, to) = (mesh.nodes[from], mesh.nodes[to]);
    mesh.world.intercept(from, to, move |_, datagram| {
        let len = u64::try_from(datagram.bytes.len()).unwrap();
        counted.set(counted.get() + len);
        Verdict::Pass
    });
    bytes
}

/// The most of these bytes in any one of `seconds` seconds.
fn most_in_a_second(mesh: &mut Mesh, bytes: &Cell<u64>, seconds: u32) -> u64 {
    let by_second = (0..seconds).map(|_| {
        let before = bytes.get();
        mesh.run(1_000);
        bytes.get() - before
    });
    by_second.max().unwrap()
}

/// The member forges datagrams of the exit for `millis` ms: `rate` per second, `len` bytes each.
fn junk(harness: &mut Harness, (rate, len): (u64, usize), millis: u64) {
    let exit = harness.mesh.ids[EXIT];
    for number in 0..millis * rate / 1_000 {
        let first = u8::try_from(number % 0x80).unwrap();
        harness.pass_on(exit, &vec![first; len]);
        harness.mesh.run(1_000 / rate);
    }
}

fn gap_since(harness: &Harness, from: Instant) -> core::time::Duration {
    harness.mesh.player().gap(from, harness.mesh.now())
}

#[test]
fn mesh_a1_forged_datagrams_of_a_restarting_exit_block_no_player() {
    let shape = Shape {
        relays: 1,
        ..Shape::default()
    };
    let mut harness = Harness::at(81, &shape, ENTRY);
    let opened = |harness: &Harness| {
        let node = &harness.mesh.process(ENTRY).node;
        node.endpoint_stats().sessions_opened
    };
    let before = opened(&harness);
    // Only the direct path is left, so a session that started by a detour would carry nothing.
    harness.mesh.kill(RELAY);
    harness.mesh.kill(EXIT);
    junk(&mut harness, (10, 60), 15_000);
    harness.mesh.restart(EXIT, 1);
    junk(&mut harness, (10, 60), 5_000);
    let carried = harness.mesh.now();
    junk(&mut harness, (10, 60), 30_000);
    let gap = gap_since(&harness, carried);
    assert!(gap <= ms(300), "{gap:?}");
    let opened = opened(&harness) - before;
    assert!(opened <= 3, "{opened}");
}

#[test]
fn mesh_a1_an_exit_that_names_a_relays_address_causes_no_flood() {
    let shape = Shape {
        adjust: |index, config, _| {
            if index == EXIT {
                config.profile.addresses = vec![mesh_address(RELAY)];
            }
        },
        ..Shape::default()
    };
    let mut mesh = Mesh::new(wire::Seed::from_number(82), &shape);
    part(&mut mesh);
    let bytes = count_bytes(&mut mesh, [ENTRY, RELAY]);
    mesh.run(START);
    let most = most_in_a_second(&mut mesh, &bytes, 30);
    assert!(most < 64 << 10, "{most}");
}

#[test]
fn mesh_a1_forged_datagrams_take_over_no_detour() {
    for (rate, len) in [(50, 60), (125, 1_024)] {
        let mut harness = Harness::at(83, &Shape::default(), ENTRY);
        let cut = harness.mesh.now();
        part(&mut harness.mesh);
        harness.mesh.run(5_000);
        let refused = |harness: &Harness| harness.mesh.process(ENTRY).node.stats().detours_refused;
        let before = refused(&harness);
        junk(&mut harness, (rate, len), 30_000);
        let gap = gap_since(&harness, cut);
        assert!(gap <= ms(300), "{gap:?}");
        assert_eq!(harness.mesh.process(ENTRY).closed_flows(), []);
        assert_eq!(harness.mesh.process(EXIT).closed_flows(), []);
        // The node examines 64 KiB of them per second.
        let refused = refused(&harness) - before;
        let offered = 30 * rate * u64::try_from(len).unwrap();
        let taken = offered - refused * u64::try_from(len).unwrap();
        assert!(taken <= 32 * (64 << 10), "{taken} of {offered}");
    }
}

#[test]
fn mesh_a1_a_neighbour_starts_few_detours_by_forged_datagrams() {
    let shape = Shape {
        relays: 9,
        ..Shape::default()
    };
    let mut harness = Harness::at(84, &shape, ENTRY);
    let dead: Vec<usize> = (RELAY + 3..RELAY + 9).collect();
    for index in &dead {
        harness.mesh.kill(*index);
    }
    harness.mesh.run(12_000);
    let refused = |harness: &Harness| harness.mesh.process(ENTRY).node.stats().detours_refused;
    let before = refused(&harness);
    for _ in 0..10 {
        for index in &dead {
            let node = harness.mesh.ids[*index];
            harness.pass_on(node, &[0x40; 60]);
        }
        harness.mesh.run(100);
    }
    harness.mesh.run(200);
    // Six nodes are named, and at most four attempts run at a time.
    let refused = refused(&harness) - before;
    assert!((18..=24).contains(&refused), "{refused}");
}

#[test]
fn mesh_a1_direct_traffic_during_a_detour_is_rate_limited() {
    let mut mesh = Mesh::new(wire::Seed::from_number(85), &Shape::default());
    part(&mut mesh);
    mesh.run(START + 6_000);
    // Hundreds of newcomers are announced to the exit, which never answered from the dialled
    // address.
    let bytes = count_bytes(&mut mesh, [ENTRY, EXIT]);
    gather(&mut mesh, 1_000, ms(3_000));
    let most = most_in_a_second(&mut mesh, &bytes, 8);
    assert!(most <= 32 << 10, "{most}");
    assert!(most >= 16 << 10, "{most}: too few to tell");
}
